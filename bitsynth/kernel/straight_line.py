"""Straight-line programs of any kind of artifact: their rules, and the instruction forms that their C contains.

Names are well formed, each value is defined once and before its uses, by an instruction on registers, and none is
left unused. Kinds differ in the names of their inputs and values, and in what reads the results.

    inputs a0, w0; steps t0 = mul a0 w0, t1 = add t0 acc0; results t1: right
    t1 = add t0 t2: t2 has no value yet                    results t0: t1 is unused
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Protocol

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.domains.forms import variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa, Requirements, load
from bitsynth.isa.step import Constant, Step
from bitsynth.isa.types import VecType


def constant_load(isa: Isa, kind: VecType) -> Instr:
    """Return the form that loads a constant of type `kind`, or of unsigned lanes as wide, as it lies in memory."""
    domain = LinearDomain(1)
    lanes = [variable(k, 0, 0) for k in range(kind.lanes)]
    for wanted in (kind, VecType("u", kind.bits, kind.lanes)):
        for instr in isa.instrs.values():
            if instr.is_load and instr.out == instr.operands[0].type == wanted and instr(domain, [lanes]) == lanes:
                return instr
    raise SpecError(f"{isa.name} has no instruction that loads a {kind}")


@lru_cache
def sign_shift(isa: Isa) -> Instr:
    """Return the form that shifts the signed lanes of an int32 tile right by its immediate; SpecError without one."""
    kind = VecType("s", isa.tile.bits, isa.tile.lanes)
    lanes = [np.array([0x8000_0003, 0xFFFF_FFFF, 0x7FFF_FFFF, 5], np.uint64)] * kind.lanes
    halves = np.array([0xC000_0001, 0xFFFF_FFFF, 0x3FFF_FFFF, 2], np.uint64)
    for instr in isa.full_forms:
        unary = instr.imm is not None and [instr.out, *(o.type for o in instr.operands)] == [kind, kind]
        if unary and 1 in instr.imms and all((x == halves).all() for x in instr(ConcreteDomain(), [lanes], 1)):
            return instr
    raise SpecError(f"{isa.name} has no instruction that shifts {kind} right and copies the sign")


class Instructions(Protocol):
    """An artifact, as far as instructions go: the set that it is for, and the forms in it that its C contains."""

    @property
    def isa(self) -> str:
        """The name of the instruction set."""

    @property
    def forms(self) -> list[str]:
        """The instruction forms that its C contains, sorted."""

    @property
    def in_matrices(self) -> bool:
        """Whether its C uses matrix registers."""


def needs(artifact: Instructions) -> Requirements:
    """Return the requirements of an artifact's C on a processor and a compiler."""
    return load(artifact.isa).requirements(artifact.forms, matrices=artifact.in_matrices)


def register_type(isa: Isa, text: str, *, general: bool = False) -> VecType:
    """Return the type `text`, which must fill a register and have a name in C.

    A general-purpose one may do if `general`.
    """
    kind = VecType.parse(text)
    fills = kind.total_bits == isa.table.vector_bits or (general and kind.in_general)
    if str(kind) not in isa.table.ctype or not fills:
        raise SpecError(f"{text} is no type of a full register of {isa.name}")
    return kind


def check_constants(isa: Isa, constants: tuple[Constant, ...]) -> None:
    """Raise SpecError unless each fills a register with numbers of its type, and can be loaded."""
    check_names("constant", "k", (c.name for c in constants))
    for c in constants:
        kind = register_type(isa, c.type)
        low = -(1 << (kind.bits - 1)) if kind.sign == "s" else 0
        if len(c.lanes) != kind.lanes or not all(low <= x < low + (1 << kind.bits) for x in c.lanes):
            raise SpecError(f"malformed kernel: constant {c.name} must hold {kind.lanes} numbers of {kind.short}")
        constant_load(isa, kind)


def check_names(noun: str, kind: str, names: Iterable[str]) -> None:
    """Raise SpecError unless the names of each `noun` are `kind` and a number, and no two are equal."""
    pattern, seen = re.compile(rf"{kind}(0|[1-9]\d{{0,5}})", re.ASCII), set[str]()
    for name in names:
        if not pattern.fullmatch(name):
            raise SpecError(f"{name[:40]!r} is no name of a {noun}: want one like {kind}0")
        if name in seen:
            raise SpecError(f"{noun} {name} is defined twice")
        seen.add(name)


def find_unused(given: Iterable[str], program: Iterable[Step], results: Iterable[str]) -> list[str]:
    """Return the given names and the values of a program that neither its steps nor its `results` read."""
    program = list(program)
    read = {a for s in program for a in s.args}.union(results)
    return [name for name in (*given, *(s.dst for s in program)) if name not in read]


def check_program(
    isa: Isa, program: Iterable[Step], inputs: Iterable[str], general: Iterable[str] = (), letter: str = "t"
) -> set[str]:
    """Raise SpecError unless each value has one definition, before its uses, by an instruction on registers.

    Values are named by `letter` and a number. Return the values in general-purpose registers; `general` are the inputs
    in these registers.
    """
    program, words = list(program), set(general)
    check_names("value", letter, (s.dst for s in program))
    defined = set(inputs)
    for s in program:
        instr = isa[s.op]
        if not instr.on_registers:
            raise SpecError(f"{s}: {s.op} moves data from or to memory, which a program may not")
        if len(s.args) != len(instr.operands):
            raise SpecError(f"{s}: {s.op} takes {len(instr.operands)} operands")
        if s.imm not in instr.imms:
            raise SpecError(f"{s}: immediate {s.imm} is outside {instr.imms.start}..{instr.imms.stop - 1}")
        if missing := [a for a in s.args if a not in defined]:
            raise SpecError(f"{s}: {missing[0]} has no value yet")
        pairs = zip(s.args, instr.operands, strict=True)
        if other := [a for a, o in pairs if (a in words) != o.type.in_general]:
            raise SpecError(f"{s}: {other[0]} is in a register of another kind than {s.op} takes")
        defined.add(s.dst)
        if instr.out.in_general:
            words.add(s.dst)
    return words

"""Loads of whole registers in two halves, for processors on which nothing starts beside a whole one.

The high half is loaded into a general-purpose register, beside which any instruction on vectors starts, and then
inserted. What takes a half of what is loaded into such a register loads it there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import msgspec

from bitsynth.isa.domains.forms import variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.isa.types import VecType
from bitsynth.kernel.program import Loop

HALVES = ("l", "h")
"""Behind the name of a register: its low half, and its high one."""

WORD = "i"
"""Behind the name of a register: its low half, where it is in a general-purpose register, as the high one always is."""

PARTS = (*HALVES, WORD)


@dataclass(frozen=True)
class HalfLoads:
    """The forms that load half a register, and that make a register of two halves; C has its own text of the latter.

    `takes` are the forms that take a half into a general-purpose register, and what is behind its name there.
    """

    load: str
    join: str
    takes: Mapping[str, str]


@lru_cache
def half_loads(isa: Isa, cpu: str) -> HalfLoads | None:
    """What loads a register in halves; None if `cpu` starts others beside a whole load, or there are no such forms."""
    if isa.table.halves is None or not isa.rules(cpu).kinds["load"].alone:
        return None
    half = isa.word.lanes // 2
    lanes = [variable(k, 0, 0) for k in range(2 * half)]
    domain = LinearDomain(1)
    kind = VecType("u", isa.word.bits, half)
    loads = (i for i in isa.instrs.values() if i.is_load and i.out == i.operands[0].type == kind)
    joins = (i for i in isa.full_forms if i.out == isa.word and [o.type for o in i.operands] == [kind, kind])
    load = next((i for i in loads if i(domain, [lanes[:half]]) == lanes[:half]), None)
    join = next((i for i in joins if not i.imm and i(domain, [lanes[:half], lanes[half:]]) == lanes), None)
    return HalfLoads(load.name, join.name, dict(_takes(isa))) if load and join else None


def _takes(isa: Isa) -> Iterator[tuple[str, str]]:
    """The forms that take a half of a register into a general-purpose one, and which."""
    domain, size = LinearDomain(1), isa.word.lanes
    lanes = [variable(k, 0, 255) for k in range(size)]
    halves = {WORD: domain.join(lanes[: size // 2], 8), HALVES[1]: domain.join(lanes[size // 2 :], 8)}
    for form in isa.instrs.values():
        if form.out.in_general and form.on_registers and [o.type for o in form.operands] == [isa.word]:
            made = form(domain, [lanes])
            yield from ((form.name, part) for part, half in halves.items() if made == [half])


def in_halves(isa: Isa, cpu: str, flat: Loop) -> Loop:
    """The program with every load of a whole register in halves, if that lets `cpu` start others beside it."""
    forms = half_loads(isa, cpu)
    return flat if forms is None else msgspec.structs.replace(flat, program=tuple(map(str, _lines(isa, forms, flat))))


def _lines(isa: Isa, forms: HalfLoads, flat: Loop) -> Iterator[Step]:
    """The lines; halves are loaded a register ahead, so that each join finds the next low half to start beside."""
    whole = [s.dst for s in flat.steps if not s.args and isa[s.op].operands[0].type.total_bits == isa.table.vector_bits]
    ahead, named = dict(pairwise(whole)), _taken(forms, flat, whole)
    read = {a for s in flat.steps if s.dst not in named for a in s.args}
    for step in flat.steps:
        if step.dst in named and named[step.dst].endswith(WORD):
            yield Step(named[step.dst], forms.load, ())
        if step.dst in named or (not step.args and step.dst + WORD in named.values() and step.dst not in read):
            continue
        if step.args or step.dst not in whole:
            yield Step(step.dst, step.op, tuple(named.get(a, a) for a in step.args), step.imm)
            continue
        for name in (step.dst if step.dst == whole[0] else "", ahead.get(step.dst, "")):
            yield from (Step(name + half, forms.load, ()) for half in HALVES if name)
        yield Step(step.dst, forms.join, tuple(step.dst + half for half in HALVES))


def _taken(forms: HalfLoads, flat: Loop, whole: Collection[str]) -> dict[str, str]:
    """Values that are halves of what is loaded, by what loads them: repeated ones are their low halves alone."""
    loaded = {s.dst for s in flat.steps if not s.args}
    taken = ((s.dst, s.args[0], forms.takes[s.op]) for s in flat.steps if s.op in forms.takes)
    return {dst: of + part for dst, of, part in taken if of in loaded and (part == WORD or of in whole)}


@lru_cache(maxsize=1 << 14)
def half_of(name: str) -> tuple[str, str]:
    """The register that a value is part of, and which of the PARTS it is, "" if all of it.

    Copies of a step have their number behind that.
    """
    value, of, copy = name.partition("_of")
    half = value[-1] if value.endswith(PARTS) else ""
    return value.removesuffix(half) + of + copy, half


def is_high(name: str) -> bool:
    """Whether a value is the high half of a register, which a general-purpose register holds."""
    return half_of(name)[1] == HALVES[1]


def in_word(name: str) -> bool:
    """Whether a value is half a register that is loaded into a general-purpose one."""
    return half_of(name)[1] in (HALVES[1], WORD)


def inserts(isa: Isa, step: Step) -> bool:
    """Whether a line makes a register of its low half, and of the high one in a general-purpose register."""
    form = isa[step.op]
    return is_join(step) or (form.operands[-1].type.in_general and form.out == isa.word)


def is_join(step: Step) -> bool:
    """Whether a line makes a register of its halves."""
    return [half_of(a) for a in step.args] == [(step.dst, half) for half in HALVES]


def is_half(name: str) -> bool:
    """Whether a value is half a register."""
    return half_of(name)[1] != ""

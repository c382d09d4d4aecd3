"""Loads of whole registers in two halves, for processors on which nothing starts beside a whole one.

The high half is loaded into a general-purpose register, beside which any instruction on vectors starts, and then
inserted. What takes a half of what is loaded into such a register loads it there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

WORDS = ("i", "j")
"""Behind the name of a register: its halves, where they are taken into general-purpose registers to stay there."""

PARTS = (*HALVES, *WORDS)


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
    halves = lanes[: size // 2], lanes[size // 2 :]
    words = {part: domain.join(half, 8) for part, half in zip(WORDS, halves, strict=True)}
    for form in isa.instrs.values():
        if form.out.in_general and form.on_registers and [o.type for o in form.operands] == [isa.word]:
            made = form(domain, [lanes])
            yield from ((form.name, part) for part, word in words.items() if made == [word])


def words_of(isa: Isa, load: str) -> tuple[str, ...]:
    """Which WORDS of what a form loads lie so in memory: of half a register that is repeated the first alone."""
    bits = isa[load].operands[0].type.total_bits
    return WORDS if bits == isa.table.vector_bits else WORDS[:1] if 2 * bits == isa.table.vector_bits else ()


def in_halves(isa: Isa, cpu: str, flat: Loop) -> Loop:
    """The program with every load of a whole register in halves, if that lets `cpu` start others beside it."""
    forms = half_loads(isa, cpu)
    return flat if forms is None else msgspec.structs.replace(flat, program=tuple(map(str, _lines(isa, forms, flat))))


def _lines(isa: Isa, forms: HalfLoads, flat: Loop) -> Iterator[Step]:
    """The lines; halves are loaded a register ahead, so that each join finds the next low half to start beside.

    What is taken into a general-purpose register is loaded there where it is first wanted.
    """
    whole = [s.dst for s in flat.steps if not s.args and isa[s.op].operands[0].type.total_bits == isa.table.vector_bits]
    taken = _taken(isa, forms, flat)
    joined = {a for s in flat.steps if s.dst not in taken for a in s.args}
    parted = {half_of(part)[0] for part in taken.values()} - joined
    whole = [name for name in whole if name not in parted]
    ahead, loaded = dict(pairwise(whole)), set[str]()
    for step in flat.steps:
        part = taken.get(step.dst, "")
        if part and part not in loaded:
            loaded.add(part)
            yield Step(part, forms.load, ())
        if part or (not step.args and step.dst in parted):
            continue
        if step.args or step.dst not in whole:
            yield Step(step.dst, step.op, tuple(taken.get(a, a) for a in step.args), step.imm)
            continue
        for name in (step.dst if step.dst == whole[0] else "", ahead.get(step.dst, "")):
            yield from (Step(name + half, forms.load, ()) for half in HALVES if name)
        yield Step(step.dst, forms.join, tuple(step.dst + half for half in HALVES))


def _taken(isa: Isa, forms: HalfLoads, flat: Loop) -> dict[str, str]:
    """Values that are halves of what a step loads, by what loads them alone."""
    loads = {s.dst: words_of(isa, s.op) for s in flat.steps if not s.args and is_input(s.dst)}
    taken = ((s.dst, s.args[0], forms.takes[s.op]) for s in flat.steps if s.op in forms.takes)
    return {dst: of + part for dst, of, part in taken if part in loads.get(of, ())}


def is_input(name: str) -> bool:
    """Whether a value is an input of a step, of a row or of columns."""
    return name[0] in "aw" and not name.startswith("acc")


@lru_cache(maxsize=1 << 14)
def half_of(name: str) -> tuple[str, str]:
    """The register that a value is part of, and which of the PARTS it is, "" if all of it.

    Copies of a step have their number behind that.
    """
    value, of, copy = name.partition("_of")
    half = value[-1] if value.endswith(PARTS) else ""
    return value.removesuffix(half) + of + copy, half


def is_high(name: str) -> bool:
    """Whether a value is the high half of a register."""
    return half_of(name)[1] in (HALVES[1], WORDS[1])


def in_word(name: str) -> bool:
    """Whether a value is half a register that is loaded into a general-purpose one, to be joined or to stay there."""
    return half_of(name)[1] in (HALVES[1], *WORDS)


def stays_in_word(name: str) -> bool:
    """Whether a value is half a register that is loaded into a general-purpose one, to stay there."""
    return half_of(name)[1] in WORDS


def inserts(isa: Isa, step: Step) -> bool:
    """Whether a line makes a register of its low half, and of the high one in a general-purpose register."""
    form = isa[step.op]
    return is_join(step) or (form.operands[-1].type.in_general and form.out.total_bits == isa.table.vector_bits)


def is_join(step: Step) -> bool:
    """Whether a line makes a register of its halves."""
    return [half_of(a) for a in step.args] == [(step.dst, half) for half in HALVES]


def is_half(name: str) -> bool:
    """Whether a value is half a register."""
    return half_of(name)[1] != ""

"""Splits loads of whole vector registers into two halves, for processors that issue nothing together with a whole one.

On the Cortex-A53 a load of 128 bits is issued alone; a load of 64 bits is issued together with a vector instruction.
So the low half is loaded into the vector register, the high half into a general-purpose register, and both are joined.

Given                       Result
    w0 = load                   w0l = load_half      low half, in a vector register
    t0 = eor a0 w0              w0h = load_half      high half, in a general-purpose register
                                w0 = join w0l w0h    inserts the high half
                                t0 = eor a0 w0

A scalar pass reads 64-bit words of a column in general-purpose registers. Where a step moves a half of a loaded
register there, `split_loads` loads the word directly, as `w0i` (low) or `w0j` (high).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from bitsynth.isa.domains.forms import variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.isa.types import VecType
from bitsynth.isa.value import HALVES, WORDS, Part, Value

if TYPE_CHECKING:
    from bitsynth.kernel.program import Loop


@dataclass(frozen=True)
class HalfLoads:
    """The instruction forms that splitting needs.

    Attributes:
        load: Loads half a register.
        join: Makes a register of its low half and of the high one, which is in a general-purpose register.
        takes: By form that moves a half into a general-purpose register: which of WORDS that is.
    """

    load: str
    join: str
    takes: Mapping[str, Part]


@lru_cache
def half_loads(isa: Isa, cpu: str) -> HalfLoads | None:
    """Return the forms that load a register in halves.

    None if `cpu` issues other instructions together with a whole load, or if the set has no such forms.
    """
    if isa.table.halves is None or not isa.rules(cpu).kinds["load"].alone:
        return None
    half = isa.word.lanes // 2
    lanes = [variable(k, 0, 0) for k in range(2 * half)]
    domain = LinearDomain(1)
    kind = VecType("u", isa.word.bits, half)
    loads = (i for i in isa.instrs.values() if i.is_load and i.out == i.operands[0].type == kind)
    general = VecType("x", isa.word.bits, half)
    joins = (i for i in isa.full_forms if i.out == isa.word and [o.type for o in i.operands] == [kind, general])
    load = next((i for i in loads if i(domain, [lanes[:half]]) == lanes[:half]), None)
    join = next((i for i in joins if not i.imm and i(domain, [lanes[:half], lanes[half:]]) == lanes), None)
    return HalfLoads(load.name, join.name, dict(_takes(isa))) if load and join else None


def _takes(isa: Isa) -> Iterator[tuple[str, Part]]:
    """Yield the forms that move a half of a register into a general-purpose register, with which of WORDS."""
    domain, size = LinearDomain(1), isa.word.lanes
    lanes = [variable(k, 0, 255) for k in range(size)]
    halves = lanes[: size // 2], lanes[size // 2 :]
    words = {part: domain.join(half, 8) for part, half in zip(WORDS, halves, strict=True)}
    for form in isa.instrs.values():
        if form.out.in_general and form.on_registers and [o.type for o in form.operands] == [isa.word]:
            result = form(domain, [lanes])
            yield from ((form.name, part) for part, word in words.items() if result == [word])


def words_of(isa: Isa, load: str) -> tuple[Part, ...]:
    """Return which WORDS of a loaded register lie in memory as they are.

    Both of a whole register; the first of half a register, which is repeated; else none.
    """
    bits = isa[load].operands[0].type.total_bits
    return WORDS if bits == isa.table.vector_bits else WORDS[:1] if 2 * bits == isa.table.vector_bits else ()


def split_loads(isa: Isa, cpu: str, flat: Loop) -> Loop:
    """Return the program with every load of a whole register split in halves; itself, if `cpu` gains nothing by it."""
    forms = half_loads(isa, cpu)
    return flat if forms is None else msgspec.structs.replace(flat, steps=tuple(_split(isa, forms, flat)))


def _split(isa: Isa, forms: HalfLoads, flat: Loop) -> Iterator[Step]:
    """Yield the instructions with split loads.

    The halves of a register are loaded before the join of the register before it: so each join can be issued together
    with the load of the next low half. A word is loaded before its first use.
    """
    whole = [s.dst for s in flat.steps if not s.args and isa[s.op].operands[0].type.total_bits == isa.table.vector_bits]
    words = _words(isa, forms, flat)
    read_whole = {a for s in flat.steps if s.dst not in words for a in s.args}
    only_words = {word.whole for word in words.values()} - read_whole
    whole = [value for value in whole if value not in only_words]
    next_load, loaded = dict(pairwise(whole)), set[Value]()
    for step in flat.steps:
        word = words.get(step.dst)
        if word and word not in loaded:
            loaded.add(word)
            yield Step(word, forms.load, ())
        if word or (not step.args and step.dst in only_words):
            continue
        if step.args or step.dst not in whole:
            yield step.replace(args=tuple(words.get(a, a) for a in step.args))
            continue
        for value in (step.dst if step.dst == whole[0] else None, next_load.get(step.dst)):
            yield from (Step(value.of_part(half), forms.load, ()) for half in HALVES if value)
        yield Step(step.dst, forms.join, tuple(step.dst.of_part(half) for half in HALVES))


def _words(isa: Isa, forms: HalfLoads, flat: Loop) -> dict[Value, Value]:
    """Return the values that are a half of a loaded register, each with the word to load instead."""
    loads = {s.dst: words_of(isa, s.op) for s in flat.steps if not s.args and s.dst.is_input}
    moved = ((s.dst, s.args[0], forms.takes[s.op]) for s in flat.steps if s.op in forms.takes)
    return {dst: register.of_part(word) for dst, register, word in moved if word in loads.get(register, ())}


def is_join(step: Step) -> bool:
    """Return whether an instruction joins the two halves of its result."""
    return tuple(a.part for a in step.args) == HALVES and all(a.whole == step.dst for a in step.args)

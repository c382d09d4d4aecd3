"""Loads of whole registers in two halves, for processors on which nothing starts beside a whole one.

The high half is loaded into an integer register, beside which any instruction on vectors starts, and then inserted.
"""

from __future__ import annotations

from collections.abc import Iterator
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


@dataclass(frozen=True)
class HalfLoads:
    """The forms that load half a register, and that make a register of two halves; C has its own text of the latter."""

    load: str
    join: str


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
    return HalfLoads(load.name, join.name) if load and join else None


def in_halves(isa: Isa, cpu: str, flat: Loop) -> Loop:
    """The program with every load of a whole register in halves, if that lets `cpu` start others beside it."""
    forms = half_loads(isa, cpu)
    return flat if forms is None else msgspec.structs.replace(flat, program=tuple(map(str, _lines(isa, forms, flat))))


def _lines(isa: Isa, forms: HalfLoads, flat: Loop) -> Iterator[Step]:
    """The lines; halves are loaded a register ahead, so that each join finds the next low half to start beside."""
    whole = [s.dst for s in flat.steps if not s.args and isa[s.op].operands[0].type.total_bits == isa.table.vector_bits]
    ahead = dict(pairwise(whole))
    for step in flat.steps:
        if step.args or step.dst not in whole:
            yield step
            continue
        for name in (step.dst if step.dst == whole[0] else "", ahead.get(step.dst, "")):
            yield from (Step(name + half, forms.load, ()) for half in HALVES if name)
        yield Step(step.dst, forms.join, tuple(step.dst + half for half in HALVES))


@lru_cache(maxsize=1 << 14)
def half_of(name: str) -> tuple[str, str]:
    """The register that a value is part of, and which of the HALVES it is, "" if all of it.

    Copies of a step have their number behind that.
    """
    value, of, copy = name.partition("_of")
    half = value[-1] if value.endswith(HALVES) else ""
    return value.removesuffix(half) + of + copy, half


def is_high(name: str) -> bool:
    """Whether a value is the high half of a register, which an integer register holds until the halves are joined."""
    return half_of(name)[1] == HALVES[1]


def is_half(name: str) -> bool:
    """Whether a value is half a register."""
    return half_of(name)[1] != ""

"""Instructions that widen lanes half by half, or add them so widened: found by what they do to unknowns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from bitsynth.errors import NoKernel
from bitsynth.isa.domains.forms import Inexact, LinearForm, add_forms, as_form, variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa
from bitsynth.isa.types import VecType


def unknowns(kind: VecType, what: str = "x") -> list[LinearForm]:
    """Return a register of `kind`, each of its lanes an unknown of its own."""
    return [variable((what, i), -1, 0) for i in range(kind.lanes)]


def gives(instr: Instr, args: Sequence[Sequence[object]], imm: int, want: Sequence[LinearForm]) -> bool:
    """Whether the instruction makes the lanes `want` of its operands, whatever these hold."""
    try:
        got = [as_form(x) for x in instr(LinearDomain(1), args, imm)]
    except Inexact:
        return False
    return [(x.const, x.atoms) for x in got] == [(x.const, x.atoms) for x in want]


@lru_cache
def widening_adds(isa: Isa, kind: VecType) -> tuple[str, str] | None:
    """Return the instructions that add the low and the high lanes of a `kind` to lanes twice as wide.

    None without such.
    """
    wide = VecType("s", 2 * kind.bits, kind.lanes // 2)
    sums, x = unknowns(wide, "c"), unknowns(kind)
    halves = x[: wide.lanes], x[wide.lanes :]
    found = []
    for half in halves:
        want = [add_forms(c, y) for c, y in zip(sums, half, strict=True)]
        fit = (i for i in isa.full_forms if [o.type.bits for o in i.operands] == [wide.bits, kind.bits] and not i.imm)
        found.append(next((i.name for i in fit if i.operands[1].type == kind and gives(i, [sums, x], 0, want)), None))
    low, high = found
    return (low, high) if low and high else None


@lru_cache
def widenings(isa: Isa, kind: VecType) -> tuple[tuple[tuple[str, int], ...], ...]:
    """Return the instructions, with immediates, that widen the low and the high lanes of a register of `kind`."""
    half = kind.lanes // 2
    x = unknowns(kind)
    out = [_widening(isa, kind, x, x[h * half : (h + 1) * half]) for h in range(2)]
    return tuple(out)


def _widening(
    isa: Isa, kind: VecType, x: Sequence[LinearForm], want: Sequence[LinearForm]
) -> tuple[tuple[str, int], ...]:
    """One instruction on the whole register, or one that takes a half of it and one on that."""
    part = VecType("s", kind.bits, kind.lanes // 2)
    unary = [i for i in isa.full_forms if len(i.operands) == 1 and not i.imm and i.out.bits == 2 * kind.bits]
    for instr in unary:
        if instr.operands[0].type == kind and gives(instr, [x], 0, want):
            return ((instr.name, 0),)
    for instr in unary:
        if instr.operands[0].type == part and gives(instr, [unknowns(part)], 0, unknowns(part)):
            for cut, imm in _halvings(isa, kind, part):
                if list(want) == list(x[imm * part.lanes : (imm + 1) * part.lanes]):
                    return ((cut, imm), (instr.name, 0))
    raise NoKernel(f"{isa.name} has no instruction that widens signed lanes of {kind}")


@lru_cache
def _halvings(isa: Isa, kind: VecType, part: VecType) -> tuple[tuple[str, int], ...]:
    """Return instructions with immediates that take the low and the high half of a register of `kind`."""
    x = unknowns(kind)
    return tuple(
        (i.name, h)
        for i in isa.instrs.values()
        if i.imm and [o.type for o in i.operands] == [kind] and i.out == part
        for h in range(2)
        if h in i.imms and gives(i, [x], h, x[h * part.lanes : (h + 1) * part.lanes])
    )

"""Roles in elementwise programs, and the instruction forms that fill them.

A role is an expression in the lane language for operands a, b, c of given types; in it `bits` and `lanes` describe a,
and `out` is the bits of the result's lanes. A form fills the role if it gives the same on samples, with its operands in
some order. That is no proof: the program that is built of the forms is proved as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import Any

import numpy as np

from bitsynth.errors import NoKernel
from bitsynth.isa import lane
from bitsynth.isa.bits import Bits, trunc
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa
from bitsynth.isa.trace import Register
from bitsynth.isa.types import VecType

GREATER = "sext(bit(slt(b[i], a[i])), bits)"
"""All ones where a is greater."""
GREATER_MASK = "join(bit(slt(b[j], a[j])) for j in range(lanes))"
"""One bit a lane, set where a is greater."""
SIGNS = "join(trunc(a[j] >> bits - 1, 1) for j in range(lanes))"
"""The signs of the lanes, one bit each."""
ADD, SUB, AND, XOR = "a[i] + b[i]", "a[i] - b[i]", "a[i] & b[i]", "a[i] ^ b[i]"
OR, MIN, MAX = "a[i] | b[i]", "ite(slt(a[i], b[i]), a[i], b[i])", "ite(slt(a[i], b[i]), b[i], a[i])"
KEPT = "sext(trunc(a[0] >> i, 1), out) & b[i]"
"""Lanes of b where the bit of a mask a is set."""
ADD_KEPT = "a[i] + (sext(trunc(b[0] >> i, 1), out) & c[i])"
CHOSEN = "ite(eq(trunc(a[0] >> i, 1), 1), c[i], b[i])"
"""Lanes of c where the bit of a mask a is set, of b elsewhere."""
CHOSEN_BYTES = "ite(ult(a[i], 128), b[i], c[i])"
"""Bytes of c where the sign of a is set, of b elsewhere."""
CHOSEN_BITS = "(a[i] & c[i]) | (~a[i] & b[i])"
SHIFTED_IN = "(b[i] << 1) | (a[i] & 1)"
TESTED = "join(~bit(eq(a[j] & b[j], 0)) for j in range(lanes))"
"""One bit a lane, set where a and b have a bit in common."""
LOW_HALF = "trunc(a[i], bits // 2)"
JOINED = "join(concat(a, b))"
LOADED, REPEATED = "a[i]", "a[0]"
SHIFT_LEFT, SHIFT_RIGHT = "a[i] << {}", "a[i] >> {}"
PERMUTED = "lookup(a, b[i] & lanes - 1)"
"""Lane b of a, modulo their number."""

_SAMPLES = 24


@dataclass(frozen=True)
class Filled:
    """A form with an immediate; operand k of the form is operand places[k] of the role."""

    op: str
    imm: int
    places: tuple[int, ...]


def role(isa: Isa, meaning: str, out: VecType, *operands: VecType, memory: bool = False, store: bool = False) -> Filled:
    """Return the form that fills the role, the cheapest for the set's first processor; NoKernel if there is none."""
    forms = _find_forms(isa, meaning, out, operands, memory, store)
    if not forms:
        raise NoKernel(f"{isa.name} has no form from {', '.join(map(str, operands))} to {out} for {meaning!r}")
    return _cheapest(isa, forms)


def _cheapest(isa: Isa, forms: Sequence[Filled]) -> Filled:
    cpu = next(iter(isa.table.cpu))
    return min(forms, key=lambda f: 1 / isa[f.op].cost[cpu].per_cycle)


@lru_cache(maxsize=4096)
def _find_forms(
    isa: Isa, meaning: str, out: VecType, operands: tuple[VecType, ...], memory: bool, store: bool
) -> tuple[Filled, ...]:
    want = _sample_meaning(meaning, out, operands)
    return tuple(
        Filled(instr.name, imm, places)
        for instr in isa.instrs.values()
        if instr.reads_memory == memory and instr.store == store and _same(instr.out, out)
        if len(instr.operands) == len(operands)
        for places in permutations(range(len(operands)))
        if all(_same(o.type, operands[k]) for o, k in zip(instr.operands, places, strict=True))
        for imm in _immediates(instr)
        if _does(instr, imm, places, operands, want)
    )


def _immediates(instr: Instr) -> Sequence[int]:
    return instr.imms if len(instr.imms) <= 64 else instr.try_imm


def _same(one: VecType, other: VecType) -> bool:
    """Return whether two types have the same bits; the sign and, but for results, the lanes are a view."""
    return one.total_bits == other.total_bits and (one.bits, one.lanes) == (other.bits, other.lanes)


def _sample_meaning(meaning: str, out: VecType, operands: Sequence[VecType]) -> Any:
    names = ["a", "b", "c", "d"][: len(operands)]
    numbers = {"bits": operands[0].bits, "lanes": operands[0].lanes, "out": out.bits}
    run = lane.compile_lanes(lane.parse("role", meaning, [*names, *numbers]), out.lanes, [*names, *numbers])
    domain = ConcreteDomain()
    values = [tuple(Bits(domain, t.bits, v) for v in _lanes(k, t)) for k, t in enumerate(operands)]
    with np.errstate(over="ignore"):
        lanes = run(*values, *numbers.values())
        return _stack_lanes([(x if x.w == out.bits else trunc(x, out.bits)).v for x in lanes])


def _does(instr: Instr, imm: int, places: Sequence[int], operands: Sequence[VecType], want: Any) -> bool:
    args = [_lanes(k, operands[k]) for k in places]
    with np.errstate(over="ignore"):
        return bool((_stack_lanes(instr(ConcreteDomain(), args, imm)) == want).all())


def _stack_lanes(lanes: Sequence[Any]) -> Any:
    return np.stack([np.broadcast_to(np.asarray(x, np.uint64), _SAMPLES) for x in lanes])


@lru_cache(maxsize=256)
def _lanes(number: int, kind: VecType) -> list[Any]:
    """Return samples of operand `number`: small numbers of either sign, then any."""
    rng = np.random.default_rng(number)
    mask = np.uint64((1 << kind.bits) - 1)
    small = rng.integers(-3, 4, (kind.lanes, _SAMPLES // 2)).astype(np.int64).view(np.uint64)
    wide = rng.integers(0, 1 << 64, (kind.lanes, _SAMPLES - _SAMPLES // 2), dtype=np.uint64)
    return list(np.concatenate([small, wide], axis=1) & mask)


@lru_cache(maxsize=256)
def narrowing(isa: Isa, kind: VecType, *, fits: bool, signed: bool = True) -> Filled:
    """Return the form that makes one register of two of `kind`, signed lanes half as wide in any order.

    What does not fit is saturated, to lanes without signs if not `signed`; if all `fits`, any form will do that keeps
    what fits.
    """
    out = VecType(kind.sign, kind.bits // 2, kind.lanes * 2)
    given = [
        [_clamp_lane(x, kind.bits, out.bits, signed=signed) if fits else x for x in _lanes(k, kind)] for k in (0, 1)
    ]
    want = np.sort(
        np.stack(
            [_clamp_lane(x, kind.bits, out.bits, signed=signed) & _mask(out.bits) for x in (*given[0], *given[1])]
        ),
        axis=0,
    )
    forms = [
        Filled(instr.name, 0, (0, 1))
        for instr in isa.instrs.values()
        if instr.on_registers and not instr.imm and _same(instr.out, out) and len(instr.operands) == 2
        if all(o.type.total_bits == kind.total_bits for o in instr.operands)
        if (np.sort(ran(instr, kind, given), axis=0) == want).all()
    ]
    if not forms:
        raise NoKernel(f"{isa.name} has no form that narrows two registers of {kind}")
    return _cheapest(isa, forms)


def ran(instr: Instr, kind: VecType, given: Sequence[Iterable[Any]]) -> Any:
    """Return the lanes that a form gives for registers of `kind`, which it may view otherwise."""
    domain = ConcreteDomain()
    views = [Register(kind, tuple(x)).view_as(domain, o.type) for x, o in zip(given, instr.operands, strict=True)]
    with np.errstate(over="ignore"):
        return _stack_lanes(instr(domain, [v.lanes for v in views]))


def _mask(bits: int) -> np.uint64:
    return np.uint64((1 << bits) - 1)


def _clamp_lane(lane: Any, bits: int, to: int, *, signed: bool) -> Any:
    """Return a signed lane as the nearest of `to` bits, as wide as before."""
    low, high = (-(1 << to - 1), (1 << to - 1) - 1) if signed else (0, (1 << to) - 1)
    x = lane.astype(np.int64)
    x = np.where(x >> (bits - 1) & 1, x - (1 << bits), x)
    return x.clip(low, high).astype(np.uint64) & _mask(bits)

"""Payloads of the linear domain: integer combinations of one-bit atoms.

A payload is one of
- an int: a constant;
- a `Field`: some bits are one boolean function `tt` of the planes at consecutive
  positions, the others are constants. Gates act on it, counting turns it into
- a `Form`: const + sum of coefficient * atom, equal to the lane modulo 2**w, with an
  interval [lo, hi] that holds for the integer value of the combination.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

Atoms = Mapping[Hashable, Mapping[int, int]]


class Inexact(Exception):
    """A step leaves the linear domain, or its side condition does not hold."""


@dataclass(frozen=True, slots=True)
class Field:
    """Bit n is `tt` at (column, position + n) where `mask` has bit n, else bit n of `ones`.

    `tt` is a truth table, one bit per row (act code + wgt code << act_bits). `column`
    is None while only activations are involved: they are the same in every column.
    """

    tt: int
    column: int | None
    position: int
    mask: int
    ones: int = 0


@dataclass(frozen=True, slots=True)
class Form:
    """const + sum(coef * atom); `atoms[key][coef]` is a bit mask of positions."""

    const: int
    atoms: Atoms
    lo: int
    hi: int

    def shifted(self, delta: int) -> Form:
        return Form(self.const + delta, self.atoms, self.lo + delta, self.hi + delta)

    def scaled(self, factor: int) -> Form:
        atoms = {k: {c * factor: m for c, m in by.items()} for k, by in self.atoms.items()} if factor else {}
        low, high = sorted((self.lo * factor, self.hi * factor))
        return Form(self.const * factor, atoms, low, high)


Payload = int | Field | Form


def variable(key: Hashable, lo: int, hi: int) -> Form:
    """An opaque integer between lo and hi, such as a loop-carried accumulator lane."""
    return Form(0, {key: {1: 1}}, lo, hi)


def _merge(a: Mapping[int, int], b: Mapping[int, int]) -> dict[int, int]:
    """Add two coefficient -> positions maps; positions in both get the sum of coefficients."""
    out = dict(a)
    for coef, mask in b.items():
        for other, there in a.items():
            both = mask & there
            if both:
                mask &= ~both
                out[other] &= ~both
                out[other + coef] = out.get(other + coef, 0) | both
        out[coef] = out.get(coef, 0) | mask
    return {c: m for c, m in out.items() if c and m}


def add_forms(a: Form, b: Form) -> Form:
    """The sum of two combinations."""
    atoms = dict(a.atoms)
    for key, by in b.atoms.items():
        merged = _merge(atoms[key], by) if key in atoms else by
        if merged:
            atoms[key] = merged
        else:
            del atoms[key]
    return Form(a.const + b.const, atoms, a.lo + b.lo, a.hi + b.hi)


def as_form(x: Payload) -> Form:
    """Any payload as a combination."""
    if isinstance(x, Form):
        return x
    if isinstance(x, int):
        return Form(x, {}, x, x)
    bits = [n for n in range(x.mask.bit_length()) if x.mask >> n & 1]
    atoms: dict[Hashable, Mapping[int, int]] = {(x.tt, x.column): {1 << n: 1 << (x.position + n) for n in bits}}
    return Form(x.ones, atoms if bits else {}, x.ones, x.ones + x.mask)


def tightened(x: Form, rows: int) -> Form:
    """The same combination with the exact range of its bits, where they are of one column.

    Bits at one position are functions of the same codes, so their greatest joint sum may
    be less than the sum of their greatest values.
    """
    bits = [(k[0], c, m) for k, by in x.atoms.items() if isinstance(k, tuple) and len(k) == 2 for c, m in by.items()]
    columns = {k[1] for k in x.atoms if isinstance(k, tuple)} - {None}
    if len(columns) > 1 or any(not (isinstance(k, tuple) and len(k) == 2 and isinstance(k[0], int)) for k in x.atoms):
        return x
    lo = hi = x.const
    positions = range(max((m.bit_length() for _, _, m in bits), default=0))
    for here, times in Counter(tuple((tt, c) for tt, c, m in bits if m >> p & 1) for p in positions).items():
        sums = [sum(c for tt, c in here if tt >> row & 1) for row in range(rows)]
        lo, hi = lo + times * min(sums), hi + times * max(sums)
    return Form(x.const, x.atoms, max(lo, x.lo), min(hi, x.hi))


def interval(x: Payload) -> tuple[int, int]:
    """The least and the greatest value of a payload, as far as is known."""
    form = x if isinstance(x, Form) else as_form(x)
    return form.lo, form.hi


def require(holds: bool, why: str) -> None:
    """Raise Inexact, saying why, unless a side condition holds."""
    if not holds:
        raise Inexact(why)


def split_form(x: Form, to: int) -> tuple[Form, Form]:
    """Split into low + 2**to * high, where low fits `to` bits."""
    unit = 1 << to
    high = {k: {c // unit: m for c, m in by.items() if c % unit == 0} for k, by in x.atoms.items()}
    low = {k: {c: m for c, m in by.items() if c % unit} for k, by in x.atoms.items()}
    if any(low.values()) and any(high.values()):
        raise Inexact("a lane that mixes two sums is split")
    if any(high.values()):
        require(x.const % unit == 0, "a lane that mixes a constant and a sum is split")
        zero = Form(0, {}, 0, 0)
        return zero, Form(x.const // unit, {k: v for k, v in high.items() if v}, x.lo // unit, x.hi // unit)
    require(0 <= x.lo and x.hi < unit, f"a lane in [{x.lo}, {x.hi}] is split at bit {to}")
    return x, Form(0, {}, 0, 0)

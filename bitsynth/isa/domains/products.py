"""Products of sums of atoms: bits of one position meet in a gate, those of two cross; a bit selects an unknown.

Unknowns multiply.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import cast

from bitsynth.isa.domains.forms import BitField, LinearForm, WideTable, add_atoms, is_crossed, is_plane, require


def product(a: LinearForm, b: LinearForm) -> LinearForm:
    """Return the product of two sums, atom by atom."""
    atoms: dict[Hashable, Mapping[int, int]] = {}
    for x, y in ((a, b), (b, a)):
        if y.const:
            add_atoms(atoms, x.scaled(y.const).atoms)
    others = _terms(b)
    for left, (coef, mask) in _terms(a):
        for right, (times, where) in others:
            met = _meet(left, mask, right, where)
            if met is not None:
                add_atoms(atoms, {met[0]: {coef * times: met[1]}})
    corners = [x * y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    return LinearForm(a.const * b.const, atoms, min(corners), max(corners))


def _terms(x: LinearForm) -> list[tuple[Hashable, tuple[int, int]]]:
    return [(key, term) for key, by in x.atoms.items() for term in by.items()]


def _meet(a: Hashable, mask: int, b: Hashable, where: int) -> tuple[Hashable, int] | None:
    """Return the atom that is the product of two, and its positions; None if it is always 0."""
    if not is_plane(a) and not is_plane(b):
        return ("product", a, b), 1
    if not is_plane(a):
        a, mask, b, where = b, where, a, mask
    left, here = cast("tuple[int, int | None]", a)
    require(mask & (mask - 1) == 0, "bits of several positions of K are multiplied")
    if not is_plane(b):
        return ("gated", left, here, mask.bit_length() - 1, b), 1
    right, there = b
    require(None in (here, there) or here == there, "two columns are multiplied")
    require(where & (where - 1) == 0, "bits of several positions of K are multiplied")
    if mask != where:
        return _cross_product((left, here, mask.bit_length() - 1), (right, there, where.bit_length() - 1)), 1
    both = _both(left, right) if isinstance(left, WideTable) else left & right
    return ((both, there if here is None else here), mask) if both else None


def _cross_product(*bits: tuple[int, int | None, int]) -> Hashable:
    """Return the product of bits (truth table, column, position) of two positions of K, in a fixed order."""
    return "crossed", *sorted(bits, key=lambda bit: bit[2])


@lru_cache(maxsize=4096)
def _both(left: int, right: int) -> WideTable:
    return WideTable(left & right)


def gated(x: LinearForm, index: BitField, n: int) -> LinearForm:
    """Return `x` if bit n of `index` is set, else 0."""
    require(x.const == 0, "a constant is selected")
    bit = LinearForm(0, {(index.tt, index.column): {1: 1 << (index.position + n)}}, 0, 1)
    selected = product(x, bit)
    require(not any(map(is_crossed, selected.atoms)), "a bit selects what is of different positions of K")
    return selected

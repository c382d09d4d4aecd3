"""Sums of atoms in the linear domain: their ranges, their products, and tables of sums.

Ranges are exact for bits of one column, and interval arithmetic for unknowns. In a product, bits of one position meet
in a gate, and bits of two positions cross; a bit selects an unknown; unknowns multiply. By the lookup lemma, a table
whose entries are sums over the bits of an index gives the sum that those bits select.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from bitsynth.isa.domains.forms import (
    BitField,
    Inexact,
    LinearForm,
    Payload,
    TableEntry,
    WideTable,
    add_atoms,
    as_form,
    is_crossed,
    is_plane,
    require,
    total,
)

Ranges = Mapping[Hashable, tuple[int, int]]


def tighten(x: LinearForm, rows: int) -> LinearForm:
    """Return the same combination with the exact range of its bits, if they are of one column.

    Bits at one position are functions of the same codes, so their greatest joint sum may
    be less than the sum of their greatest values.
    """
    planes = [key for key in x.atoms if is_plane(key)]
    if len(planes) < len(x.atoms) or len({column for _, column in planes} - {None}) > 1:
        return x
    bits = [(key[0], c, m) for key in planes for c, m in x.atoms[key].items()]
    lo = hi = x.const
    positions = range(max((m.bit_length() for _, _, m in bits), default=0))
    for here, times in Counter(tuple((tt, c) for tt, c, m in bits if m >> p & 1) for p in positions).items():
        least, most = _extremes(here, rows)
        lo, hi = lo + times * least, hi + times * most
    return LinearForm(x.const, x.atoms, max(lo, x.lo), min(hi, x.hi))


@lru_cache(maxsize=1024)
def _extremes(bits: tuple[tuple[int, int], ...], rows: int) -> tuple[int, int]:
    """Return the least and the greatest sum over rows of truth tables, each times its coefficient."""
    sums = rows_of(bits, rows)
    return int(sums.min()), int(sums.max())


def rows_of(bits: Iterable[tuple[int, int]], rows: int) -> NDArray[Any]:
    """Return the sum of truth tables on each row, each times its coefficient; as Python's integers beyond int64."""
    bits = tuple(bits)
    dtype = np.int64 if sum(abs(times) for _, times in bits) < 1 << 63 else object
    out = np.zeros(rows, dtype)
    for table, times in bits:
        out += _unpack_table(table, rows).astype(dtype) * times
    return out


@lru_cache(maxsize=1024)
def _unpack_table(table: int, rows: int) -> NDArray[np.uint8]:
    """Return the rows of a truth table."""
    packed = np.frombuffer(table.to_bytes(max(1, rows // 8), "little"), np.uint8)
    return np.unpackbits(packed, count=rows, bitorder="little")


def find_range(x: LinearForm, ranges: Ranges) -> LinearForm:
    """Return the same combination of unknowns with the range that follows from theirs."""
    ends = [sorted((c * ranges[key][0], c * ranges[key][1])) for key, by in x.atoms.items() for c in by]
    return LinearForm(x.const, x.atoms, x.const + sum(lo for lo, _ in ends), x.const + sum(hi for _, hi in ends))


def interval(x: Payload) -> tuple[int, int]:
    """Return the least and the greatest value of a payload, as far as is known."""
    form = x if isinstance(x, LinearForm) else as_form(x)
    return form.lo, form.hi


def product(a: LinearForm, b: LinearForm) -> LinearForm:
    """Return the product of two sums, atom by atom."""
    atoms: dict[Hashable, Mapping[int, int]] = {}
    for x, y in ((a, b), (b, a)):
        if y.const:
            add_atoms(atoms, x.scale(y.const).atoms)
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


def gate(x: LinearForm, index: BitField, n: int) -> LinearForm:
    """Return `x` if bit n of `index` is set, else 0."""
    require(x.const == 0, "a constant is selected")
    bit = LinearForm(0, {(index.tt, index.column): {1: 1 << (index.position + n)}}, 0, 1)
    selected = product(x, bit)
    require(not any(map(is_crossed, selected.atoms)), "a bit selects what is of different positions of K")
    return selected


def select_parts(table: Sequence[Payload], parts: tuple[LinearForm, ...], index: BitField) -> LinearForm:
    """Return the lookup lemma for a table of partial sums: the parts the index's bits select."""
    for e, entry in enumerate(table):
        sums = isinstance(entry, TableEntry) and entry.chosen == e and (entry.parts is parts or entry.parts == parts)
        if not sums:
            raise Inexact(f"entry {e} of the table is not the sum its number selects")
    fixed = [part for n, part in enumerate(parts) if index.ones >> n & 1]
    return total([*fixed, *(gate(part, index, n) for n, part in enumerate(parts) if index.mask >> n & 1)])


def affine_lookup(table: Sequence[int], index: BitField) -> LinearForm:
    """Return the lookup lemma: the entry is table[ones] plus one fixed amount per set bit."""
    base, weights, lo, hi = _weights(tuple(table), index.mask, index.ones)
    by = {coef: index.at(bits) for coef, bits in weights}
    return LinearForm(base, {(index.tt, index.column): by} if by else {}, lo, hi)


@lru_cache(maxsize=256)
def _weights(table: tuple[int, ...], mask: int, ones: int) -> tuple[int, tuple[tuple[int, int], ...], int, int]:
    """Return the entry without free bits, pairs (amount, bits that add it), and the least and greatest entry."""
    base = table[ones]
    bits = [n for n in range(mask.bit_length()) if mask >> n & 1]
    weight = {n: table[ones | 1 << n] - base for n in bits}
    subset = mask
    while subset:
        want = base + sum(weight[n] for n in bits if subset >> n & 1)
        require(table[ones | subset] == want, "the table is not a sum over the index's bits")
        subset = (subset - 1) & mask
    by: dict[int, int] = {}
    for n, amount in weight.items():
        if amount:
            by[amount] = by.get(amount, 0) | 1 << n
    low = base + sum(c for c in weight.values() if c < 0)
    return base, tuple(by.items()), low, base + sum(c for c in weight.values() if c > 0)

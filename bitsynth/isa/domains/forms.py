"""Payloads of the linear domain: integer combinations of one-bit atoms.

A payload is one of
- an int: a constant;
- a `BitField`: some bits are one boolean function `tt` of the planes at consecutive
  positions, the others are constants. Gates act on it, counting turns it into
- a `LinearForm`: const + sum of coefficient * atom, equal to the lane modulo 2**w, with an
  interval [lo, hi] that holds for the integer value of the combination;
- a `Concat`: narrower payloads side by side, lowest first, as in a lane seen wider than made;
- a `TableEntry`: the sum of those of a table's parts that its index selects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray

Atoms = Mapping[Hashable, Mapping[int, int]]
Ranges = Mapping[Hashable, tuple[int, int]]


class Inexact(Exception):
    """A step leaves the linear domain, or its side condition does not hold."""


class WideTable(int):
    """A truth table of many rows, hashed once: in keys of atoms it is looked up all the time."""

    _hash: int

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            self._hash = int.__hash__(self)
            return self._hash


@dataclass(frozen=True, slots=True)
class BitField:
    """Bit n is `tt` at (column, position + n) if `mask` has bit n, else bit n of `ones`.

    `tt` is a truth table, one bit per row (act code + wgt code << act_bits). `column`
    is None while only activations are involved: they are the same in every column.
    """

    tt: int
    column: int | None
    position: int
    mask: int
    ones: int = 0


@dataclass(slots=True)
class LinearForm:
    """const + sum(coef * atom); `atoms[key][coef]` is a bit mask of positions, each under one coefficient.

    Not frozen, as `Bits`: sums make one for every term.
    """

    const: int
    atoms: Atoms
    lo: int
    hi: int

    def shifted(self, delta: int) -> LinearForm:
        """The form plus `delta`."""
        return LinearForm(self.const + delta, self.atoms, self.lo + delta, self.hi + delta)

    def scaled(self, factor: int) -> LinearForm:
        """The form times `factor`."""
        atoms = {k: {c * factor: m for c, m in by.items()} for k, by in self.atoms.items()} if factor else {}
        low, high = sorted((self.lo * factor, self.hi * factor))
        return LinearForm(self.const * factor, atoms, low, high)


@dataclass(frozen=True, slots=True)
class Concat:
    """(payload, bits) pairs that fill a lane from its lowest bit up to its highest."""

    pieces: tuple[tuple[Payload, int], ...]


@dataclass(frozen=True, slots=True)
class TableEntry:
    """The sum of parts[n] over the set bits n of `chosen`; parts[n] is what bit n of an index adds."""

    parts: tuple[LinearForm, ...]
    chosen: int


Payload = int | BitField | LinearForm | Concat | TableEntry


def variable(key: Hashable, lo: int, hi: int) -> LinearForm:
    """An opaque integer between lo and hi, such as a loop-carried accumulator lane."""
    return LinearForm(0, {key: {1: 1}}, lo, hi)


def _merge(a: Mapping[int, int], b: Mapping[int, int]) -> dict[int, int]:
    """Add two coefficient -> positions maps; positions in both get the sum of coefficients."""
    out = dict(a)
    for coef, mask in b.items():
        alone = mask
        for other, there in a.items():
            both = alone & there
            if both:
                alone &= ~both
                out[other] &= ~both
                out[other + coef] = out.get(other + coef, 0) | both
        out[coef] = out.get(coef, 0) | alone
    return {c: m for c, m in out.items() if c and m}


def add_forms(a: LinearForm, b: LinearForm) -> LinearForm:
    """The sum of two combinations."""
    atoms = dict(a.atoms)
    _add_atoms(atoms, b.atoms)
    return LinearForm(a.const + b.const, atoms, a.lo + b.lo, a.hi + b.hi)


def _add_atoms(atoms: dict[Hashable, Mapping[int, int]], more: Atoms) -> None:
    """Add `more` to `atoms`, in place."""
    for key, by in more.items():
        have = atoms.get(key)
        merged = by if have is None else _merge(have, by)
        if merged:
            atoms[key] = merged
        else:
            del atoms[key]


def as_form(x: Payload) -> LinearForm:
    """Any payload as a combination; Inexact if a piece may leave its place."""
    if isinstance(x, LinearForm):
        return x
    if isinstance(x, int):
        return LinearForm(x, {}, x, x)
    if isinstance(x, TableEntry):
        return total(part for n, part in enumerate(x.parts) if x.chosen >> n & 1)
    if isinstance(x, Concat):
        return _form_of_pieces(x)
    bits = [n for n in range(x.mask.bit_length()) if x.mask >> n & 1]
    atoms: dict[Hashable, Mapping[int, int]] = {(x.tt, x.column): {1 << n: 1 << (x.position + n) for n in bits}}
    return LinearForm(x.ones, atoms if bits else {}, x.ones, x.ones + x.mask)


def _form_of_pieces(x: Concat) -> LinearForm:
    out, offset = LinearForm(0, {}, 0, 0), 0
    for k, (piece, bits) in enumerate(x.pieces):
        form = as_form(piece)
        if k + 1 < len(x.pieces):
            require(0 <= form.lo and form.hi < 1 << bits, f"a {bits}-bit piece may hold [{form.lo}, {form.hi}]")
        out, offset = add_forms(out, form.scaled(1 << offset)), offset + bits
    return out


def total(forms: Iterable[LinearForm]) -> LinearForm:
    """The sum of combinations."""
    out, atoms = LinearForm(0, {}, 0, 0), dict[Hashable, Mapping[int, int]]()
    for x in forms:
        _add_atoms(atoms, x.atoms)
        out = LinearForm(out.const + x.const, atoms, out.lo + x.lo, out.hi + x.hi)
    return out


def side_by_side(pieces: Iterable[tuple[Payload, int]]) -> Payload:
    """The lane of these pieces in its plainest form: planes of consecutive positions are one."""
    merged: list[tuple[Payload, int]] = []
    for piece, bits in _flat(pieces):
        last = _joined(*merged[-1], piece, bits) if merged else None
        if last is None:
            merged.append((piece, bits))
        else:
            merged[-1] = last
    return merged[0][0] if len(merged) == 1 else Concat(tuple(merged))


def _flat(pieces: Iterable[tuple[Payload, int]]) -> Iterator[tuple[Payload, int]]:
    """The pieces of pieces; they must have as many bits in all as were said, or the next piece would lie elsewhere."""
    for piece, bits in pieces:
        if isinstance(piece, Concat):
            require(sum(b for _, b in piece.pieces) == bits, "a lane that is not filled is put beside another")
            yield from piece.pieces
        else:
            yield piece, bits


def _joined(low: Payload, bits: int, high: Payload, more: int) -> tuple[Payload, int] | None:
    """Two neighbours as one piece; None if no single payload can say both."""
    if isinstance(high, int) and (isinstance(low, int) or high == 0):
        if isinstance(low, int):
            return low | high << bits, bits + more
        fits = isinstance(low, BitField) or (isinstance(low, LinearForm) and 0 <= low.lo and low.hi < 1 << bits)
        return (low, bits + more) if fits else None
    if not isinstance(high, BitField):
        return None
    if low == 0:
        return BitField(high.tt, high.column, high.position - bits, high.mask << bits, high.ones << bits), bits + more
    if isinstance(low, BitField) and (low.tt, low.column, low.position + bits) == (high.tt, high.column, high.position):
        mask, ones = low.mask | high.mask << bits, low.ones | high.ones << bits
        return BitField(low.tt, low.column, low.position, mask, ones), bits + more
    return None


def cut(x: Payload, first: int, last: int) -> Payload:
    """Bits first .. last - 1 of a lane; Inexact if a sum would be cut in two."""
    if isinstance(x, Concat):
        out: list[tuple[Payload, int]] = []
        offset = 0
        for piece, bits in x.pieces:
            low, high = max(first - offset, 0), min(last - offset, bits)
            if low < high:
                out.append((piece if high - low == bits else cut(piece, low, high), high - low))
            offset += bits
        return side_by_side(out)
    every = (1 << (last - first)) - 1
    if isinstance(x, int):
        return x >> first & every
    if isinstance(x, BitField):
        mask, ones = x.mask >> first & every, x.ones >> first & every
        return BitField(x.tt, x.column, x.position + first, mask, ones) if mask else ones
    if first == 0 and isinstance(x, TableEntry):
        return x
    form = as_form(x)
    if first == 0:
        return form
    require(0 <= form.lo and form.hi < 1 << first, "a sum is cut in two")
    return 0


def product(a: LinearForm, b: LinearForm) -> LinearForm:
    """The product of two sums: bits of one position meet in a gate, a bit selects an unknown, unknowns multiply."""
    terms = [LinearForm(a.const * b.const, {}, 0, 0)]
    terms += [LinearForm(0, x.atoms, 0, 0).scaled(y.const) for x, y in ((a, b), (b, a)) if y.const]
    for left, (coef, mask) in _terms(a):
        for right, (times, where) in _terms(b):
            met = _meet(left, mask, right, where)
            terms.append(LinearForm(0, {} if met is None else {met[0]: {coef * times: met[1]}}, 0, 0))
    corners = [x * y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    whole = total(terms)
    return LinearForm(whole.const, whole.atoms, min(corners), max(corners))


def _terms(x: LinearForm) -> list[tuple[Hashable, tuple[int, int]]]:
    return [(key, term) for key, by in x.atoms.items() for term in by.items()]


def is_plane(key: Hashable) -> TypeGuard[tuple[int, int | None]]:
    """Whether an atom is a bit of the planes, (truth table, column), and not an unknown."""
    return isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], int)


def _meet(a: Hashable, mask: int, b: Hashable, where: int) -> tuple[Hashable, int] | None:
    """The atom that is the product of two, and its positions; None if it is always 0."""
    if not is_plane(a) and not is_plane(b):
        return ("product", a, b), 1
    if not is_plane(a):
        a, mask, b, where = b, where, a, mask
    left, here = cast("tuple[int, int | None]", a)
    require(mask & (mask - 1) == 0, "bits of several positions of K are multiplied")
    if not is_plane(b):
        return ("gated", left, here, mask.bit_length() - 1, b), 1
    right, there = b
    require(mask == where, "bits of different positions of K are multiplied")
    require(None in (here, there) or here == there, "two columns are multiplied")
    both = _both(left, right) if isinstance(left, WideTable) else left & right
    return ((both, there if here is None else here), mask) if both else None


@lru_cache(maxsize=4096)
def _both(left: int, right: int) -> WideTable:
    return WideTable(left & right)


def gated(x: LinearForm, index: BitField, n: int) -> LinearForm:
    """`x` if bit n of `index` is set, else 0."""
    require(x.const == 0, "a constant is selected")
    bit = LinearForm(0, {(index.tt, index.column): {1: 1 << (index.position + n)}}, 0, 1)
    return product(x, bit)


def tightened(x: LinearForm, rows: int) -> LinearForm:
    """The same combination with the exact range of its bits, if they are of one column.

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
    """The least and the greatest sum over rows of truth tables, each counted so many times."""
    sums = rows_of(bits, rows)
    return int(sums.min()), int(sums.max())


def rows_of(bits: Iterable[tuple[int, int]], rows: int) -> NDArray[Any]:
    """The sum of truth tables on each row, each counted so many times: Python's integers if int64 may not hold them."""
    bits = tuple(bits)
    dtype = np.int64 if sum(abs(times) for _, times in bits) < 1 << 63 else object
    out = np.zeros(rows, dtype)
    for table, times in bits:
        out += _unpacked(table, rows).astype(dtype) * times
    return out


@lru_cache(maxsize=1024)
def _unpacked(table: int, rows: int) -> NDArray[np.uint8]:
    """The rows of a truth table."""
    packed = np.frombuffer(table.to_bytes(max(1, rows // 8), "little"), np.uint8)
    return np.unpackbits(packed, count=rows, bitorder="little")


def ranged(x: LinearForm, ranges: Ranges) -> LinearForm:
    """The same combination of unknowns with the range that follows from theirs."""
    ends = [sorted((c * ranges[key][0], c * ranges[key][1])) for key, by in x.atoms.items() for c in by]
    return LinearForm(x.const, x.atoms, x.const + sum(lo for lo, _ in ends), x.const + sum(hi for _, hi in ends))


def interval(x: Payload) -> tuple[int, int]:
    """The least and the greatest value of a payload, as far as is known."""
    form = x if isinstance(x, LinearForm) else as_form(x)
    return form.lo, form.hi


def require(holds: bool, why: str) -> None:
    """Inexact, with the reason `why`, unless the side condition `holds`."""
    if not holds:
        raise Inexact(why)

"""Payloads of the linear domain: integer combinations of one-bit atoms.

An atom is one unknown bit, such as a bit of a code, or an opaque integer. A payload is one of
- an int: a constant;
- a `BitField`: some bits are one boolean function `tt` of the codes' planes at consecutive positions, the others are
  constants. Gates act on bit fields;
- a `LinearForm`: const + sum of coefficient * atom, equal to the lane modulo 2**w, with an interval [lo, hi] that holds
  for the integer value of the combination. Counting the bits of a bit field gives one;
- a `Concat`: narrower payloads side by side, lowest first. A lane becomes one when it is read as part of a wider lane;
- a `TableEntry`: the sum of the table's parts that its index selects.

For example a byte of 8 weight bits xor 8 activation bits is a `BitField`; its popcount is a `LinearForm` of 8 atoms
with the interval [0, 8].
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

Atoms = Mapping[Hashable, Mapping[int, int]]


class Inexact(Exception):
    """A step leaves the linear domain, or its side condition does not hold."""


class WideTable(int):
    """A truth table of many rows, whose hash is computed once, because keys of atoms are looked up often."""

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

    def at(self, bits: int) -> int:
        """Return the positions of K that the set bits of `bits` belong to, as a bit mask."""
        return bits << self.position if self.position >= 0 else bits >> -self.position


@dataclass(slots=True)
class LinearForm:
    """const + sum(coef * atom); `atoms[key][coef]` is a bit mask of positions, each under one coefficient.

    It is not frozen, because sums create one for every term, and frozen instances take longer to create.
    """

    const: int
    atoms: Atoms
    lo: int
    hi: int

    def shift(self, delta: int) -> LinearForm:
        """Return the form plus `delta`."""
        return LinearForm(self.const + delta, self.atoms, self.lo + delta, self.hi + delta)

    def scale(self, factor: int) -> LinearForm:
        """Return the form times `factor`."""
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
    """Return an opaque integer between lo and hi, such as a loop-carried accumulator lane."""
    return LinearForm(0, {key: {1: 1}}, lo, hi)


def _merge(a: Mapping[int, int], b: Mapping[int, int]) -> dict[int, int]:
    """Return the sum of two maps from coefficients to positions; positions in both get the sum of coefficients."""
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
    """Return the sum of two combinations."""
    atoms = dict(a.atoms)
    add_atoms(atoms, b.atoms)
    return LinearForm(a.const + b.const, atoms, a.lo + b.lo, a.hi + b.hi)


def add_atoms(atoms: dict[Hashable, Mapping[int, int]], more: Atoms) -> None:
    """Add `more` to `atoms`, in place."""
    for key, by in more.items():
        have = atoms.get(key)
        merged = by if have is None else _merge(have, by)
        if merged:
            atoms[key] = merged
        else:
            del atoms[key]


def as_form(x: Payload) -> LinearForm:
    """Return any payload as a linear form; Inexact if a piece of a `Concat` may exceed its bits."""
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
        out, offset = add_forms(out, form.scale(1 << offset)), offset + bits
    return out


def have_same_terms(forms: Sequence[LinearForm], others: Sequence[LinearForm]) -> bool:
    """Return whether forms have the constants and atoms of as many others; their bounds may differ."""
    return [(x.const, x.atoms) for x in forms] == [(x.const, x.atoms) for x in others]


def total(forms: Iterable[LinearForm]) -> LinearForm:
    """Return the sum of combinations."""
    const = lo = hi = 0
    atoms: dict[Hashable, Mapping[int, int]] = {}
    for x in forms:
        add_atoms(atoms, x.atoms)
        const, lo, hi = const + x.const, lo + x.lo, hi + x.hi
    return LinearForm(const, atoms, lo, hi)


def side_by_side(pieces: Iterable[tuple[Payload, int]]) -> Payload:
    """Return the lane of these pieces, simplified: planes of consecutive positions become one bit field."""
    merged: list[tuple[Payload, int]] = []
    for piece, bits in _flat(pieces):
        last = _join_pieces(*merged[-1], piece, bits) if merged else None
        if last is None:
            merged.append((piece, bits))
        else:
            merged[-1] = last
    return merged[0][0] if len(merged) == 1 else Concat(tuple(merged))


def _flat(pieces: Iterable[tuple[Payload, int]]) -> Iterator[tuple[Payload, int]]:
    """Flatten pieces of pieces; their bits must add up to the stated width, or the next piece would be misplaced."""
    for piece, bits in pieces:
        if isinstance(piece, Concat):
            require(sum(b for _, b in piece.pieces) == bits, "a lane that is not filled is joined to another")
            yield from piece.pieces
        else:
            yield piece, bits


def _join_pieces(low: Payload, bits: int, high: Payload, more: int) -> tuple[Payload, int] | None:
    """Return two neighbours as one payload and its width; None if no single payload can hold both."""
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
    """Return bits first .. last - 1 of a lane; Inexact if a sum would be cut in two."""
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
    form = as_form(x)
    if first == 0:
        return form
    require(0 <= form.lo and form.hi < 1 << first, "a sum is cut in two")
    return 0


def is_plane(key: Hashable) -> TypeGuard[tuple[int, int | None]]:
    """Return whether an atom is a bit of the planes, (truth table, column), and not an unknown."""
    return isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], int)


def is_of_codes(key: Hashable) -> bool:
    """Return whether an atom is a function of codes: a bit of the planes, or the product of bits of two positions."""
    return is_plane(key) or is_crossed(key)


def is_crossed(key: Hashable) -> bool:
    """Return whether an atom is the product of bits of two positions."""
    return isinstance(key, tuple) and key[0] == "crossed"


def require(holds: bool, why: str) -> None:
    """Raise Inexact, with the reason `why`, unless the side condition `holds`."""
    if not holds:
        raise Inexact(why)

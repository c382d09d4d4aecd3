"""Linear meaning: what a lane holds, as an integer combination of one-bit atoms (`forms`).

Addition, subtraction, shifts to the left and truncation are exact modulo 2**w.
Range matters in widening, which is refused (`Inexact`) unless the interval shows
that the lane holds the combination itself. So no overflow is ever assumed away.
No solver is imported here: this is the checker's own arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bitsynth.isa.domains.forms import (
    BitField,
    Concat,
    Inexact,
    LinearForm,
    Payload,
    TableEntry,
    add_forms,
    as_form,
    cut,
    require,
    side_by_side,
)
from bitsynth.isa.domains.pieces import WORD, field_of, fields, gate, require_meeting, sum_by_pieces
from bitsynth.isa.domains.sums import Ranges, affine_lookup, find_range, interval, product, select_parts, tighten


@dataclass
class LinearDomain:
    """Linear forms over truth tables of `rows` rows; `full` is the table that is true everywhere.

    Unknowns of known `ranges` may cancel; the range of the remaining sum may be smaller than the range of the terms.
    """

    rows: int
    ranges: Ranges = field(default_factory=dict)
    full: int = field(init=False)

    def __post_init__(self) -> None:
        self.full = (1 << self.rows) - 1

    def const(self, value: int, w: int) -> int:
        return value & ((1 << w) - 1)

    def add(self, a: Payload, b: Payload, w: int) -> Payload:
        if isinstance(a, int) and isinstance(b, int):
            return (a + b) & ((1 << w) - 1)
        if isinstance(a, Concat) and isinstance(b, Concat) and (sums := sum_by_pieces(a, b, w)) is not None:
            return sums
        if w == WORD and isinstance(a, BitField) and isinstance(b, BitField):
            return fields(a, b, self.rows)
        return self._find_range(add_forms(as_form(a), as_form(b)), w)

    def _find_range(self, x: LinearForm, w: int) -> LinearForm:
        """Return a difference with its exact range, as terms may have cancelled; multiples of 2**w are 0."""
        if x.lo >= 0 or not x.atoms.keys() <= self.ranges.keys():
            return x
        atoms = {key: by for key, by in x.atoms.items() if any(c % (1 << w) for c in by)}
        return find_range(LinearForm(x.const, atoms, x.lo, x.hi), self.ranges)

    def sub(self, a: Payload, b: Payload, w: int) -> Payload:
        if isinstance(b, int) and b == 0:
            return a
        if isinstance(a, int) and isinstance(b, int):
            return (a - b) & ((1 << w) - 1)
        return self._find_range(add_forms(as_form(a), as_form(b).scale(-1)), w)

    def mul(self, a: Payload, b: Payload, w: int) -> Payload:
        if isinstance(a, int) and isinstance(b, int):
            return (a * b) & ((1 << w) - 1)
        if isinstance(a, int):
            a, b = b, a
        if not isinstance(b, int):
            return product(as_form(a), as_form(b))
        signed = b - (1 << w) if b >> (w - 1) else b
        return as_form(a).scale(signed)

    def and_(self, a: Payload, b: Payload, w: int) -> Payload:
        if isinstance(a, int) and isinstance(b, int):
            return a & b
        if not isinstance(a, int | BitField) or not isinstance(b, int | BitField):
            x, m = (a, b) if isinstance(b, int) else (b, a)
            if m == 0:
                return 0
            if isinstance(x, Concat) and isinstance(m, int):
                return self._mask_bits(x, m)
            require(isinstance(m, int) and m & (m + 1) == 0, "and of two sums is not linear")
            assert isinstance(m, int)
            lo, hi = interval(x)
            if m == (1 << w) - 1 or (0 <= lo and hi <= m):
                return x
            return side_by_side([(as_form(x), m.bit_length()), (0, w - m.bit_length())])
        return gate(field_of(a, w), field_of(b, w))

    def _mask_bits(self, x: Concat, mask: int) -> Payload:
        out: list[tuple[Payload, int]] = []
        for piece, bits in x.pieces:
            out.append((self.and_(piece, mask & ((1 << bits) - 1), bits), bits))
            mask >>= bits
        return side_by_side(out)

    def not_(self, a: Payload, w: int) -> Payload:
        every = (1 << w) - 1
        if isinstance(a, int):
            return ~a & every
        if not isinstance(a, BitField):
            return as_form(a).scale(-1).shift(-1)
        return BitField(self.full & ~a.tt, a.column, a.position, a.mask, every & ~a.mask & ~a.ones)

    def or_(self, a: Payload, b: Payload, w: int) -> Payload:
        if isinstance(a, int) and isinstance(b, int):
            return a | b
        if isinstance(a, int | BitField) and isinstance(b, int | BitField):
            return self.not_(self.and_(self.not_(a, w), self.not_(b, w), w), w)
        low, high = sorted((as_form(a), as_form(b)), key=_trailing_zeros)
        zeros = _trailing_zeros(high)
        require(0 <= low.lo and low.hi < 1 << zeros, "or of two overlapping sums is not linear")
        return add_forms(low, high)

    def xor(self, a: Payload, b: Payload, w: int) -> Payload:
        if isinstance(a, int) and isinstance(b, int):
            return a ^ b
        if isinstance(a, int):
            a, b = b, a
        if not isinstance(a, BitField):
            require(b in (0, 1 << (w - 1)), "xor of two sums is not linear")
            assert isinstance(b, int)
            return as_form(a).shift(b)
        require(isinstance(b, int | BitField), "xor of two sums is not linear")
        if isinstance(b, BitField) and a.mask == b.mask and not a.ones and not b.ones:
            require_meeting(a, b)
            column = b.column if a.column is None else a.column
            return BitField(a.tt ^ b.tt, column, a.position, a.mask) if a.tt != b.tt else 0
        left = self.and_(a, self.not_(b, w), w)
        right = self.and_(self.not_(a, w), b, w)
        return self.or_(left, right, w)

    def shl(self, a: Payload, n: int, w: int) -> Payload:
        if n >= w:
            return 0
        if isinstance(a, int):
            return (a << n) & ((1 << w) - 1)
        if not isinstance(a, BitField):
            return cut(side_by_side([(0, n), (a, w)]), 0, w)
        every = (1 << w) - 1
        return BitField(a.tt, a.column, a.position - n, (a.mask << n) & every, (a.ones << n) & every)

    def lshr(self, a: Payload, n: int, w: int) -> Payload:
        if n >= w:
            return 0
        return side_by_side([(cut(a, n, w), w - n), (0, n)]) if n else a

    def eq(self, a: Payload, b: Payload, w: int) -> bool:
        require(isinstance(a, int) and isinstance(b, int), "a comparison of unknown values")
        return a == b

    def ult(self, a: Payload, b: Payload, w: int) -> bool:
        (alo, ahi), (blo, bhi) = interval(a), interval(b)
        require(min(alo, blo) >= 0 and max(ahi, bhi) < 1 << w, "a comparison of values that may wrap")
        require(ahi < blo or alo >= bhi, f"a comparison of [{alo}, {ahi}] with [{blo}, {bhi}] is open")
        return ahi < blo

    def ite(self, cond: bool, a: Payload, b: Payload, w: int) -> Payload:
        return a if cond else b

    def zext(self, a: Payload, w: int, to: int) -> Payload:
        if isinstance(a, Concat):
            return side_by_side([(a, w), (0, to - w)]) if to > w else a
        if isinstance(a, LinearForm):
            a = a if 0 <= a.lo and a.hi < 1 << w else tighten(a, self.rows)
            require(0 <= a.lo and a.hi < 1 << w, f"a {w}-bit lane is widened but may hold [{a.lo}, {a.hi}]")
        return a

    def sext(self, a: Payload, w: int, to: int) -> Payload:
        half = 1 << (w - 1)
        if isinstance(a, int):
            return ((a ^ half) - half) & ((1 << to) - 1)
        if isinstance(a, Concat | TableEntry):
            a = as_form(a)
        if isinstance(a, LinearForm) and not (-half <= a.lo and a.hi < half):
            a = tighten(a, self.rows)
        lo, hi = interval(a)
        require(-half <= lo and hi < half, f"a signed {w}-bit lane is widened but may hold [{lo}, {hi}]")
        return a

    def trunc(self, a: Payload, w: int, to: int) -> Payload:
        return cut(a, 0, to)

    def popcount(self, a: Payload, w: int) -> Payload:
        if isinstance(a, int):
            return a.bit_count()
        require(isinstance(a, BitField), "a count of the bits of a sum is not linear")
        assert isinstance(a, BitField)
        n = a.mask.bit_count()
        const = a.ones.bit_count()
        return LinearForm(const, {(a.tt, a.column): {1: a.at(a.mask)}} if n else {}, const, const + n)

    def lookup(self, table: Sequence[Payload], index: Payload, w: int) -> Payload:
        size = len(table)
        if isinstance(index, int):
            return table[index % size]
        require(isinstance(index, BitField), "a sum is used as an index")
        assert isinstance(index, BitField)
        require((index.mask | index.ones) < size, "an index beyond the table")
        if isinstance(table[0], TableEntry):
            return select_parts(table, table[0].parts, index)
        if isinstance(table[0], Concat):
            return self._piecewise(table, index)
        entries = [e for e in table if isinstance(e, int)]
        require(len(entries) == size, "a table of unknown values")
        return affine_lookup(entries, index)

    def _piecewise(self, table: Sequence[Payload], index: BitField) -> Payload:
        """Return a lookup in entries of pieces side by side is one in each piece."""
        pieces = [e.pieces for e in table if isinstance(e, Concat)]
        widths = [bits for _, bits in pieces[0]]
        alike = len(pieces) == len(table) and all([bits for _, bits in p] == widths for p in pieces)
        require(alike, "entries of a table have other pieces")
        return side_by_side(
            [(self.lookup([p[k][0] for p in pieces], index, bits), bits) for k, bits in enumerate(widths)]
        )

    def join(self, parts: Sequence[Payload], w: int) -> Payload:
        return side_by_side([(part, w) for part in parts])

    def split(self, a: Payload, w: int, to: int) -> list[Payload]:
        if isinstance(a, LinearForm | TableEntry):
            form = as_form(a)
            require(0 <= form.lo and form.hi < 1 << to, f"a lane in [{form.lo}, {form.hi}] is split at bit {to}")
            return [form, *[0] * (w // to - 1)]
        return [cut(a, k, k + to) for k in range(0, w, to)]

    def udiv(self, *_: object) -> Payload:
        raise Inexact("a quotient is no sum of bits")

    def float_of(self, *_: object, **__: object) -> Payload:
        raise Inexact("a float32 number is no sum of bits")

    nearest = fmul = fadd = fdiv = flt = fle = float_of

    def double_of(self, *_: object) -> Payload:
        raise Inexact("a float64 number is no sum of bits")

    double_of_float = int_of = dmul = dadd = dsub = ddiv = dlt = dle = double_of


def _trailing_zeros(x: LinearForm) -> int:
    values = [c for by in x.atoms.values() for c in by] + [x.const]
    return min(((v & -v).bit_length() - 1 for v in values if v), default=64)

"""Lanes of the linear domain in parts: bits of one function and one column, and pieces next to each other.

Gates work on bits. Operations on pieces stay within a piece; a check says what fits a lane.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, pairwise

from bitsynth.isa.domains.forms import (
    BitField,
    Concat,
    Inexact,
    Payload,
    add_forms,
    as_form,
    cut,
    require,
    side_by_side,
)
from bitsynth.isa.domains.sums import tighten


def gate(a: BitField, b: BitField) -> Payload:
    """Return the conjunction of two fields."""
    both, only_a, only_b = a.mask & b.mask, a.mask & b.ones, b.mask & a.ones
    tables = {t for t, m in ((a.tt & b.tt, both), (a.tt, only_a), (b.tt, only_b)) if m}
    mask, ones = both | only_a | only_b, a.ones & b.ones
    if a.mask and b.mask:
        require_meeting(a, b)
    if not tables or tables == {0}:
        return ones
    require(len(tables) == 1, "bits of one lane follow different functions")
    like = a if a.mask else b
    column = b.column if a.column is None and b.mask else a.column
    return BitField(tables.pop(), column if a.mask and b.mask else like.column, like.position, mask, ones)


def require_meeting(a: BitField, b: BitField) -> None:
    """Raise Inexact unless a gate joins bits of one position and one column."""
    require(a.position == b.position, f"bits {a.position} and {b.position} of K meet in a gate")
    require(None in (a.column, b.column) or a.column == b.column, "two columns meet in a gate")


def field_of(x: Payload, w: int) -> BitField:
    """Return a payload as a field: a constant is one without unknown bits."""
    if isinstance(x, int):
        return BitField(0, None, 0, 0, x)
    assert isinstance(x, BitField)
    return x


WORD = 64
"""Bits of a lane that is a word: sums of its bits are fields side by side."""


def sum_by_pieces(a: Concat, b: Concat, w: int) -> Payload | None:
    """Return the sum of lanes of pieces, if none of it leaves its piece; None if some may.

    A word is cut into pieces that both lanes can be cut into.
    """
    if w == WORD:
        try:
            a, b = (_cut_at(x, sorted(_ends(a) | _ends(b))) for x in (a, b))
        except Inexact:
            return None
    out: list[tuple[Payload, int]] = []
    for (x, bits), (y, others) in zip(a.pieces, b.pieces, strict=False):
        whole = add_forms(as_form(x), as_form(y))
        if bits != others or whole.lo < 0 or whole.hi >= 1 << bits:
            return None
        out.append((whole, bits))
    return side_by_side(out) if len(a.pieces) == len(b.pieces) else None


def _ends(x: Concat) -> set[int]:
    """Return the bits at which pieces end."""
    return set(accumulate(bits for _, bits in x.pieces))


def _cut_at(x: Concat, ends: Iterable[int]) -> Concat:
    """Return the lane in pieces that end there."""
    return Concat(tuple((cut(x, start, end), end - start) for start, end in pairwise([0, *ends])))


def fields(a: BitField, b: BitField, rows: int) -> Payload:
    """Return the sum of two words of bits in the narrowest fields that none leaves.

    Inexact if what is left at the end has no field.
    """
    out: list[tuple[Payload, int]] = []
    start = 0
    for end in range(1, WORD + 1):
        left, right = (as_form(cut(x, start, end)) for x in (a, b))
        part = tighten(add_forms(left, right), rows)
        if 0 <= part.lo and part.hi < 1 << end - start:
            out.append((part if part.atoms else part.const, end - start))
            start = end
    require(start == WORD, "a sum of bits leaves its word")
    return side_by_side(out)

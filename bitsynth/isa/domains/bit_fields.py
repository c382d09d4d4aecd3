"""Bits of one function and one column in the lanes of the linear domain, and the results of gates on them."""

from __future__ import annotations

from bitsynth.isa.domains.forms import (
    BitField,
    Payload,
    require,
)


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

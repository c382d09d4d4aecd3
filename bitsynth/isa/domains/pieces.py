"""Pieces side by side in a lane of the linear domain: what keeps within them, and what fits beside them."""

from __future__ import annotations

from bitsynth.isa.domains.forms import (
    Concat,
    Payload,
    add_forms,
    as_form,
    side_by_side,
)


def sum_by_pieces(a: Concat, b: Concat) -> Payload | None:
    """The sum of lanes of pieces, if none of it leaves its piece; None if some may."""
    out: list[tuple[Payload, int]] = []
    for (x, bits), (y, others) in zip(a.pieces, b.pieces, strict=False):
        whole = add_forms(as_form(x), as_form(y))
        if bits != others or whole.lo < 0 or whole.hi >= 1 << bits:
            return None
        out.append((whole, bits))
    return side_by_side(out) if len(a.pieces) == len(b.pieces) else None

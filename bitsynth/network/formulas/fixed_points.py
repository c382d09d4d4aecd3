"""Staircases as lines of 32 bits, one or two after each other, found in integers and proved at the points that decide.

Integerized networks make codes of sums by multipliers and shifts, and codes of these again before they add them. A line
whose products are rounded down never turns back, so that what agrees where a staircase steps agrees everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.types import INT32, Tensor
from bitsynth.layers.epilogues import FixedLine, FixedPoint
from bitsynth.network.formulas.chain import Chain, parted
from bitsynth.network.formulas.fitting import Lines
from bitsynth.network.formulas.step_functions import Staircase, staircase_of
from bitsynth.network.wiring import Wiring
from bitsynth.spec.matmul import MatmulOperand
from bitsynth.spec.rescaling import FIXED_SHIFT

_NEAR = (0, 1, -1)
"""Multipliers that are tried, from that nearest to the line with the most room."""

_MOST_PRODUCT = 1 << 52
"""Products that float64 holds with what is added, in which the checker of certificates has them."""


def fixed_point_of(wiring: Wiring, chain: Chain, operand: MatmulOperand) -> FixedPoint | None:
    """The epilogue that gives codes of `operand` for the chain's integers: of one line, or of two; None without."""
    for parts in _parts(wiring, chain):
        stairs = [staircase_of(wiring, part) for part in parts]
        if found := _through([x for x in stairs if x is not None], len(parts), operand):
            return found
    return None


def _parts(wiring: Wiring, chain: Chain) -> Iterator[tuple[Chain, ...]]:
    """The chain, then what is before and behind codes that it passes, if channels are alike behind."""
    yield (chain,)
    yield from (parts for parts in parted(wiring, chain) if not parts[1].varies)


def _through(stairs: Sequence[Staircase], count: int, operand: MatmulOperand) -> FixedPoint | None:
    """The lines through staircases, if there are all of them, each of what the one before makes."""
    if len(stairs) < count or stairs[0].low.min() <= INT32[0] or stairs[0].high.max() >= INT32[1]:
        return None
    least, most = _window(stairs[0])
    ends = (least, most), *((x.low, x.high) for x in stairs[1:])
    lines = [_line(x, *e, operand if x is stairs[-1] else None) for x, e in zip(stairs, ends, strict=True)]
    found = [x for x in lines if x is not None]
    if len(found) < count:
        return None
    try:
        return FixedPoint(least, most, found[0], operand.bits, then=next(iter(found[1:]), None))
    except SpecError:
        return None


def _window(stairs: Staircase) -> tuple[Tensor, Tensor]:
    """The last element of the integer that the least one has, the first of that of the greatest (channels,)."""
    points = stairs.points()
    made, (first, last) = stairs.at(points), stairs.at(np.stack([stairs.low, stairs.high]))
    least = np.where(made == first, points, stairs.low).max(0)
    most = np.where(made == last, points, stairs.high).min(0)
    constant = first == last
    return np.where(constant, stairs.low, least), np.where(constant, stairs.low, most)


def _line(stairs: Staircase, least: Tensor, most: Tensor, operand: MatmulOperand | None) -> FixedLine | None:
    """The line of elements from `least` to `most` that gives the staircase's integers, or codes of an operand."""
    elements = np.clip(stairs.points(), least, most)
    wanted = stairs.at(elements)
    if operand is not None:
        wanted = (wanted - operand.offset) // operand.scale
    best = Lines(elements.astype(np.float64), wanted, (int(wanted.min()) - 1, int(wanted.max()) + 1)).best
    nearest = np.rint(best * (1 << FIXED_SHIFT)).clip(INT32[0] + 1, INT32[1] - 1).astype(np.int64)
    tries = [(multiplier, *_summands(elements, wanted, multiplier)) for multiplier in (nearest + k for k in _NEAR)]
    multipliers, lows, highs = (np.stack(parts) for parts in zip(*tries, strict=True))
    fits = (lows <= highs) & (np.abs(multipliers) * np.abs(elements).max(0) < _MOST_PRODUCT)
    if not fits.any(0).all():
        return None
    taken = fits.argmax(0), np.arange(fits.shape[1])
    return FixedLine(multipliers[taken], (lows[taken] + highs[taken]) >> 1)


def _summands(elements: Tensor, wanted: Tensor, multiplier: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the greatest summand (channels,) with which products give what is wanted, rounded down."""
    products = elements * multiplier
    low = (wanted << FIXED_SHIFT) - products
    return low.max(0), (low + (1 << FIXED_SHIFT) - 1).min(0)

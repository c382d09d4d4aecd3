"""Grids of quantizers: scale, zero point and limits that lose least of the numbers that were seen."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import SpecError
from bitsynth.spec.matmul import Encoding

_NO_RANGE = 1e-30
"""A range below this is taken for 0: its scale would be no normal float32."""
SIGNIFICANT_BITS = 6
"""The most significant bits of a scale. With few of them the products of scales, which accumulators are multiplied by,
are short numbers, and float32 formulas of epilogues are exact where long ones would be a rounding off."""
_NO_CUT = 1e-5
"""What an end may be off beyond half a step, relative to the range: float32 rounding."""
_FRACTIONS = np.append(np.linspace(0.15, 1.02, 59), 1 + np.ldexp(1.0, -np.arange(1, SIGNIFICANT_BITS)))
"""Shares of the largest number that are tried as the end of the range. A scale that is rounded down to few bits no
longer holds the largest number; the last shares are those at which it is rounded up."""


_PERCENTILE = 99.9
"""The percentile of the rule `percentile` without a number."""


@dataclass(frozen=True)
class RangeRule:
    """Which numbers of an edge its grid has to hold.

    Args:
        percentile: The numbers up to this percentile, and down to 100 less it, are off by at most half a step. None if
            the grid may cut off numbers wherever the mean squared error of all becomes less.
    """

    percentile: float | None = None

    @property
    def is_inner(self) -> bool:
        """Whether the greatest numbers of all do not count: then numbers have to be drawn at random."""
        return self.percentile is not None and self.percentile < 100

    def ends(self, values: NDArray[np.float32]) -> tuple[float, float]:
        """Return the least and the greatest number that count, with 0 in between; not 0 and 0 if a number is not 0."""
        least, most = min(0.0, float(values.min())), max(0.0, float(values.max()))
        if self.percentile is None or not self.is_inner:
            return least, most
        low, high = (float(x) for x in np.percentile(values, (100 - self.percentile, self.percentile)))
        low, high = min(0.0, low), max(0.0, high)
        return (least, most) if high - low < _NO_RANGE else (low, high)


LEAST_SQUARES = RangeRule()
MIN_MAX = RangeRule(100.0)


def range_rule(text: str) -> RangeRule:
    """Return the rule of a name: auto or mse, minmax, percentile or percentile=P; SpecError for others."""
    rules = {"auto": LEAST_SQUARES, "mse": LEAST_SQUARES, "minmax": MIN_MAX, "percentile": RangeRule(_PERCENTILE)}
    match = re.fullmatch(r"percentile=(\d{2,3}(?:\.\d{1,9})?)", text, re.ASCII)
    if match and 50 < float(match[1]) <= 100:
        return RangeRule(float(match[1]))
    if text not in rules:
        raise SpecError(
            f"ranges are auto, minmax, mse, percentile or percentile=P with P above 50 and at most 100, not {text!r}"
        )
    return rules[text]


class WeightCodes(NamedTuple):
    """Codes that the weights of a product may have.

    Args:
        bits: Bits of a code.
        bipolar: Whether codes are odd, as codes of 1 bit always are; else there are as many below 0 as above.
    """

    bits: int
    bipolar: bool = False

    @property
    def is_odd(self) -> bool:
        """Whether codes are odd."""
        return self.bipolar or self.bits == 1

    @property
    def encoding(self) -> Encoding:
        """The encoding of the values, as kernels have it."""
        if self.is_odd:
            return Encoding.BIPOLAR
        return Encoding.TERNARY if self.bits == 2 else Encoding.NARROW

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest code."""
        return self.grid(np.ones((), np.float32)).limits

    def grid(self, scale: NDArray[np.float32]) -> QuantizerGrid:
        """Return the grid of these codes with a scale, one number or one a channel."""
        return QuantizerGrid(self.bits, scale, signed=not self.is_odd, bipolar=self.is_odd)


@dataclass(frozen=True)
class QuantizerGrid:
    """The codes of a quantizer: x becomes clip(round(x / scale) + zero, low, high).

    Args:
        bits: Bits of a code.
        scale: One number, or one a channel, shaped to broadcast to the numbers.
        zero: The code of 0.
        signed: Whether codes have a sign.
        bipolar: Whether codes are odd: -1 and 1 of 1 bit, -3, -1, 1 and 3 of 2. `zero` and `signed` say nothing then.
    """

    bits: int
    scale: NDArray[np.float32]
    zero: int = 0
    signed: bool = False
    bipolar: bool = False

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest code. Codes with a sign are as many below 0 as above."""
        if self.bipolar:
            return 1 - (1 << self.bits), (1 << self.bits) - 1
        most = (1 << self.bits - self.signed) - 1
        return (-most if self.signed else 0), most

    def quantize(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Return numbers on the grid, as float32."""
        numbers: NDArray[np.float32] = (self.nearest(x / self.scale) * self.scale).astype(np.float32)
        return numbers

    def nearest(self, steps: NDArray[Any]) -> NDArray[Any]:
        """Return the codes, less the zero point, that are nearest to numbers in units of the scale."""
        low, high = self.limits
        if self.bipolar:
            return np.asarray((2 * np.floor(steps / 2) + 1).clip(low, high))
        return np.asarray(np.rint(steps).clip(low - self.zero, high - self.zero))


def shorten(scale: Any, significant: Any = SIGNIFICANT_BITS) -> NDArray[np.float32]:
    """Return the nearest scales with few significant bits."""
    numbers = np.asarray(scale, np.float64)
    mantissa, exponent = np.frexp(numbers)
    steps = np.ldexp(1.0, significant)
    short: NDArray[np.float32] = np.asarray(np.ldexp(np.rint(mantissa * steps) / steps, exponent), np.float32)
    return short


def activation_grid(
    values: NDArray[np.float32], bits: int, significant: int = SIGNIFICANT_BITS, rule: RangeRule = LEAST_SQUARES
) -> QuantizerGrid:
    """Return the grid of activations with the least mean squared error of numbers that were seen.

    Codes have no sign. Where numbers below 0 occur, the zero point is a code above 0. With 3 bits or more it is even:
    then the middle between two codes is rounded to the same, whether the zero point is added before or after. The scale
    has `significant` bits. A rule that holds numbers leaves the grids on which none of them is off by more than half a
    step, or the nearest to that.
    """
    least, most = rule.ends(values)
    if most - least < _NO_RANGE:
        return QuantizerGrid(bits, np.ones((), np.float32))
    highest = (1 << bits) - 1
    grids: dict[tuple[float, int], QuantizerGrid] = {}
    low_shares = [1.0] if least == 0 else [*np.linspace(0.25, 1.25, 9), *([] if rule.percentile is None else [1.6])]
    for low_share in low_shares:
        low, high = least * low_share, most * _FRACTIONS
        for scale in np.unique(shorten((high - low)[high > low] / highest, significant)):
            zero = min(float(-low / scale), float(highest)) if scale > 0 else 0.0
            if bits <= 2 or most == 0:
                zeros = {round(zero)}
            else:
                zeros = {2 * math.floor(zero / 2), min(2 * math.ceil(zero / 2), highest - 1)}
            grids |= {(float(scale), code): QuantizerGrid(bits, scale, code) for code in zeros}
    counted = values if rule.percentile is None else values.clip(least, most)
    ends, most_cut = np.array([least, most], np.float32), _NO_CUT * (most - least)

    def compute_loss(grid: QuantizerGrid) -> tuple[float, float]:
        cut = 0.0 if rule.percentile is None else float(np.abs(ends - grid.quantize(ends)).max() - grid.scale / 2)
        error = float(np.square(counted - grid.quantize(counted), dtype=np.float64).mean())
        return (cut if cut > most_cut else 0.0), error

    return min((grid for grid in grids.values() if grid.scale > 0), key=compute_loss)


def weight_grid(
    weights: NDArray[np.float32],
    codes: WeightCodes,
    axis: int,
    shorten: Callable[[NDArray[Any]], NDArray[np.float32]] = shorten,
) -> QuantizerGrid:
    """Return the grid of weights, with a scale of each channel along `axis`, with the least mean squared error.

    Args:
        weights: The weights.
        codes: The codes that they may have.
        axis: The axis of channels.
        shorten: Returns scales near these that the product may have.
    """
    others = tuple(k for k in range(weights.ndim) if k != axis)
    if codes.bits == 1:
        scale = shorten(np.abs(weights).mean(others, keepdims=True))
        return codes.grid(np.where(scale > 0, scale, np.float32(1)))
    most = np.abs(weights).max(others, keepdims=True)
    most = np.where(most > 0, most, 1).astype(np.float32)
    _, highest = codes.limits
    scale, error = shorten(most / highest), np.full(most.shape, np.inf)
    for share in _FRACTIONS:
        grid = codes.grid(shorten(most * np.float32(share) / highest))
        off = np.square(weights - grid.quantize(weights), dtype=np.float64).mean(others, keepdims=True)
        scale, error = np.where(off < error, grid.scale, scale), np.minimum(off, error)
    return codes.grid(scale.astype(np.float32))

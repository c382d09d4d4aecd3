"""Codes by a multiplier and a shift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.errors import SpecError
from bitsynth.layers.epilogues.arguments import of_channels, whole
from bitsynth.layers.epilogues.base import CodesEpilogue, keep
from bitsynth.layers.epilogues.residual import Residual
from bitsynth.spec.matmul import is_one_of

ROUNDINGS = ("up", "even")
_LARGEST_SHIFT = 62


@dataclass(frozen=True, eq=False)
class Requantize(CodesEpilogue):
    """Codes: (sum * multiplier + half) >> shift, plus the zero point, clamped; half is 2**(shift - 1), 0 for shift 0.

    Products have 64 bits. Rounded "up", halves go up; rounded "even", to the even number: with p the product, it is
    (p + half - 1 + (p >> shift & 1)) >> shift.

    Args:
        multiplier: One int32 a channel, or one for all.
        shift: Bits of the shift to the right, 0 to 62.
        bits: Bits of a code, 1 to 8, or to 16 if codes are signed.
        rounding: "up" or "even".
        zero_point: The code that stands for 0.
        low: The least code; the least of so many bits if None.
        high: The greatest code; the greatest of so many bits if None.
        signed: Whether codes are int8, or int16 above 8 bits; uint8 otherwise.
        residual: A second tensor that is added to the sum, or None.
    """

    multiplier: ArrayLike
    shift: int
    bits: int
    rounding: str = "up"
    zero_point: int = 0
    low: int | None = None
    high: int | None = None
    signed: bool = False
    residual: Residual | None = None

    def __post_init__(self) -> None:
        keep(self, multiplier="multiplier")
        whole("shift", self.shift, 0, _LARGEST_SHIFT)
        if not is_one_of(self.rounding, ROUNDINGS):
            raise SpecError(f"rounding is one of {', '.join(ROUNDINGS)}, not {self.rounding!r}")
        self._check_codes()
        self._check_residual(integers=True)

    def _results(self, values: NDArray[Any]) -> NDArray[Any]:
        multiplier = of_channels("multiplier", self.multiplier, values.shape[-1], np.int32)
        product = values.astype(np.int64) * multiplier
        half = (1 << self.shift) >> 1
        if self.rounding == "even" and self.shift:
            product = product + (half - 1) + (product >> self.shift & 1)
        else:
            product = product + half
        codes: NDArray[Any] = ((product >> self.shift) + self.zero_point).clip(*self.codes)
        return codes.astype(self.out_type)

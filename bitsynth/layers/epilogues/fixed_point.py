"""Codes by multipliers and shifts of 32 bits, once or twice, of sums that are kept between two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.errors import SpecError
from bitsynth.layers.epilogues.arguments import INT32, kept, of_channels, whole
from bitsynth.layers.epilogues.base import BaseEpilogue, keep
from bitsynth.layers.epilogues.residual import Residual
from bitsynth.spec.matmul import MAX_BITS
from bitsynth.spec.rescaling import FIXED_SHIFT


@dataclass(frozen=True, eq=False)
class FixedLine:
    """(x * multiplier + summand) >> FIXED_SHIFT; SpecError of what that makes no int32 of before the shift.

    Args:
        multiplier: One int32 a channel, or one for all.
        summand: Likewise, of int64: products alone may leave int32, as C's wrap.
    """

    multiplier: ArrayLike
    summand: ArrayLike

    def __post_init__(self) -> None:
        for name in ("multiplier", "summand"):
            object.__setattr__(self, name, kept(getattr(self, name), name))

    def of(self, channels: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Multipliers and summands (channels,)."""
        multiplier = of_channels("multiplier", self.multiplier, channels, np.int32).astype(np.int64)
        return multiplier, of_channels("summand", self.summand, channels, np.int64)

    def at(self, x: NDArray[np.int64]) -> NDArray[np.int64]:
        """What becomes of integers (..., channels)."""
        multiplier, summand = self.of(x.shape[-1])
        made = x * multiplier + summand
        if made.size and not INT32.min <= made.min() <= made.max() <= INT32.max:
            raise SpecError("multiplier and summand make numbers beyond int32")
        return np.asarray(made >> FIXED_SHIFT)


@dataclass(frozen=True, eq=False)
class FixedPoint(BaseEpilogue):
    """Codes: a line of the sum, which is kept from `least` to `most`, and another line of that if there is one.

    Args:
        least: The least sum of which there is a code of its own, int32: one a channel, or one for all.
        most: The greatest, likewise.
        line: What is made of sums.
        bits: Bits of a code, 1 to 8.
        then: What is made of that, the same for all channels, or None.
        residual: None: there is no second tensor.
    """

    least: ArrayLike
    most: ArrayLike
    line: FixedLine
    bits: int
    then: FixedLine | None = None
    residual: Residual | None = None

    def __post_init__(self) -> None:
        keep(self, least="least", most="most")
        whole("bits", self.bits, 1, MAX_BITS)
        if self.residual is not None:
            raise SpecError("fixed-point codes have no residual")
        lines: tuple[Any, Any] = (self.line, self.then)
        if not (isinstance(lines[0], FixedLine) and isinstance(lines[1], FixedLine | None)):
            raise SpecError(f"lines of fixed-point codes are FixedLine, not {self.line!r}, {self.then!r}")
        parts = (self.least, self.most, self.line.multiplier, self.line.summand)
        channels = max(1, *(int(np.size(x)) for x in parts))
        ends = self.window(channels)
        if (ends[0] > ends[1]).any() or (self.then and np.size(self.then.multiplier) + np.size(self.then.summand) > 2):
            raise SpecError("least is not above most, and the second line is that of all channels")
        found = self._lines(np.stack(ends))
        object.__setattr__(self, "_ends", (int(found.min()), int(found.max())))
        if not 0 <= self.codes[0] <= self.codes[1] < 1 << self.bits:
            raise SpecError(f"codes go from {self.codes[0]} to {self.codes[1]}, beyond {self.bits} bits")

    def window(self, channels: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Between which sums are kept (channels,)."""
        least, most = (of_channels(n, getattr(self, n), channels, np.int32) for n in ("least", "most"))
        return least.astype(np.int64), most.astype(np.int64)

    @property
    def codes(self) -> tuple[int, int]:
        """The least and the greatest code."""
        ends: tuple[int, int] = self._ends  # type: ignore[attr-defined]
        return ends

    @property
    def out_type(self) -> np.dtype[Any]:
        """The type of results."""
        return np.dtype(np.uint8)

    def _results(self, values: NDArray[Any]) -> NDArray[Any]:
        return self._lines(values.astype(np.int64).clip(*self.window(values.shape[-1]))).astype(np.uint8)

    def _lines(self, kept_sums: NDArray[np.int64]) -> NDArray[np.int64]:
        made = self.line.at(kept_sums)
        return self.then.at(made) if self.then else made

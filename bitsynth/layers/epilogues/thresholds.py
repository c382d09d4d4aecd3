"""Codes by the number of levels that a sum has passed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.errors import SpecError
from bitsynth.layers.epilogues.arguments import INT32, levels
from bitsynth.layers.epilogues.base import BaseEpilogue, keep
from bitsynth.layers.epilogues.residual import Residual


@dataclass(frozen=True, eq=False)
class Thresholds(BaseEpilogue):
    """Codes: the number of a channel's thresholds that lie below its sum, or above it where the channel is falling.

    Args:
        values: Whole numbers in ascending order: (levels,) or (1, levels) for all channels, or (channels, levels), 1 to
            255 levels. Channels may have fewer: masked ones, or lists of different lengths. Codes of n bits take at
            most 2**n - 1 levels.
        rising: Whether codes rise with the sum, for all channels or one by one (channels,).
        residual: A second tensor that is added to the sum, or None. If that may bring a sum to an end of int32, a level
            beyond it, which every sum passes, is refused.
    """

    values: ArrayLike
    rising: ArrayLike = True
    residual: Residual | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", levels(self.values))
        keep(self, rising="rising")
        if np.asarray(self.rising).dtype != np.bool_ or np.ndim(self.rising) > 1:
            raise SpecError(f"rising is True, False or an array of them, one a channel, not {self.rising!r}")
        self._check_residual(integers=True)

    @property
    def bits(self) -> int:
        """Bits of a code: the fewest that hold the number of levels."""
        return max(1, int(np.shape(self.values)[1]).bit_length())

    @property
    def codes(self) -> tuple[int, int]:
        """The least and the greatest code."""
        return 0, int(np.shape(self.values)[1])

    @property
    def out_type(self) -> np.dtype[Any]:
        """The type of results."""
        return np.dtype(np.uint8)

    def _results(self, values: NDArray[Any]) -> NDArray[Any]:
        given, rising = levels_of(self, values.shape[-1])
        above, below = (compared(values[..., None], given).sum(axis=-1) for compared in (np.greater, np.less))
        return np.asarray(np.where(rising, above, below), np.uint8)


def levels_of(thresholds: Thresholds, channels: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Levels (channels, levels) and whether each channel is rising; SpecError for another number of channels.

    An absent level is the greatest int32, as no sum is above it, and the least in a falling channel.
    """
    given, rising = np.asarray(thresholds.values, np.int64), np.asarray(thresholds.rising, np.bool_)
    for count in (len(given), rising.size):
        if count not in (1, channels):
            raise SpecError(f"{count} channels of thresholds for {channels} output channels")
    every, up = np.broadcast_to(given, (channels, given.shape[1])), np.broadcast_to(rising, (channels,))
    return np.where(np.ma.getmaskarray(np.ma.asarray(thresholds.values)) & ~up[:, None], INT32.min, every), up

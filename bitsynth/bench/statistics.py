"""Statistics of measured times: medians with quartiles, and the correlation of two rankings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Summary:
    """Median, first and third quartile of `samples` figures."""

    median: float
    low: float
    high: float
    samples: int

    @classmethod
    def of(cls, values: ArrayLike) -> Summary:
        """Return the summary of one figure or more."""
        low, median, high = np.quantile(np.asarray(values, float), (0.25, 0.5, 0.75))
        return cls(float(median), float(low), float(high), np.size(values))

    @property
    def spread(self) -> float:
        """The distance of the quartiles, as a share of the median."""
        return (self.high - self.low) / self.median


def rank_correlation(model: Sequence[float], measured: Sequence[float]) -> float | None:
    """Return Spearman's coefficient; None if either has fewer than two different values."""
    if min(len(set(model)), len(set(measured))) < 2:
        return None
    return float(np.corrcoef(_ranks(model), _ranks(measured))[0, 1])


def _ranks(figures: Sequence[float]) -> NDArray[np.float64]:
    """Return the rank of each figure; equal figures share the mean of their ranks."""
    _, place, count = np.unique(figures, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(count) - (count - 1) / 2)[place]
    return ranks

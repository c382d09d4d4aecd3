"""Times of loops, round after round: every loop once a round, next to the clock.

Time is this thread's CPU time, because others may share the cores. Loops follow each other
in every round, so that what disturbs the machine disturbs all of them; a sample starts with
untimed calls that bring its operands back into L1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.bench.loops import CLOCK_CYCLES, TimedLoop
from bitsynth.progress import Progress

SAMPLE_NS = 4_000_000
_WARM_SHARE = 8
_FIRST_CALLS = 64


@dataclass(frozen=True, eq=False)
class Samples:
    """Nanoseconds a call, one row a loop and one column a round; core cycles a nanosecond, one a round."""

    nanoseconds: NDArray[Any]
    clock: NDArray[Any]

    @property
    def cycles(self) -> NDArray[Any]:
        """Core cycles a call, by the clock of the same round."""
        product: NDArray[Any] = self.nanoseconds * self.clock
        return product


def interleaved(loops: Sequence[TimedLoop], clock: Callable[[int], Any], rounds: int, progress: Progress) -> Samples:
    """Measure every loop once in each of `rounds` rounds."""
    jobs = [clock, *(loop.repeat for loop in loops)]
    calls = [calibrate_calls(job) for job in jobs]
    times = np.empty((len(jobs), rounds))
    for i in range(rounds):
        for j, (job, n) in enumerate(zip(jobs, calls, strict=True)):
            job(n // _WARM_SHARE + 1)
            times[j, i] = _time_calls(job, n) / n
        progress("measuring, rounds", i + 1, rounds)
    return Samples(times[1:], CLOCK_CYCLES / times[0])


def calibrate_calls(job: Callable[[int], Any]) -> int:
    """Return the number of calls that take about SAMPLE_NS, after one that binds the function."""
    job(1)
    n = _FIRST_CALLS
    while (spent := _time_calls(job, n)) < SAMPLE_NS / 4:
        n *= 2
    return max(1, round(n * SAMPLE_NS / spent))


def _time_calls(job: Callable[[int], Any], n: int) -> int:
    start = time.thread_time_ns()
    job(n)
    return time.thread_time_ns() - start


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

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
from numpy.typing import NDArray

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


def measure_interleaved(
    loops: Sequence[TimedLoop], clock: Callable[[int], Any], rounds: int, progress: Progress
) -> Samples:
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

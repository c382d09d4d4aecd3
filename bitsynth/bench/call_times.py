"""Times of single calls, and the implementations that are compared by them (subjects).

One thread is timed by the CPU time it takes, because others may share the cores; several by the
clock on the wall, because they wait for each other.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

_UNTIMED = 2
_UNTIMED_OF_THREADS = 100
"""Until sleeping threads are awake, and on cores of their own."""


def sample_calls(call: Callable[[], object], repeats: int, threads: int) -> list[int]:
    """Return nanoseconds of every one of `repeats` calls, after untimed ones that bring operands back into caches."""
    for _ in range(_UNTIMED if threads == 1 else _UNTIMED_OF_THREADS):
        call()
    return time_calls(call, repeats, _clock_of(threads))


def first_call(call: Callable[[], object], threads: int) -> int:
    """Return nanoseconds of one call, as it comes."""
    return time_calls(call, 1, _clock_of(threads))[0]


def _clock_of(threads: int) -> Callable[[], int]:
    return time.thread_time_ns if threads == 1 else time.perf_counter_ns


def time_calls(call: Callable[[], object], repeats: int, clock: Callable[[], int]) -> list[int]:
    """Return nanoseconds of every one of `repeats` calls by `clock`."""
    times = []
    for _ in range(repeats):
        start = clock()
        call()
        times.append(clock() - start)
    return times


Kind = Literal["fp32", "int8", "bitsynth", "packing"]


@dataclass(frozen=True, eq=False)
class Subject:
    """An implementation that is compared: its name and its kind."""

    name: str
    kind: Kind


class TimedSubject(Subject, ABC):
    """A subject that computes every layer, by the layer's name."""

    @abstractmethod
    def time(self, layer: str, repeats: int) -> list[int]:
        """Return nanoseconds of every one of `repeats` calls."""


@dataclass(frozen=True, eq=False)
class LocalSubject(TimedSubject):
    """A subject in this process: one function for each layer, on `threads` threads that must not spin between calls.

    A function that does its work `each` times counts as `each` calls, so that Python's overhead is not measured.
    """

    calls: Mapping[str, Callable[[], object]]
    threads: int
    each: int = 1

    def time(self, layer: str, repeats: int) -> list[int]:
        """Return nanoseconds of every one of `repeats` calls of `layer`."""
        return [t // self.each for t in sample_calls(self.calls[layer], repeats, self.threads)]

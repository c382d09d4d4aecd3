"""Memory that tasks read and write, to show that they may run at the same time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class MemoryRanges:
    """Ranges of memory that do not touch, sorted: the first address of each, and the address behind it."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int]]) -> MemoryRanges:
        """Return the ranges of (address, bytes), in any order."""
        ordered = np.array(sorted((start, start + size) for start, size in ranges if size), np.int64).reshape(-1, 2)
        if not len(ordered):
            return cls(np.zeros(0, np.int64), np.zeros(0, np.int64))
        reach = np.maximum.accumulate(ordered[:, 1])
        is_first = np.concatenate([[True], ordered[1:, 0] > reach[:-1]])
        is_last = np.concatenate([is_first[1:], [True]])
        return cls(ordered[is_first, 0], reach[is_last])

    def overlaps(self, other: MemoryRanges) -> bool:
        """Return whether a byte is in both."""
        if not len(self.starts) or not len(other.starts):
            return False
        before = np.searchsorted(other.starts, self.ends, side="left") - 1
        return bool((before >= 0).any() and (other.ends[before[before >= 0]] > self.starts[before >= 0]).any())


@dataclass(frozen=True)
class TaskAccesses:
    """The memory that a task writes, and all that it reads or writes, but for its own stack."""

    written: MemoryRanges
    every: MemoryRanges

    @classmethod
    def of(cls, accesses: Iterable[tuple[bool, int, int]], stack: range) -> TaskAccesses:
        """Return accesses (whether it is written, address, bytes), except accesses to a task's `stack`."""
        others = [x for x in accesses if x[1] < stack.start or x[1] + x[2] > stack.stop]
        written = MemoryRanges.of((address, size) for is_written, address, size in others if is_written)
        return cls(written, MemoryRanges.of((address, size) for _, address, size in others))

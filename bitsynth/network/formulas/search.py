"""Where the levels of monotone functions turn: many levels and channels at once, in few steps of many parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bitsynth.graph.types import Tensor

Levels = Callable[[Tensor], Tensor]
"""Levels (points, channels) of elements, likewise, that are whole numbers."""
_MAX_UNGUESSED_LEVELS = 3
"""Levels that are not worth a guess."""
_MAX_GUESS = float(1 << 62)
"""Beyond any guess that is worth a try."""
_PROBES_AROUND_GUESS = ((-1, 0), (-2, 1))
"""Elements around a guess, those first between which it should be."""
_PROBE_ROWS = 64
"""Rows of elements whose levels take little longer than those of one."""


def find_breakpoints(
    levels: Levels, low: Tensor, high: Tensor, m: int, near: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The first elements (m, channels) at which each level is reached, or lost where levels fall; and where they rise.

    Levels are monotone from `low` to `high` (channels,). An element past the end stands for none. They are found sooner
    if they are `near` those that are given.
    """
    ends = levels(np.stack([low, high]))
    rising = ends[1] >= ends[0]
    search = _Search(levels, low, high, rising, ends)
    wanted = np.repeat(np.arange(1, m + 1)[:, None], len(low), axis=1)
    if near is None and m > _MAX_UNGUESSED_LEVELS:
        near = _guess_breakpoints(search, wanted, m)
    return search.first(wanted, near), np.asarray(rising)


def _guess_breakpoints(search: _Search, wanted: Tensor, m: int) -> Tensor:
    """Where levels may turn: on the straight line between the first and the last that do."""
    first, last = np.sort(search.ends, axis=0)
    outer = search.first(np.stack([np.minimum(first + 1, m), np.maximum(last, 1)]), None)
    span = np.maximum(last - first - 1, 1)
    apart = (outer[1].astype(np.float64) - outer[0]) / span
    return np.asarray(outer[0] + np.rint((wanted - first - 1) * apart).clip(-_MAX_GUESS, _MAX_GUESS).astype(np.int64))


@dataclass(frozen=True, eq=False)
class _Search:
    """The search of many thresholds at once; `ends` are the levels of the least and the greatest elements."""

    levels: Levels
    low: Tensor
    high: Tensor
    rising: Tensor
    ends: Tensor

    def first(self, wanted: Tensor, guess: Tensor | None) -> Tensor:
        """The first elements at which levels (rows, channels) are reached or lost; `guess` tells where that may be."""
        below = np.where(self._after(self.ends[0], wanted), self.low - 1, self.low)
        above = np.where(self._after(self.ends[1], wanted), self.high, self.high + 1)
        above = np.where(below < self.low, self.low, above)
        below = np.where(above > self.high, self.high, below)
        if guess is not None:
            for around in _PROBES_AROUND_GUESS:
                below, above = self._narrow(np.stack([guess + k for k in around]), below, above, wanted)
        while most := (above > below + 1).sum(0).max():
            below, above = self._narrow(
                _spread_between(below, above, max(1, _PROBE_ROWS // int(most))), below, above, wanted
            )
        return above

    def _after(self, levels: Tensor, wanted: Tensor) -> Tensor:
        """Whether a level is reached, or lost, where these are."""
        return np.asarray((levels >= wanted) == self.rising)

    def _narrow(self, probes: Tensor, below: Tensor, above: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """The bounds of thresholds by the levels at probes (parts, rows, channels), where these are between them."""
        inside = (probes > below) & (probes < above)
        if not inside.any():
            return below, above
        rows = np.argsort(~inside.any(0), axis=0, kind="stable")[: inside.any(0).sum(0).max()]
        asked = np.take_along_axis(np.clip(probes, self.low, self.high), rows[None], 1)
        found = self.levels(asked.reshape(-1, len(self.low))).reshape(asked.shape)
        after = np.zeros(probes.shape, bool)
        np.put_along_axis(after, rows[None], self._after(found, np.take_along_axis(wanted, rows, 0)), 1)
        low = np.where(inside & ~after, probes, below).max(0)
        high = np.where(inside & after, probes, above).min(0)
        return low, high


def _spread_between(below: Tensor, above: Tensor, count: int) -> Tensor:
    """So many elements (count, ...) that part what lies between others evenly, whose distance int64 may not hold."""
    start = below.astype(np.uint64)
    apart = above.astype(np.uint64) - start
    step = np.maximum(apart // np.uint64(count + 1), np.uint64(1))
    parts = np.arange(1, count + 1, dtype=np.uint64).reshape(-1, *[1] * below.ndim)
    inside = np.minimum(parts * step, np.maximum(apart, np.uint64(1)) - np.uint64(1))
    made: Tensor = (start + inside).astype(np.int64)
    return made

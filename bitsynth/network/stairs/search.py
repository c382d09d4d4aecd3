"""Where the levels of monotone functions turn: bisection, many levels and channels at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bitsynth.graph.types import Tensor

Levels = Callable[[Tensor], Tensor]
"""Levels (points, channels) of elements, likewise, that are whole numbers."""
_FEW = 3
"""Levels that are not worth a guess."""
_FAR = float(1 << 62)
"""Beyond any guess that is worth a try."""


def turns(levels: Levels, low: Tensor, high: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """The first elements (m, channels) at which each level is reached, or lost where levels fall; and where they rise.

    Levels are monotone from `low` to `high` (channels,). An element past the end stands for none.
    """
    ends = levels(np.stack([low, high]))
    rising = ends[1] >= ends[0]
    search = _Search(levels, low, high, rising, ends)
    wanted = np.repeat(np.arange(1, m + 1)[:, None], len(low), axis=1)
    return search.first(wanted, _guess(search, wanted, m) if m > _FEW else None), np.asarray(rising)


def _guess(search: _Search, wanted: Tensor, m: int) -> Tensor:
    """Where levels may turn: on the straight line between the first and the last that do."""
    first, last = np.sort(search.ends, axis=0)
    outer = search.first(np.stack([np.minimum(first + 1, m), np.maximum(last, 1)]), None)
    span = np.maximum(last - first - 1, 1)
    apart = (outer[1].astype(np.float64) - outer[0]) / span
    return np.asarray(outer[0] + np.rint((wanted - first - 1) * apart).clip(-_FAR, _FAR).astype(np.int64))


@dataclass(frozen=True, eq=False)
class _Search:
    """Bisection of many thresholds at once; `ends` are the levels of the least and the greatest elements."""

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
        tries = [] if guess is None else [guess - 1, guess]
        while (open_ones := above > below + 1).any():
            probe = (below >> 1) + (above >> 1) + (below & above & 1)
            if tries:
                near = tries.pop(0)
                probe = np.where((near > below) & (near < above), near, probe)
            after = self._evaluated(probe, open_ones, wanted)
            below = np.where(open_ones & ~after, probe, below)
            above = np.where(open_ones & after, probe, above)
        return above

    def _after(self, levels: Tensor, wanted: Tensor) -> Tensor:
        """Whether a level is reached, or lost, where these are."""
        return np.asarray((levels >= wanted) == self.rising)

    def _evaluated(self, probe: Tensor, where: Tensor, wanted: Tensor) -> Tensor:
        """Whether levels are reached or lost at the probes that are asked for."""
        rows = np.argsort(~where, axis=0, kind="stable")[: where.sum(0).max()]
        asked = np.take_along_axis(np.clip(probe, self.low, self.high), rows, 0)
        made = np.zeros(where.shape, bool)
        np.put_along_axis(made, rows, self._after(self.levels(asked), np.take_along_axis(wanted, rows, 0)), 0)
        return made

"""Bars of how many times faster something is, in groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bitsynth.bench.statistics import Summary
from bitsynth.plots import COLORS

_WIDTH = 0.8


def bars(axes: Any, times: Sequence[Summary], label: str, n: int, of: int) -> None:
    """The `n`-th bar of `of` in every group: up from 1 where it is faster, down where it is not."""
    width = _WIDTH / of
    xs = np.arange(len(times)) + (n + 0.5) * width - _WIDTH / 2
    middle = np.array([t.median for t in times])
    spread = [middle - [t.low for t in times], [t.high for t in times] - middle]
    axes.bar(xs, middle - 1, width * 0.94, bottom=1, color=COLORS[n % len(COLORS)], label=label)
    axes.errorbar(xs, middle, spread, fmt="none", ecolor="black", elinewidth=0.8)
    axes.axhline(1, color="black", linewidth=1)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")

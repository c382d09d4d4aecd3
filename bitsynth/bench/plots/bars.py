"""Bars in groups, and bars of how many times faster something is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bitsynth.bench.plots.panels import COLORS
from bitsynth.bench.statistics import Summary

_WIDTH = 0.8
"""The width of a group; the next one is 1 away."""


def grouped(axes: Any, groups: Sequence[int], heights: Any, n: int, of: int, **more: Any) -> Any:
    """Draw the `n`-th bar of `of` in each of `groups`."""
    width = _WIDTH / of
    xs = np.asarray(groups) + (n + 0.5) * width - _WIDTH / 2
    return axes.bar(xs, heights, width * 0.94, color=COLORS[n % len(COLORS)], **more)


def times_faster(axes: Any, times: Sequence[Summary], label: str, n: int, of: int) -> Any:
    """Draw and return the `n`-th bar of `of` in every group: up from 1 if it is faster, down if it is not."""
    middle = np.array([t.median for t in times])
    spread = [middle - [t.low for t in times], [t.high for t in times] - middle]
    lines = {"ecolor": "black", "elinewidth": 0.8}
    bars = grouped(axes, range(len(times)), middle - 1, n, of, bottom=1, label=label, yerr=spread, error_kw=lines)
    axes.axhline(1, color="black", linewidth=1)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    return bars

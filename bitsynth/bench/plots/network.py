"""Plots of a network's time: a bar for the network and each of its peers, and a bar for each step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bitsynth.bench.network import PARTS, NetworkTimes
from bitsynth.bench.plots.panels import COLORS, panels, plain, save

_SERIES = {**{part: part for part in PARTS}, **dict.fromkeys(("glue", "plain"), "glue and plain C")}
"""Parts of a step's time by the label of their bars; a step is glue or plain C, never both."""
_COLORS = dict(zip(dict.fromkeys(_SERIES.values()), COLORS, strict=False))
_LONGEST = 40
"""The most letters of a step's name that are shown, its last ones."""


def draw(times: NetworkTimes, stem: Path) -> None:
    """Write `stem`.png and `stem`.svg."""
    height = 1.6 + 0.28 * max(len(times.steps), 2 * len(times.peers))
    figure, axes = panels(1, 2, 14, height, width_ratios=[1, 1.6])
    _contenders(axes[0][0], times)
    _steps(axes[0][1], times)
    save(figure, stem)


def _contenders(axes: Any, network_times: NetworkTimes) -> None:
    names = [p.name for p in network_times.peers]
    middle = [p.nanoseconds.median / 1e3 for p in network_times.peers]
    bars = axes.barh(names, middle, color=[COLORS[0], *[COLORS[1]] * (len(names) - 1)])
    labels = [f"{t:.4g} us, {p.times.median:.3g} x" for t, p in zip(middle, network_times.peers, strict=True)]
    axes.bar_label(bars, labels, padding=4)
    axes.margins(x=0.35)
    axes.invert_yaxis()
    axes.set_xlabel("microseconds a call")
    axes.set_title(
        f"{network_times.network.name}, {network_times.network.isa}, threads: {network_times.threads}", loc="left"
    )
    plain(axes, axis="x")


def _steps(axes: Any, times: NetworkTimes) -> None:
    steps = times.steps
    names = [f"{k}  {s.step.edge[-_LONGEST:]}" for k, s in enumerate(steps)]
    total, left = sum(s.nanoseconds for s in steps) / 1e3, np.zeros(len(steps))
    for label, color in _COLORS.items():
        parts = [part for part in PARTS if _SERIES[part] == label]
        took = np.array([sum(s.spends(part) for part in parts) * total for s in steps])
        share = sum(times.shares[part] for part in parts)
        axes.barh(names, took, left=left, color=color, label=f"{label} {share:.0%}")
        left += took
    axes.invert_yaxis()
    axes.set_xlabel("microseconds a step")
    axes.legend(loc="lower right", frameon=False)
    plain(axes, axis="x")

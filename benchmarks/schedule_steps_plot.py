"""A panel a configuration, a bar a step: how many times faster than the paper's form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitsynth.bench.plots.panels import COLORS, explain, panels, plain, save


def draw(rows: Sequence[Any], stem: Path) -> None:
    """Write `stem`.png and `stem`.svg."""
    configs = list(dict.fromkeys(row.config for row in rows))
    figure, axes = panels(1, len(configs), 3 + 3.6 * len(configs), 3.4, sharey=True)
    for panel, config, color in zip(axes[0], configs, COLORS, strict=False):
        _panel(panel, [row for row in rows if row.config == config], color)
        panel.set_title(f"{config}, layer C6", loc="left")
    axes[0][0].invert_yaxis()
    figure.supxlabel("times faster than the paper's form")
    explain(figure, "Each bar has the steps of all bars above it; the last bar is the layer as it runs on two threads.")
    save(figure, stem)


def _panel(axes: Any, rows: Sequence[Any], color: str) -> None:
    times = [row.times for row in rows]
    medians = [t.median for t in times]
    spread = [[t.median - t.low for t in times], [t.high - t.median for t in times]]
    bars = axes.barh([row.step for row in rows], medians, color=color, xerr=spread, error_kw={"elinewidth": 0.8})
    axes.bar_label(bars, [f"{m:.1f}" for m in medians], padding=6)
    axes.margins(x=0.2)
    plain(axes)

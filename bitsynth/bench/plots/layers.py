"""Speed of layers against the fastest fp32 and int8 baselines (CGO 2020, Figures 9, 10): a row of plots a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitsynth.bench.layers import BASELINE_KINDS, SUM, LayersReport
from bitsynth.bench.plots.bars import times_faster
from bitsynth.bench.plots.panels import panels, plain, save
from bitsynth.bench.subject import Kind

MOST_ACROSS = 3
"""Names of a legend side by side."""


def draw(reports: Sequence[LayersReport], stem: Path) -> None:
    """Write `stem`.png and `stem`.svg."""
    figure, axes = panels(len(reports), len(BASELINE_KINDS), 14, 4.6 * len(reports))
    for row, report in zip(axes, reports, strict=True):
        for panel, kind in zip(row, BASELINE_KINDS, strict=True):
            _panel(panel, report, kind)
    save(figure, stem)


def _panel(axes: Any, report: LayersReport, kind: Kind) -> None:
    """A group of bars a layer, the sum last; the title alone if there is no baseline of the kind."""
    axes.set_title(f"{report.isa}, threads: {report.threads}, beside the fastest {kind} of each layer", loc="left")
    names = [name for name in report.subjects if kind in report.row(name, SUM).against]
    for n, name in enumerate(names):
        times = [report.row(name, layer).against[kind].times for layer in report.layers]
        times_faster(axes, times, f"{name}, sum {times[-1].median:.1f}", n, len(names))
    if not names:
        axes.set_axis_off()
        return
    axes.set_xticks(range(len(report.layers)), report.layers)
    axes.set_ylabel(f"times faster than {kind}")
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.07), ncols=min(len(names), MOST_ACROSS), frameon=False)
    plain(axes)

"""Speed of layers against the fastest fp32 and int8 baselines (CGO 2020, Figures 9, 10): a row of plots a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitsynth.bench.call_times import Kind
from bitsynth.bench.layers import BASELINE_KINDS, SUM, LayersReport
from bitsynth.bench.plots.panels import MAX_SERIES, explain, legend, panels, plain, save, times_faster


def draw(reports: Sequence[LayersReport], stem: Path) -> None:
    """Write `stem`.png and `stem`.svg: at most MAX_SERIES of our subjects, and a sentence that says what to see."""
    figure, axes = panels(len(reports), len(BASELINE_KINDS), 14, 4.9 * len(reports))
    for row, report in zip(axes, reports, strict=True):
        for panel, kind in zip(row, BASELINE_KINDS, strict=True):
            _panel(panel, report, kind)
    explain(figure, " ".join(dict.fromkeys(_sentence(report) for report in reports)))
    legend(figure, axes)
    save(figure, stem)


def _panel(axes: Any, report: LayersReport, kind: Kind) -> None:
    """Draw a group of bars for each layer, the sum last; the title alone if there is no baseline of the kind."""
    axes.set_title(
        f"{report.isa}, threads: {report.threads}, compared with the fastest {kind} of each layer", loc="left"
    )
    names = _select_series(_ours(report, kind))
    for n, name in enumerate(names):
        times = [report.row(name, layer).against[kind].times for layer in report.layers]
        bars = times_faster(axes, times, name, n, len(names))
        axes.bar_label(bars, ["" for _ in times[1:]] + [f"{times[-1].median:.1f}"], padding=3, fontsize=8, rotation=90)
    if not names:
        axes.set_axis_off()
        return
    axes.set_xticks(range(len(report.layers)), report.layers)
    axes.set_ylabel(f"times faster than {kind}")
    axes.margins(y=0.12)
    plain(axes)


def _ours(report: LayersReport, kind: Kind) -> list[str]:
    """Return the subjects that are compared with a baseline of the kind."""
    return [name for name in report.subjects if kind in report.row(name, SUM).against]


def _select_series(names: Sequence[str]) -> list[str]:
    """Return at most MAX_SERIES of `names`, in their order: widths of the plain encoding, then the last ones."""
    ranked = [name for name in names if " " not in name] + [name for name in reversed(names) if " " in name]
    return [name for name in names if name in ranked[:MAX_SERIES]]


def _sentence(report: LayersReport) -> str:
    """Return what a reader should see: the gain in the sum of all layers, and where it is least."""
    gains = []
    for kind in BASELINE_KINDS:
        names = _select_series(_ours(report, kind))
        if names:
            sums = [report.row(name, SUM).against[kind].times.median for name in names]
            rows = (r for r in report.rows if r.subject in names and r.layer != SUM)
            least = min(rows, key=lambda r: r.against[kind].times.median)
            low = f"least {least.against[kind].times.median:.1f} ({least.layer})"
            gains.append(f"{min(sums):.1f} to {max(sums):.1f} times {kind} over all layers, {low}")
    left_out = sorted(
        {n for kind in BASELINE_KINDS for n in _ours(report, kind)} - set(_select_series(_ours(report, "fp32")))
    )
    more = f" Not shown: {', '.join(left_out)}." if left_out and gains else ""
    return f"Higher is better, below 1 the baseline is faster; {'; '.join(gains)}.{more}" if gains else ""

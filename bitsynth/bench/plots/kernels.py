"""Plots of speed compared with baselines, and of the model compared with measurements: a row for each set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitsynth.bench.kernels import MACS, KernelRow, KernelsReport
from bitsynth.bench.plots.panels import COLORS, MAX_SERIES, explain, panels, plain, save, times_faster

MAX_NAMES = 20
"""Kernels whose names have room below the bars; of more, each width's fastest kernel is shown."""


def draw(reports: Sequence[KernelsReport], stem: Path) -> None:
    """Write `stem`.png and `stem`.svg."""
    figure, axes = panels(len(reports), 2, 14, 4.9 * len(reports), width_ratios=(2.2, 1))
    explain(
        figure,
        "Left: where bars rise above 1 the kernel is faster than the baseline loop; with fewer bits it gains more. "
        "Right: points near a straight line mean that the model ranks kernels as the machine does.",
    )
    for (left, right), report in zip(axes, reports, strict=True):
        _bars(left, report)
        _scatter(right, report)
    save(figure, stem)


def _bars(axes: Any, report: KernelsReport) -> None:
    """Draw bars: how many times better than each baseline every kernel is; up from 1 if it is better, else down."""
    rows = _select_kernels(report)
    for n, baseline in enumerate(report.baselines):
        label = f"{baseline.name}: {baseline.what}, {_figure(baseline, report)}"
        times_faster(axes, [r.ratios[baseline.name] for r in rows], label, n, len(report.baselines))
    axes.set_xticks(range(len(rows)), [_label(r, rows) for r in rows])
    axes.set_ylabel("times faster than" if report.clock_ghz else "times fewer instructions than")
    which = "the fastest kernel of each width" if len(rows) < len(report.kernels) else "every kernel"
    axes.set_title(f"{report.isa}, {which}, one tile, packing excluded: higher is better", loc="left")
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.12), frameon=False, fontsize=9)
    plain(axes)


def _scatter(axes: Any, report: KernelsReport) -> None:
    """Draw a point for each kernel and each of the first models; on the line a model agrees with the measurement."""
    for n, (model, rho) in enumerate([*report.rank_correlation.items()][:MAX_SERIES]):
        xs = [r.model[model] for r in report.kernels]
        ys = [r.per_128_mac for r in report.kernels]
        label = f"{model}, rank correlation {'none' if rho is None else f'{rho:.3f}'}"
        axes.scatter(xs, [y.median for y in ys], color=COLORS[n % len(COLORS)], label=label)
    axes.axline((1, 1), (2, 2), color="#8c8c8c", linewidth=1, zorder=0)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel(f"modelled, per {MACS} multiply-accumulates")
    axes.set_ylabel(f"{report.unit} {'measured' if report.clock_ghz else 'executed'}")
    axes.set_title(f"{report.isa}: model and machine", loc="left")
    axes.legend(loc="lower right", frameon=False, fontsize=9)
    plain(axes)


def _select_kernels(report: KernelsReport) -> list[KernelRow]:
    """Return the kernels to show, the fastest first: all, or each width's fastest if those are more than MAX_NAMES."""
    rows = sorted(report.kernels, key=lambda r: r.per_128_mac.median)
    if len(rows) <= MAX_NAMES:
        return rows
    fastest: dict[tuple[int | None, int | None], KernelRow] = {}
    for row in rows:
        fastest.setdefault((row.act_bits, row.w_bits), row)
    return [*fastest.values()]


def _figure(row: KernelRow, report: KernelsReport) -> str:
    if row.gmac_per_second:
        return f"{row.gmac_per_second.median:.0f} GMAC/s"
    return f"{row.per_128_mac.median:.0f} {report.unit}"


def _label(row: KernelRow, rows: Sequence[KernelRow]) -> str:
    """Return the widths; with method and tile if several kernels have these widths."""
    widths = f"A{row.act_bits}W{row.w_bits}"
    alone = sum((r.act_bits, r.w_bits) == (row.act_bits, row.w_bits) for r in rows) == 1
    return widths if alone else "\n".join((widths, row.what, row.tile))

"""The report of `bitsynth bench` on layers: tables, JSON, or CSV with one line a figure."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from functools import partial

from rich.table import Table

from bitsynth.bench.layers import BASELINE_KINDS, SUM, LayerRow, LayersReport
from bitsynth.bench.setting import Basis, digests
from bitsynth.cli import figures, output
from bitsynth.host.placement import sets_of

_COLUMNS = ["isa", "threads", "contender", "kind", "layer", "median_ns", "low_ns", "high_ns", "samples"]
_KEYS = {"subject": "contender", "baseline": "peer"}
"""Keys of JSON that are not the names of their fields."""


def show(report: LayersReport) -> None:
    """Print the times of every subject, and how many times faster than baselines bitsynth is."""
    samples = output.count(report.rows[0].nanoseconds.samples, "sample")
    clock = "CPU time" if report.threads == 1 else "wall time"
    threads = output.count(report.threads, "thread")
    head = f"{report.isa}  {report.form}; {threads}; medians of {samples}, {clock}; IQR of the sum"
    output.write(head, "")
    for title, lines in (("microseconds", _times(report)), ("times faster", _ratios(report))):
        if lines:
            output.write(output.fit_table(partial(_table, title, report.layers, lines)), "")
    for package, about in report.about.items():
        output.write(f"{package}  {', '.join(f'{key} {value}' for key, value in about.items())}")
    for name, why in report.left_out.items():
        output.warning(f"{report.isa}: no {name}: {why}")


def basis(isas: Iterable[str], widths: Collection[tuple[int, int]]) -> Basis:
    """Return the basis of figures: digests of the kernels that layers of these widths choose from."""
    return Basis(digests({x for isa in isas for x in sets_of(isa)}, widths, layers=True))


def as_json(reports: Sequence[LayersReport], basis: Basis) -> bytes:
    """Return the setting, the kernels and every figure of `reports` as JSON text."""
    return figures.as_json(basis, [r.isa for r in reports], reports=[asdict(r, dict_factory=_by_key) for r in reports])


def _by_key(fields: Iterable[tuple[str, object]]) -> dict[str, object]:
    return {_KEYS.get(name, name): value for name, value in fields}


def as_csv(reports: Sequence[LayersReport]) -> bytes:
    """Return a line for each subject and layer as CSV text."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow([*_COLUMNS, *(title for k in BASELINE_KINDS for title in (f"{k}_peer", f"times_{k}"))])
    lines.writerows(_line(report, row) for report in reports for row in report.rows)
    return text.getvalue().encode()


def _line(report: LayersReport, row: LayerRow) -> list[object]:
    took = row.nanoseconds
    baselines = [row.against.get(kind) for kind in BASELINE_KINDS]
    against = [part for a in baselines for part in ((a.baseline, a.times.median) if a else ("", ""))]
    figures = [took.median, took.low, took.high, took.samples]
    return [report.isa, report.threads, row.subject, row.kind, row.layer, *figures, *against]


def _table(title: str, layers: Sequence[str], lines: Iterable[Sequence[str]], gap: int) -> Table:
    table = output.table(title, *layers, "IQR", right=[*layers, "IQR"], whole=[title], gap=gap)
    for line in lines:
        table.add_row(*line)
    return table


def _times(report: LayersReport) -> list[list[str]]:
    return [
        [
            name,
            *(_microseconds(report.row(name, layer)) for layer in report.layers),
            f"{report.row(name, SUM).nanoseconds.spread:.1%}",
        ]
        for name in report.subjects
    ]


def _microseconds(row: LayerRow) -> str:
    median = row.nanoseconds.median / 1e3
    return f"{median:.1f}" if median < 100 else f"{median:.0f}"


def _ratios(report: LayersReport) -> list[list[str]]:
    return [
        [
            f"{name} x {kind}",
            *(f"{report.row(name, layer).against[kind].times.median:.2f}" for layer in report.layers),
            f"{report.row(name, SUM).against[kind].times.spread:.1%}",
        ]
        for name in report.subjects
        for kind in report.row(name, SUM).against
    ]

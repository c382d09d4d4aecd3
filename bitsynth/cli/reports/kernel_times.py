"""The report of `bitsynth bench` on kernels: tables of baselines and kernels, or all of it as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial

from rich.table import Table

from bitsynth.bench.kernels import COUNT_MODEL, MACS, CachedKernels, KernelRow, KernelsReport
from bitsynth.bench.setting import Basis, digests
from bitsynth.cli import figures, output

_Column = tuple[str, Callable[[KernelRow], str]]


def show(report: KernelsReport) -> None:
    """Print the baselines, the kernels by widths and then by cost, and how well the model ranks them."""
    kernels = sorted(report.kernels, key=lambda r: (r.act_bits, r.w_bits, r.per_128_mac.median))
    figures, peaks = (_speed(), _peaks(report.baselines)) if report.clock_ghz else (_counts(), [])
    output.write(f"{report.isa}  {_setting(report)}", "")
    if report.baselines:
        columns = [("tile", _tile), ("K", _depth), *figures, *peaks, ("what", _what)]
        output.write(output.fit_table(partial(_table, ("baseline", _name), report.baselines, columns)), "")
    columns = [("tile", _tile), *figures, *_ratios(report), *_models(report)]
    columns += [("what", _what)] if len({r.what for r in kernels}) > 1 else []
    output.write(output.fit_table(partial(_table, ("kernel", _widths), kernels, columns)), "")
    ranks = ", ".join(f"{model} {_coefficient(rho)}" for model, rho in report.rank_correlation.items())
    output.write(f"rank correlation (Spearman) of {report.unit} with the model: {ranks}", "")
    for name, why in report.left_out.items():
        output.warning(f"{report.isa}: no baseline {name}: {why}")
    for problem in report.problems:
        output.warning(str(problem))


def basis(chosen: Sequence[CachedKernels]) -> Basis:
    """Return the basis of figures: digests of these kernels."""
    specs = [kernel.spec for kernels in chosen for kernel, _ in kernels.kernels]
    return Basis(digests([kernels.isa for kernels in chosen], {(spec.act.bits, spec.wgt.bits) for spec in specs}))


def as_json(reports: Sequence[KernelsReport], basis: Basis) -> bytes:
    """Return the setting, the kernels and every figure of `reports` as JSON text."""
    sets = [{**asdict(r), "problems": [str(p) for p in r.problems]} for r in reports]
    return figures.as_json(basis, [r.isa for r in reports], sets=sets)


def _setting(report: KernelsReport) -> str:
    depths = sorted({r.k for r in report.kernels})
    k = f"K = {depths[0]}" if len(depths) == 1 else f"K = {depths[0]} to {depths[-1]}"
    if report.clock_ghz is None:
        return f"{report.run}, {report.compiler}; one tile, {k}; instructions executed, which are no times"
    samples = output.count(report.clock_ghz.samples, "sample")
    return f"{report.run}, {report.compiler}, {report.clock_ghz.median:.2f} GHz; one tile, {k}; medians of {samples}"


def _table(first: _Column, rows: Sequence[KernelRow], columns: Sequence[_Column], gap: int) -> Table:
    titles = [name for name, _ in columns]
    numbers = [t for t in titles if t != "what"]
    table = output.table(first[0], *titles, right=numbers, whole=[first[0]], gap=gap)
    for row in rows:
        table.add_row(*(text(row) for _, text in (first, *columns)))
    return table


def _speed() -> list[_Column]:
    return [
        ("GMAC/s", lambda r: f"{r.gmac_per_second.median:.1f}" if r.gmac_per_second else "-"),
        ("IQR", lambda r: f"{r.per_128_mac.spread:.1%}"),
    ]


def _counts() -> list[_Column]:
    return [("a call", lambda r: f"{r.per_128_mac.median * r.macs / MACS:,.0f}")]


def _peaks(rows: Sequence[KernelRow]) -> list[_Column]:
    """Return multiply-accumulates a cycle, and for each CPU the peak and the share of it that was reached."""

    def peak(cpu: str, row: KernelRow) -> str:
        if cpu not in row.peak:
            return "-"
        return f"{row.peak[cpu]:g} ({MACS / row.per_128_mac.median / row.peak[cpu]:.0%})"

    cpus = dict.fromkeys(cpu for r in rows for cpu in r.peak)
    reached: _Column = ("MAC/cycle", lambda r: f"{MACS / r.per_128_mac.median:.1f}")
    return [reached, *((f"peak {cpu}", partial(peak, cpu)) for cpu in cpus)]


def _ratios(report: KernelsReport) -> list[_Column]:
    def ratio(name: str, row: KernelRow) -> str:
        return f"{row.ratios[name].median:.2f}"

    return [(f"x {b.name.rpartition('_')[2]}", partial(ratio, b.name)) for b in report.baselines]


def _models(report: KernelsReport) -> list[_Column]:
    """Return the measured figures per 128 multiply-accumulates, and the models' figures."""
    names = dict.fromkeys([*report.rank_correlation, *report.kernels[0].model])
    shown = [n for n in names if n != COUNT_MODEL or n in report.rank_correlation]
    measured: _Column = ("cycles" if report.clock_ghz else "executed", lambda r: f"{r.per_128_mac.median:.2f}")

    def format_model(name: str, row: KernelRow) -> str:
        return f"{row.model[name]:.2f}" if name in row.model else "-"

    def format_prediction(name: str, row: KernelRow) -> str:
        return f"{row.scoreboard[name]:.2f}" if name in row.scoreboard else "-"

    ruled = dict.fromkeys(cpu for row in report.kernels for cpu in row.scoreboard)
    boards = [(f"{cpu} scoreboard", partial(format_prediction, cpu)) for cpu in ruled]
    return [measured, *((n, partial(format_model, n)) for n in shown), *boards]


def _name(row: KernelRow) -> str:
    return row.name


def _widths(row: KernelRow) -> str:
    return f"A{row.act_bits}W{row.w_bits}"


def _tile(row: KernelRow) -> str:
    return row.tile


def _depth(row: KernelRow) -> str:
    return str(row.k)


def _what(row: KernelRow) -> str:
    return row.what


def _coefficient(rho: float | None) -> str:
    return "none" if rho is None else f"{rho:.3f}"

"""The report of `bitsynth explore`: a map of winners, or every plan as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from rich.table import Table
from rich.text import Text

from bitsynth.bench.setting import Basis, digests
from bitsynth.cli import figures, output
from bitsynth.synth.planner import PlannedKernel
from bitsynth.synth.survey import INT8, MACS, Cell, Map, PeakBaseline

STYLES = {
    "popcount": "cyan",
    "lookup": "green",
    "pairs": "bright_green",
    "multiply": "yellow",
    "fip": "bright_yellow",
    "dot": "magenta",
    INT8: "reverse",
}


def show(found: Map) -> None:
    """Print the map and its legend. In a narrow terminal a cell has two lines, or three with predicted cycles."""
    separators = (" / ", "  "), (" / ", "\n"), ("\n/ ", "\n")
    table = output.fit_table(*(partial(_table, found, *pair) for pair in separators))
    output.write(Text.assemble((found.isa, "bold"), " on ", (found.cpu, "bold")), "", table, "", *legend(found))


def _table(found: Map, slash: str, separator: str, gap: int) -> Table:
    """Return a row for each width of activations, with `slash` before predicted cycles, `separator` before ratios."""
    title = f"winner, cycles{separator}x int8, x fp32"
    columns = [f"W{w}\n{title}" for w in sorted({c.w_bits for c in found.cells})]
    table = output.table("bits", *columns, gap=gap + 1)
    for act_bits in sorted({c.act_bits for c in found.cells}):
        row = [c for c in found.cells if c.act_bits == act_bits]
        table.add_row(f"A{act_bits}", *(_cell(found, c, slash, separator) for c in row))
    return table


def legend(found: Map) -> list[str]:
    """Return lines that explain a cell, what it is compared with, and that nothing is proved."""
    baselines = [r for r in (found.int8, found.fp32) if r]
    compared = ", ".join(f"{r.name} ({r.what}) at {r.peak:g}" for r in baselines) or "nothing: no peak is known here"
    return [
        f"A: bits of unsigned activations. W: bits of bipolar weights (signed with 8 bits). Cycles are per {MACS} "
        "multiply-accumulates. x int8, x fp32: how many times faster the best kernel is than an int8 and an fp32 loop.",
        *_slash(found),
        f"* int8 is faster than every kernel here. Compared with, in multiply-accumulates a cycle: {compared}.",
        "Other encodings run the same kernels; `bitsynth bench resnet18 --weight-encoding bipolar,signed,ternary` "
        "measures what their accumulators cost in addition.",
        "Kernels are planned and priced by the cost model, not proved; `bitsynth synth` proves them.",
    ]


def _slash(found: Map) -> list[str]:
    """Return a line that explains cycles after a slash, if there are any."""
    if not any(p.scoreboard for c in found.cells for p in c.plans):
        return []
    return [f"After a slash: cycles that a scoreboard model predicts for {found.cpu}, with loads, flushes and spills."]


def winner(found: Map, cell: Cell, slash: str = " / ") -> str:
    """Return method and cycles, after a slash those predicted by the scoreboard; with a star if int8 is faster."""
    if (best := found.winner(cell)) is None:
        return "-"
    if best[0] == INT8:
        return f"{INT8} {best[1]:.2f} *"
    predicted = cell.best.scoreboard if cell.best else None
    return f"{best[0]} {best[1]:.2f}" + ("" if predicted is None else f"{slash}{predicted:.2f}")


def ratios(found: Map, cell: Cell) -> str:
    """Return the speed of the best kernel relative to int8 and to fp32."""
    return " ".join(_times(cell.times(baseline)) for baseline in (found.int8, found.fp32))


def basis(isas: Iterable[str]) -> Basis:
    """Return the basis of figures: digests of the kernels that the same planner made."""
    return Basis(digests(set(isas), layers=False))


def as_json(maps: Sequence[Map], basis: Basis) -> bytes:
    """Return the setting, the kernels and the maps as JSON text."""
    return figures.as_json(basis, proved=False, maps=facts(maps))


def facts(maps: Sequence[Map]) -> list[dict[str, Any]]:
    """Return every plan of `maps`, for JSON."""
    return [_facts(m) for m in maps]


def _cell(found: Map, cell: Cell, slash: str, separator: str) -> Text:
    best = found.winner(cell)
    text = (winner(found, cell, slash), STYLES[best[0]] if best else "dim")
    return Text.assemble(text, separator, (ratios(found, cell), "dim"))


def _times(ratio: float | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio:.1f}x" if ratio >= 10 else f"{ratio:.2f}x"


def _facts(found: Map) -> dict[str, Any]:
    return {
        "isa": found.isa,
        "cpu": found.cpu,
        "int8": _baseline(found.int8),
        "fp32": _baseline(found.fp32),
        "cells": [
            {
                "act_bits": c.act_bits,
                "w_bits": c.w_bits,
                "winner": best[0] if (best := found.winner(c)) else None,
                "cycles": best[1] if best else None,
                "times_int8": _round(c.times(found.int8)),
                "times_fp32": _round(c.times(found.fp32)),
                "kernels": [_plan(p) for p in c.plans if p.cycles is not None],
                "without_kernel": {p.method: p.why for p in c.plans if p.cycles is None},
            }
            for c in found.cells
        ],
    }


def _baseline(baseline: PeakBaseline | None) -> dict[str, Any] | None:
    return {**asdict(baseline), "cycles": baseline.cycles} if baseline else None


def _plan(plan: PlannedKernel) -> dict[str, Any]:
    return {
        "method": plan.method,
        "cycles": plan.cycles,
        "scoreboard": plan.scoreboard,
        "tile": plan.tile,
        "seconds": plan.seconds,
    }


def _round(x: float | None) -> float | None:
    return None if x is None else round(x, 4)

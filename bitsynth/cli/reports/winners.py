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
    "matrix": "bright_magenta",
    INT8: "reverse",
}


def show(width_map: Map) -> None:
    """Print the map and its legend. In a narrow terminal a cell has two lines, or three with predicted cycles."""
    separators = (" / ", "  "), (" / ", "\n"), ("\n/ ", "\n")
    table = output.fit_table(*(partial(_table, width_map, *pair) for pair in separators))
    output.write(
        Text.assemble((width_map.isa, "bold"), " on ", (width_map.cpu, "bold")), "", table, "", *legend(width_map)
    )


def _table(width_map: Map, slash: str, separator: str, gap: int) -> Table:
    """Return a row for each width of activations, with `slash` before predicted cycles, `separator` before ratios."""
    title = f"winner, cycles{separator}x int8, x fp32"
    columns = [f"W{w}\n{title}" for w in sorted({c.w_bits for c in width_map.cells})]
    table = output.table("bits", *columns, gap=gap + 1)
    for act_bits in sorted({c.act_bits for c in width_map.cells}):
        row = [c for c in width_map.cells if c.act_bits == act_bits]
        table.add_row(f"A{act_bits}", *(_cell(width_map, c, slash, separator) for c in row))
    return table


def legend(width_map: Map) -> list[str]:
    """Return lines that explain a cell, what it is compared with, and that nothing is proved."""
    baselines = [r for r in (width_map.int8, width_map.fp32) if r]
    compared = ", ".join(f"{r.name} ({r.what}) at {r.peak:g}" for r in baselines) or "nothing: no peak is known here"
    starred = any((best := width_map.winner(c)) and best[0] == INT8 for c in width_map.cells)
    star = "* int8 is faster than every kernel here. " if starred else ""
    return [
        f"A: bits of unsigned activations. W: bits of bipolar weights (signed with 8 bits). Cycles are per {MACS} "
        "multiply-accumulates. x int8, x fp32: how many times faster the best kernel is than an int8 and an fp32 loop.",
        *_slash(width_map),
        f"{star}Compared with, in multiply-accumulates a cycle: {compared}.",
        "Other encodings run the same kernels; `bitsynth bench resnet18 --weight-encoding bipolar,signed,ternary` "
        "measures what their accumulators cost in addition.",
        "Kernels are planned and priced by the cost model, not proved; `bitsynth synth` proves them.",
    ]


def _slash(width_map: Map) -> list[str]:
    """Return a line that explains cycles after a slash, if there are any."""
    if not any(p.scoreboard for c in width_map.cells for p in c.plans):
        return []
    return [
        f"After a slash: cycles that a scoreboard model predicts for {width_map.cpu}, with loads, flushes and spills."
    ]


def winner(width_map: Map, cell: Cell, slash: str = " / ") -> str:
    """Return method and cycles, after a slash those predicted by the scoreboard; with a star if int8 is faster."""
    if (best := width_map.winner(cell)) is None:
        return "-"
    if best[0] == INT8:
        return f"{INT8} {best[1]:.2f} *"
    predicted = cell.best.scoreboard if cell.best else None
    return f"{best[0]} {best[1]:.2f}" + ("" if predicted is None else f"{slash}{predicted:.2f}")


def ratios(width_map: Map, cell: Cell) -> str:
    """Return the speed of the best kernel relative to int8 and to fp32."""
    return " ".join(_times(cell.times(baseline)) for baseline in (width_map.int8, width_map.fp32))


def basis(isas: Iterable[str]) -> Basis:
    """Return the basis of figures: digests of the kernels that the same planner made."""
    return Basis(digests(set(isas), layers=False))


def as_json(maps: Sequence[Map], basis: Basis) -> bytes:
    """Return the setting, the kernels and the maps as JSON text."""
    return figures.as_json(basis, proved=False, maps=facts(maps))


def facts(maps: Sequence[Map]) -> list[dict[str, Any]]:
    """Return every plan of `maps`, for JSON."""
    return [_facts(m) for m in maps]


def _cell(width_map: Map, cell: Cell, slash: str, separator: str) -> Text:
    best = width_map.winner(cell)
    text = (winner(width_map, cell, slash), STYLES[best[0]] if best else "dim")
    return Text.assemble(text, separator, (ratios(width_map, cell), "dim"))


def _times(ratio: float | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio:.1f}x" if ratio >= 10 else f"{ratio:.2f}x"


def _facts(width_map: Map) -> dict[str, Any]:
    return {
        "isa": width_map.isa,
        "cpu": width_map.cpu,
        "int8": _baseline(width_map.int8),
        "fp32": _baseline(width_map.fp32),
        "cells": [
            {
                "act_bits": c.act_bits,
                "w_bits": c.w_bits,
                "winner": best[0] if (best := width_map.winner(c)) else None,
                "cycles": best[1] if best else None,
                "times_int8": _round(c.times(width_map.int8)),
                "times_fp32": _round(c.times(width_map.fp32)),
                "kernels": [_plan(p) for p in c.plans if p.cycles is not None],
                "without_kernel": {p.method: p.why for p in c.plans if p.cycles is None},
            }
            for c in width_map.cells
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

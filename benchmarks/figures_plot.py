"""Vector operations per 128 multiply-accumulates of every kernel and of the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitsynth.bench.plots.panels import explain, panels, plain, save

BARS = {"neon": ("NEON", "#0072b2"), "avx2": ("AVX2", "#e69f00")}
PAPER = "#8c8c8c"
WIDTH = 0.28


def draw(rows: Sequence[dict[str, Any]], stem: Path) -> None:
    """Write `stem`.png and `stem`.svg."""
    pairs = sorted({(r["act_bits"], r["w_bits"]) for r in rows}, key=lambda p: (p[0] * p[1], p))
    at = {pair: float(n) for n, pair in enumerate(pairs)}
    figure, ((axes,),) = panels(1, 1, 11, 5)
    _bars(axes, rows, at)
    axes.set_xticks(list(at.values()), [f"A{x}W{y}" for x, y in pairs])
    axes.set_xlim(-0.6, len(pairs) - 0.4)
    axes.set_xlabel("bits of activations (A) and weights (W), unsigned x bipolar")
    axes.set_ylabel("vector operations per 128 multiply-accumulates")
    axes.set_title("Cost of the synthesized kernels: lower is better", loc="left")
    plain(axes, axis="y")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[1:] + handles[:1], labels[1:] + labels[:1], loc="upper left", frameon=False)
    axes.margins(y=0.1)
    explain(
        figure, "The distance from a bar to its black line is what flushes, zeroing and copies add to the inner loop."
    )
    save(figure, stem)


def _bars(axes: Any, rows: Sequence[dict[str, Any]], at: dict[tuple[int, int], float]) -> None:
    place = {"paper": -1, "neon": 0, "avx2": 1}
    paper = [r for r in rows if r["paper"] is not None]
    groups = [(paper, "paper", "paper", PAPER, "NEON in CGO 2020")]
    for isa, (name, color) in BARS.items():
        mine = [r for r in rows if r["isa"] == isa]
        groups.append((mine, isa, "ops_per_128_mac", color, f"{name}, bitsynth"))
    for some, key, field, color, label in groups:
        xs = [at[r["act_bits"], r["w_bits"]] + place[key] * WIDTH for r in some]
        bars = axes.bar(xs, [r[field] for r in some], WIDTH * 0.94, color=color, label=label)
        texts = [f"{r[field]:.{0 if key == 'paper' else 2}f}" for r in some]
        axes.bar_label(bars, texts, padding=3, fontsize=8, rotation=90)
    _bounds(axes, rows, at, place)


def _bounds(axes: Any, rows: Sequence[dict[str, Any]], at: dict[tuple[int, int], float], place: dict[str, int]) -> None:
    centres = [at[r["act_bits"], r["w_bits"]] + place[r["isa"]] * WIDTH for r in rows]
    bounds = [r["lower_bound"] for r in rows]
    half = WIDTH * 0.47
    axes.hlines(
        bounds,
        [x - half for x in centres],
        [x + half for x in centres],
        color="black",
        linewidth=1.2,
        label="lower bound of the steady loop",
    )

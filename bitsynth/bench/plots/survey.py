"""Maps of winners, and curves of what low bits gain over int8: a row of plots for each processor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.patches import Patch, Rectangle

from bitsynth.bench.plots.panels import COLORS, MAX_SERIES, explain, panels, plain, save
from bitsynth.synth.survey import INT8, MACS, Cell, Map

_COLORS = {
    "popcount": "#56b4e9",
    "lookup": "#66c2a5",
    "pairs": "#2a9d78",
    "multiply": "#f0c05a",
    "fip": "#e6d36a",
    "dot": "#d9a0c0",
    "matrix": "#b07aa1",
    INT8: "#d0d0d0",
}


def draw(maps: Sequence[Map], stem: Path) -> None:
    """Write `stem`.png and `stem`.svg."""
    figure, axes = panels(len(maps), 2, 14, 5.6 * len(maps), width_ratios=(1.35, 1))
    explain(
        figure,
        "Left: the fastest method for each pair of widths and its cycles; hatched cells: an int8 loop is faster. "
        "Right: a curve above 1 is faster than int8.",
    )
    for (left, right), width_map in zip(axes, maps, strict=True):
        _map(left, width_map)
        _curves(right, width_map)
    save(figure, stem)


def _map(axes: Any, width_map: Map) -> None:
    """Draw a cell for each pair of widths, in the colour of the fastest method."""
    acts, wgts = _bits(width_map)
    for cell in width_map.cells:
        _cell(axes, width_map, cell, wgts.index(cell.w_bits), acts.index(cell.act_bits))
    axes.set_xlim(-0.5, len(wgts) - 0.5)
    axes.set_ylim(len(acts) - 0.5, -0.5)
    axes.set_xticks(range(len(wgts)), [f"W{w}" for w in wgts])
    axes.set_yticks(range(len(acts)), [f"A{a}" for a in acts])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    title = f"{width_map.isa} on {width_map.cpu}: cycles per {MACS} MAC; below them: times faster than int8, than fp32"
    axes.set_title(title, loc="left")
    won = [best[0] for cell in width_map.cells if (best := width_map.winner(cell))]
    patches = [Patch(color=color, label=_label(name)) for name, color in _COLORS.items() if name in won]
    axes.legend(handles=patches, loc="upper left", bbox_to_anchor=(0, -0.05), ncols=len(patches), frameon=False)


def _cell(axes: Any, width_map: Map, cell: Cell, x: int, y: int) -> None:
    best = width_map.winner(cell)
    color = _COLORS[best[0]] if best else "white"
    hatch = "///" if best and best[0] == INT8 else None
    axes.add_patch(Rectangle((x - 0.49, y - 0.48), 0.98, 0.96, facecolor=color, edgecolor="white", hatch=hatch))
    title = f"{best[0]} {best[1]:.2f}" if best else "no kernel"
    times = "   ".join(f"{t:.2f}x" if (t := cell.times(r)) else "-" for r in (width_map.int8, width_map.fp32))
    axes.text(x, y - 0.15, title, ha="center", va="center", fontweight="bold")
    axes.text(x, y + 0.22, times, ha="center", va="center", fontsize=8.5)


def _curves(axes: Any, width_map: Map) -> None:
    """Draw curves: how many times faster than int8, or, if its peak is unknown, multiply-accumulates a cycle.

    Of more than MAX_SERIES widths of weights the first ones and the last one have a curve.
    """
    acts, wgts = _bits(width_map)
    shown = wgts if len(wgts) <= MAX_SERIES else [*wgts[: MAX_SERIES - 1], wgts[-1]]
    for color, w in zip(COLORS, shown, strict=False):
        cells = [c for c in width_map.cells if c.w_bits == w and c.best]
        ys = [_height(width_map, c) for c in cells]
        axes.plot([c.act_bits for c in cells], ys, marker="o", color=color, label=f"W{w}")
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xticks(acts, [f"A{a}" for a in acts])
    if width_map.int8:
        axes.axhline(1, color="black", linewidth=1)
        axes.set_title(
            f"best kernel compared with int8: {width_map.int8.name}, {width_map.int8.peak:g} MAC a cycle", loc="left"
        )
        axes.set_ylabel("times faster than int8 at its peak")
    else:
        axes.set_ylabel("multiply-accumulates a cycle")
    axes.legend(loc="upper right", frameon=False)
    plain(axes)


def _height(width_map: Map, cell: Cell) -> float:
    times = cell.times(width_map.int8)
    if times is not None:
        return times
    return MACS / cell.best.cycles if cell.best and cell.best.cycles else 0.0


def _bits(width_map: Map) -> tuple[list[int], list[int]]:
    return sorted({c.act_bits for c in width_map.cells}), sorted({c.w_bits for c in width_map.cells})


def _label(name: str) -> str:
    return "int8 is faster here" if name == INT8 else name

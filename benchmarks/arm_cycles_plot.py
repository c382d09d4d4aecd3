"""A panel a processor, a group of bars a width: cycles by the model, and by the scoreboard on compiled code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bitsynth.bench.plots.panels import draw_bars, explain, panels, plain, save

BARS = {"model": "model: bound, loads apart", "predicted": "predicted from the kernel", "gcc": "gcc", "clang": "clang"}
GROUP = 0.8
GOAL = "#d55e00"
LOOPS = {"fp32": "#8c8c8c", "int8": "black"}


def draw(
    best: Sequence[tuple[str, str, Sequence[Any]]], rows: Sequence[Any], goals: Mapping[str, Any], folder: Path
) -> None:
    """Write arm_cycles.png and .svg: for each processor and width the rows of its best kernel, with goal and loops."""
    cpus = [cpu for cpu in goals if any(row.cpu == cpu for row in rows)]
    figure, axes = panels(len(cpus), 1, 11, 3.6 * len(cpus))
    for (panel,), cpu in zip(axes, cpus, strict=True):
        _panel(panel, {w: some for c, w, some in best if c == cpu and some}, goals[cpu])
        loops = _loops(panel, [row for row in rows if row.cpu == cpu])
        title = (
            f"Cortex-{cpu.upper()}: predicted cycles per 128 multiply-accumulates, K = 576: lower is better; {loops}"
        )
        panel.set_title(title, loc="left")
    explain(
        figure,
        "The better compiler's bar stays below its goal, the red line, at every width; what bitsynth predicts from the "
        "kernel alone is close to what the compilers' code takes.",
    )
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower left", ncols=5, frameon=False)
    save(figure, folder / "arm_cycles")


def _panel(axes: Any, found: Mapping[str, Sequence[Any]], goals: Mapping[str, float]) -> None:
    places = range(len(found))
    for n, (name, label) in enumerate(BARS.items()):
        heights = [_height(some, name) for some in found.values()]
        bars = draw_bars(axes, places, heights, n, len(BARS), label=label)
        figures = axes.bar_label(bars, [f"{x:.2f}" if x else "" for x in heights], padding=3, fontsize=8)
        for text in figures:  # readable where a goal's line crosses it
            text.set(bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6}, zorder=3)
    for place, width in zip(places, found, strict=True):
        ends = place - GROUP / 2, place + GROUP / 2
        axes.hlines(goals[width], *ends, color=GOAL, linewidth=2, label=None if place else "goal")
        axes.text(ends[1], goals[width], f" {goals[width]:g}", color=GOAL, fontsize=8, va="center")
    axes.set_xticks(places, [f"{width}\n{some[0].method}" for width, some in found.items()])
    axes.margins(y=0.15)
    axes.set_ylim(axes.get_ylim())
    plain(axes, axis="y")


def _height(some: Sequence[Any], name: str) -> float:
    if name in ("model", "predicted"):
        return float(getattr(some[0], name))
    return next((row.scoreboard for row in some if row.compiler == name), 0.0)


def _loops(axes: Any, rows: Sequence[Any]) -> str:
    """Lines of the best fp32 and int8 loops that are not far above the bars; both in words."""
    loops = {name: min((row.scoreboard for row in rows if row.widths == name), default=0.0) for name in LOOPS}
    for name, least in loops.items():
        if 0 < least < axes.get_ylim()[1]:
            axes.axhline(least, color=LOOPS[name], linewidth=1, linestyle="--")
            axes.text(1, least, f" {name}", color=LOOPS[name], transform=axes.get_yaxis_transform(), va="center")
    return "loops: " + ", ".join(f"{name} {least:.1f}" for name, least in loops.items())

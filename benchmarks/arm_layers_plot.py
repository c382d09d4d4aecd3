"""A group of bars a layer: instructions and misses of bitsynth for one instruction or miss of the paper's form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitsynth.bench.plots.panels import draw_bars, explain, panels, plain, save

PANELS = {
    "instructions": "Executed instructions",
    "l1_misses": "Misses of a 32 KiB L1 data cache",
    "l2_misses": "Misses of a 512 KiB L2 cache",
}


def draw(rows: Sequence[Any], stem: Path) -> None:
    """Write `stem`.png and `stem`.svg."""
    figure, axes = panels(len(PANELS), 1, 11, 10, sharex=True)
    for (panel,), (what, title) in zip(axes, PANELS.items(), strict=True):
        _panel(panel, rows, what)
        panel.set_title(f"{title}, bitsynth for one of the paper's form (NEON, emulated): lower is better", loc="left")
    axes[0, 0].legend(loc="upper left", bbox_to_anchor=(0, -0.04), ncols=4, frameon=False)
    explain(figure, "Bars below the black line take less than half of the paper's form, bars below the grey line less.")
    save(figure, stem)


def _panel(axes: Any, rows: Sequence[Any], what: str) -> None:
    configs = list(dict.fromkeys(row.config for row in rows))
    for n, config in enumerate(configs):
        some = [row for row in rows if row.config == config]
        ratios = [r.ratio(what) for r in some]
        bars = draw_bars(axes, range(len(some)), ratios, n, len(configs), label=config)
        axes.bar_label(bars, [f"{x:.2f}" for x in ratios], padding=2, fontsize=7, rotation=90)
        axes.set_xticks(range(len(some)), [r.layer for r in some])
    axes.axhline(0.5, color="black", linewidth=1, label="half")
    axes.axhline(1, color="#8c8c8c", linewidth=1)
    axes.margins(y=0.2)
    plain(axes)

"""A panel a processor, a group of bars a layer: the fp32 loop's cycles over our layer's, by width."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitsynth.bench.plots.panels import draw_bars, explain, panels, plain, save

PAPER = "black"
GROUP = 0.8


def draw(rows: Sequence[Any], stem: Path) -> None:
    """Write `stem`.png and `stem`.svg."""
    cpus = list(dict.fromkeys(row.cpu for row in rows))
    figure, axes = panels(len(cpus), 1, 12, 3.6 * len(cpus))
    for (panel,), cpu in zip(axes, cpus, strict=True):
        _panel(panel, [row for row in rows if row.cpu == cpu])
        title = f"Cortex-{cpu.upper()}: cycles of the fp32 loop for one of a whole layer, predicted: higher is better"
        panel.set_title(title, loc="left")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower left", ncols=7, frameon=False)
    explain(
        figure,
        "Layers gain more with fewer bits. Bars above the dashed line are faster than the int8 loop, too; black marks "
        "are the paper's measurements on a Raspberry Pi 3.",
    )
    save(figure, stem)


def _panel(axes: Any, rows: Sequence[Any]) -> None:
    configs, layers = (list(dict.fromkeys(getattr(row, name) for row in rows)) for name in ("config", "layer"))
    wide = GROUP / len(configs)
    for n, config in enumerate(configs):
        some = [row for row in rows if row.config == config]
        times = [row.times("fp32") for row in some]
        bars = draw_bars(axes, range(len(some)), times, n, len(configs), label=config)
        axes.bar_label(bars, [f"{x:.1f}" for x in times], padding=2, fontsize=7, rotation=90)
        for bar, row in zip(bars, some, strict=True):
            if row.paper:
                middle = bar.get_x() + bar.get_width() / 2
                ends = middle - wide / 2, middle + wide / 2
                label = "the paper, measured" if (n, row.layer) == (0, layers[0]) else None
                axes.hlines(row.fp32 / row.paper, *ends, color=PAPER, linewidth=3, label=label)
    int8 = rows[0].fp32 / rows[0].int8
    axes.axhline(int8, color="#8c8c8c", linewidth=1, linestyle="--", label="int8 loop")
    axes.set_xticks(range(len(layers)), layers)
    axes.margins(y=0.2)
    plain(axes, axis="y")

"""A panel a processor, a point a kernel: compiled cycles over predicted ones, by compiled cycles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitsynth.bench.plots.panels import COLORS, panels, plain, save
from bitsynth.spec.options import METHODS

WITHIN = 0.1
"""How far off a prediction may be."""


def draw(found: Sequence[Any], stem: Path) -> None:
    """Write stem.png and .svg."""
    cpus, present = sorted({row.cpu for row in found}), {row.method for row in found}
    colors = {method: color for method, color in zip(METHODS, COLORS, strict=True) if method in present}
    figure, axes = panels(1, len(cpus), 5 * len(cpus), 4.5, sharey=True)
    for panel, cpu in zip(axes[0], cpus, strict=True):
        for method, color in colors.items():
            some = [row for row in found if (row.cpu, row.method) == (cpu, method)]
            panel.scatter([r.compiled for r in some], [r.ratio for r in some], 14, color, label=method)
        panel.axhline(1, color="black", linewidth=1)
        for edge in (1 - WITHIN, 1 + WITHIN):
            panel.axhline(edge, color="#8c8c8c", linewidth=1, linestyle="--")
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter("{x:g}")
        panel.set_title(f"Cortex-{cpu.upper()}", loc="left")
        panel.set_xlabel("compiled cycles per 128 multiply-accumulates")
        plain(panel)
    axes[0, 0].set_ylabel("compiled / predicted")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower left", ncols=len(colors), frameon=False)
    save(figure, stem)

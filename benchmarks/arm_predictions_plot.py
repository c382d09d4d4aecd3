"""A panel a processor, a point a kernel: executed cycles over predicted ones, by the cycles that it takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitsynth.bench.plots.panels import COLORS, panels, plain, save

WITHIN = 0.1
"""How far off a prediction may be."""


def draw(found: Sequence[Any], stem: Path) -> None:
    """Write stem.png and .svg."""
    cpus, methods = (sorted({getattr(row, name) for row in found}) for name in ("cpu", "method"))
    figure, axes = panels(1, len(cpus), 5 * len(cpus), 4.5, sharey=True)
    for panel, cpu in zip(axes[0], cpus, strict=True):
        for method, color in zip(methods, COLORS, strict=False):
            some = [row for row in found if (row.cpu, row.method) == (cpu, method)]
            panel.scatter([r.executed for r in some], [r.ratio for r in some], 14, color, label=method)
        panel.axhline(1, color="black", linewidth=1)
        for edge in (1 - WITHIN, 1 + WITHIN):
            panel.axhline(edge, color="#8c8c8c", linewidth=1, linestyle="--")
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter("{x:g}")
        panel.set_title(f"Cortex-{cpu.upper()}", loc="left")
        panel.set_xlabel("executed cycles per 128 multiply-accumulates")
        plain(panel)
    axes[0, 0].set_ylabel("executed / predicted")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower left", ncols=len(methods), frameon=False)
    save(figure, stem)

"""A panel a processor, a point a kernel: compiled cycles over predicted ones, by compiled cycles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitsynth.bench.plots.panels import COLORS, explain, panels, plain, save

GROUPS = {
    **{method: method for method in ("popcount", "lookup", "pairs", "multiply")},
    **dict.fromkeys(("fip", "dot"), "fip, dot"),
}
"""Methods by the label of their points; the two that few kernels have share one."""
WITHIN = 0.1
"""How far off a prediction may be."""


def draw(found: Sequence[Any], stem: Path) -> None:
    """Write stem.png and .svg."""
    cpus, present = sorted({row.cpu for row in found}), {GROUPS[row.method] for row in found}
    labels = [label for label in dict.fromkeys(GROUPS.values()) if label in present]
    colors = dict(zip(labels, COLORS, strict=False))
    figure, axes = panels(1, len(cpus), 5 * len(cpus), 4.5, sharey=True)
    for panel, cpu in zip(axes[0], cpus, strict=True):
        for label, color in colors.items():
            some = [row for row in found if (row.cpu, GROUPS[row.method]) == (cpu, label)]
            panel.scatter([r.compiled for r in some], [r.ratio for r in some], 14, color, label=label)
        panel.axhline(1, color="black", linewidth=1)
        for edge in (1 - WITHIN, 1 + WITHIN):
            panel.axhline(edge, color="#8c8c8c", linewidth=1, linestyle="--")
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter("{x:g}")
        panel.set_title(f"Cortex-{cpu.upper()}", loc="left")
        panel.set_xlabel("compiled cycles per 128 multiply-accumulates")
        plain(panel)
    axes[0, 0].set_ylabel("compiled / predicted")
    explain(
        figure,
        f"A point is a kernel. On the line at 1 the prediction is exact; the dashed lines are {WITHIN:.0%} off.",
    )
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower left", ncols=len(colors), frameon=False)
    save(figure, stem)

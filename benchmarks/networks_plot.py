"""Accuracy against predicted cycles of the Fashion-MNIST network, as in Figure 8 of CGO 2020."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bitsynth.bench.plots.panels import COLORS, explain, label_points, legend, panels, plain, save

_NETWORK = "fashion"
CPUS = ("a53", "a72")
"""The processors whose cycles are shown, a panel each."""
_SERIES = {
    "quantize, without training": "quantize, ",
    "quantize and fine-tune": "quantize and fine-tune, ",
    "trained with Brevitas": "trained with Brevitas, ",
    "trained with Brevitas, kernels of the paper's sketch": "trained with Brevitas, ",
}
"""How the files of each series begin."""
WITHIN = 0.01
"""A picture's text names the cheapest file that loses at most this much accuracy."""
_Point = tuple[float, float, str]


def draw(rows: Sequence[Any], stem: Path) -> None:
    """Write `stem`.png and `stem`.svg, if the Fashion-MNIST network was measured."""
    own = [r for r in rows if r.network == _NETWORK and not r.why and r.right is not None]
    if not own:
        return
    figure, axes = panels(1, 2, 13, 5)
    found = [[sorted(_points(own, cpu, label)) for label in _SERIES] for cpu in CPUS]
    for panel, cpu, series in zip(axes[0], CPUS, found, strict=True):
        for color, label, points in zip(COLORS, _SERIES, series, strict=False):
            panel.plot([x for x, *_ in points], [y for _, y, _ in points], "o", color=color, label=label)
        floats = next((r.right for r in own if r.file == "float32"), None)
        if floats is not None:
            panel.axhline(100 * floats, color="black", linewidth=1, linestyle="--")
        panel.set_xlabel("millions of predicted cycles of an image")
        panel.set_title(f"Fashion-MNIST, 16 products, Cortex-{cpu.upper()}: accuracy, %", loc="left")
        plain(panel)
    legend(figure, axes)
    explain(figure, "Up and to the left is better. Dashed: the network in floats.")
    for panel, series in zip(axes[0], found, strict=True):
        label_points(panel, [point for points in series for point in points])
    save(figure, stem)


def to_see(rows: Sequence[Any]) -> str:
    """Return what a reader should see in the picture: the cheapest accurate file, and what the paper's sketch costs.

    It is empty if the network was not measured, or if no file is accurate.
    """
    own = [r for r in rows if r.network == _NETWORK and not r.why and r.right is not None]
    floats = next((r.right for r in own if r.file == "float32"), 1.0)
    drawn = [r for r in own if all(r.cycles.get(cpu) for cpu in CPUS) and not r.file.endswith("AVX2")]
    accurate = [r for r in drawn if r.right >= floats - WITHIN]
    if not accurate:
        return ""
    parts = []
    for cpu in CPUS:
        ranked = sorted(accurate, key=lambda r: r.cycles[cpu])
        fewest, most = ranked[0], ranked[-1]
        times = most.cycles[cpu] / fewest.cycles[cpu]
        parts.append(
            f"on the Cortex-{cpu.upper()} `{fewest.file}` takes {fewest.cycles[cpu] / 1e6:.2f} M cycles, and "
            f"`{most.file}` {times:.1f} times as many"
        )
    more = [r.paper_cycles[cpu] / r.cycles[cpu] for r in drawn for cpu in CPUS if r.paper_cycles.get(cpu)]
    paper = (
        f" Kernels of the paper's sketch take {min(more):.1f} to {max(more):.1f} times as many cycles." if more else ""
    )
    within = f"{100 * WITHIN:g} point of accuracy"
    return f"What to see: of the files that lose at most {within}, {'; '.join(parts)}.{paper}"


def _points(rows: Sequence[Any], cpu: str, label: str) -> Iterator[_Point]:
    """Yield millions of cycles, accuracy in percent and widths of the files of a series, except files for AVX2."""
    for r in rows:
        if r.file.startswith(_SERIES[label]) and not r.file.endswith("AVX2"):
            cycles = r.paper_cycles.get(cpu) if "paper" in label else r.cycles[cpu]
            if cycles:
                yield cycles / 1e6, 100 * r.right, r.file.split(", ")[-1].replace("bits for the A72", "bits")

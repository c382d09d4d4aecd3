"""Accuracy against predicted cycles of the Fashion-MNIST network, as in Figure 8 of CGO 2020."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bitsynth.bench.plots.panels import COLORS, explain, panels, plain, save

_NETWORK = "fashion"
_SERIES = {
    "quantize, without training": "quantize, ",
    "quantize and fine-tune": "quantize and fine-tune, ",
    "trained with Brevitas": "trained with Brevitas, ",
    "trained with Brevitas, kernels of the paper's sketch": "trained with Brevitas, ",
}
"""How the files of each series begin."""
_LABEL_PLACES = (5, -11), (-32, -4), (5, 5), (5, 5)
"""Where the label of a point of each series is, in points from it, so that few overlap."""
_Point = tuple[float, float, str]


def draw(rows: Sequence[Any], stem: Path) -> None:
    """Write `stem`.png and `stem`.svg, if the Fashion-MNIST network was measured."""
    own = [r for r in rows if r.network == _NETWORK and not r.why and r.right is not None]
    if not own:
        return
    figure, (row,) = panels(1, 2, 13, 4.6)
    for axes, cpu in zip(row, ("a53", "a72"), strict=True):
        for color, label, place in zip(COLORS, _SERIES, _LABEL_PLACES, strict=False):
            points = sorted(_points(own, cpu, label))
            axes.plot([x for x, *_ in points], [y for _, y, _ in points], "o", color=color, label=label)
            for x, y, bits in points:
                axes.annotate(bits, (x, y), textcoords="offset points", xytext=place, fontsize=8)
        floats = next((r.right for r in own if r.file == "float32"), None)
        if floats is not None:
            axes.axhline(100 * floats, color="black", linewidth=1, linestyle="--")
        axes.set_xlabel("millions of predicted cycles of an image")
        axes.set_title(f"Fashion-MNIST, Cortex-{cpu.upper()}: accuracy, %", loc="left")
        plain(axes)
    row[0].legend(frameon=False, loc="lower right")
    explain(figure, "Up and to the left is better. Dashed: the network in floats.")
    save(figure, stem)


def _points(rows: Sequence[Any], cpu: str, label: str) -> Iterator[_Point]:
    """Yield millions of cycles, accuracy in percent and widths of the files of a series, but those for AVX2."""
    for r in rows:
        if r.file.startswith(_SERIES[label]) and not r.file.endswith("AVX2"):
            cycles = r.paper_cycles.get(cpu) if "paper" in label else r.cycles[cpu]
            if cycles:
                yield cycles / 1e6, 100 * r.right, r.file.split(", ")[-1].replace("bits for the A72", "bits")

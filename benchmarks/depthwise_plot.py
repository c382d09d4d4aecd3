"""How many times faster than ONNX Runtime's int8 every form of a depthwise layer is: a group a layer, a bar a form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitsynth.bench.plots.panels import explain, panels, plain, save, times_faster


def draw(rows: Sequence[Any], isa: str, stem: Path) -> None:
    """Write `stem`.png and `stem`.svg."""
    layers, forms = (list(dict.fromkeys(getattr(r, by) for r in rows)) for by in ("layer", "form"))
    figure, ((axes,),) = panels(1, 1, 12, 4.6)
    for n, form in enumerate(forms):
        times_faster(axes, [r.times for r in rows if r.form == form], form, n, len(forms))
    axes.set_xticks(range(len(layers)), layers)
    config = rows[0].config
    axes.set_title(f"{isa}, {config}: times as fast as ONNX Runtime's int8; higher is better", loc="left")
    axes.legend(loc="best", frameon=False, fontsize=8)
    plain(axes, axis="y")
    explain(figure, "Bars above the line at 1 are faster than ONNX Runtime, bars below it slower.")
    save(figure, stem)

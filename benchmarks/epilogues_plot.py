"""The time of every form of a layer, divided by the time of codes to int32: a group a form, a bar a configuration."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bitsynth.bench.layers import SUM
from bitsynth.bench.plots.panels import draw_bars, explain, panels, plain, save

_BETWEEN = re.compile(r"(,| to|signed|bipolar|ternary|[a-z]+\d+(?= residual)) ")
"""Where a form's name may be broken."""


def draw(rows: Sequence[Any], isa: str, stem: Path) -> None:
    """Write `stem`.png and `stem`.svg."""
    sums = [r for r in rows if r.layer == SUM]
    configs, forms = (list(dict.fromkeys(getattr(r, by) for r in sums)) for by in ("config", "form"))
    figure, ((axes,),) = panels(1, 1, 16, 5.4)
    for n, config in enumerate(configs):
        found = {r.form: r.times.median for r in sums if r.config == config}
        times = [found.get(form, np.nan) for form in forms[1:]]
        bars = draw_bars(axes, range(len(times)), np.array(times), n, len(configs), label=config)
        labels = ["" if np.isnan(t) else f"{t:.2f}" for t in times]
        axes.bar_label(bars, labels, padding=2, fontsize=7, rotation=90)
    axes.axhline(1, color="black", linewidth=1)
    axes.set_xticks(range(len(forms) - 1), [_BETWEEN.sub(r"\1\n", form) for form in forms[1:]], fontsize=8)
    axes.margins(y=0.12)
    axes.set_title(f"{isa}, sum of the layers: time, divided by the time of {forms[0]}; lower is better", loc="left")
    axes.legend(loc="upper right", frameon=False)
    plain(axes, axis="y")
    explain(
        figure,
        "A bar at 1 is as fast as a layer that writes int32 without an epilogue; what rises above the line is the cost "
        "of the input, epilogue or encoding named below it.",
    )
    save(figure, stem)

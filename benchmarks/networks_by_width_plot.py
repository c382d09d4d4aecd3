"""How many times as long the fastest int8 of other packages takes: a group of bars a network, a bar a width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bitsynth.bench.plots.panels import draw_bars, explain, panels, plain, save

SHOWN = ("A1W1", "A2W1", "A2W2", "A4W4", "int8 file")
"""The widths that are shown: at most a series each."""


def draw(rows: Sequence[Any], titles: Mapping[str, str], stem: Path) -> None:
    """Write `stem`.png and `stem`.svg."""
    networks = list(dict.fromkeys(row.network for row in rows))
    widths = [width for width in SHOWN if any(row.width == width for row in rows)]
    figure, ((axes,),) = panels(1, 1, 10, 4.4)
    for n, width in enumerate(widths):
        own = [row for row in rows if row.width == width]
        groups = [networks.index(row.network) for row in own]
        draw_bars(axes, groups, [row.best("int8")[1] for row in own], n, len(widths), label=width)
    axes.axhline(1, color="black", linewidth=1, linestyle="--")
    names = [titles[name].replace(", ", ",\n") for name in networks]
    axes.set_xticks(range(len(networks)), names, fontsize=8)
    axes.set_title("Times as long as bitsynth: the fastest int8 of other packages", loc="left")
    plain(axes)
    axes.legend(frameon=False, fontsize=8, loc="upper right")
    explain(figure, "Above the dashed line bitsynth is faster.")
    save(figure, stem)

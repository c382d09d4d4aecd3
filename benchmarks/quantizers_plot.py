"""A panel a network: the accuracy of each tool, a group of bars for each pair of widths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bitsynth.bench.plots.panels import draw_bars, explain, panels, plain, save

_NAMES = {
    "bitsynth": "bitsynth",
    "onnxruntime": "ONNX Runtime",
    "aimet": "AIMET",
    "nncf": "NNCF",
    "quark": "AMD Quark",
    "brevitas": "Brevitas",
}


def draw(rows: Sequence[Any], networks: Mapping[str, Mapping[str, Any]], stem: Path) -> None:
    """Write `stem`.png and `stem`.svg."""
    figure, (row,) = panels(1, len(networks), 4.6 * len(networks), 4.2)
    for axes, (name, facts) in zip(row, networks.items(), strict=True):
        own = [r for r in rows if r.network == name and r.tool != "float"]
        pairs = list(dict.fromkeys((r.w_bits, r.act_bits) for r in own))
        tools = [tool for tool in _NAMES if any(r.tool == tool for r in own)]
        for n, tool in enumerate(tools):
            some = [r for r in own if r.tool == tool and r.accuracy is not None]
            groups = [pairs.index((r.w_bits, r.act_bits)) for r in some]
            draw_bars(axes, groups, [100 * r.accuracy for r in some], n, len(tools), label=_NAMES[tool])
        floats = next(r.accuracy for r in rows if r.network == name and r.tool == "float")
        axes.axhline(100 * floats, color="black", linewidth=1, linestyle="--")
        axes.set_xticks(range(len(pairs)), [f"W{w}A{a}" for w, a in pairs])
        axes.set_title(f"{facts['title']}: accuracy, %", loc="left")
        plain(axes)
    row[0].legend(frameon=False, fontsize=8, loc="lower left")
    explain(
        figure, "Higher is better. Dashed: the network in floats. A missing bar: the tool does not offer the widths."
    )
    save(figure, stem)

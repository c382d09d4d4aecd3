"""A panel a network: the accuracy of each tool, a group of bars for each pair of widths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bitsynth.bench.plots.panels import draw_bars, explain, legend, panels, plain, save

_NAMES = {
    "bitsynth": "bitsynth",
    "onnxruntime": "ONNX Runtime",
    "aimet": "AIMET",
    "nncf": "NNCF",
    "quark": "AMD Quark",
    "brevitas": "Brevitas",
}


def draw(rows: Sequence[Any], networks: Mapping[str, Mapping[str, Any]], stem: Path) -> None:
    """Write `stem`.png and `stem`.svg: the tools that quantized a network, each in its colour in all panels."""
    judged = [r for r in rows if r.tool != "float" and r.accuracy is not None]
    tools = [tool for tool in _NAMES if any(r.tool == tool for r in judged)]
    figure, axes = panels(1, len(networks), 4.6 * len(networks), 4.2)
    for panel, (name, facts) in zip(axes[0], networks.items(), strict=True):
        own = [r for r in judged if r.network == name]
        pairs = list(dict.fromkeys((r.w_bits, r.act_bits) for r in own))
        for n, tool in enumerate(tools):
            some = [r for r in own if r.tool == tool]
            groups = [pairs.index((r.w_bits, r.act_bits)) for r in some]
            if some:
                draw_bars(panel, groups, [100 * r.accuracy for r in some], n, len(tools), label=_NAMES[tool])
        floats = next(r.accuracy for r in rows if r.network == name and r.tool == "float")
        panel.axhline(100 * floats, color="black", linewidth=1, linestyle="--")
        panel.set_xticks(range(len(pairs)), [f"W{w}A{a}" for w, a in pairs])
        panel.set_title(f"{facts['title']}: accuracy, %", loc="left")
        plain(panel, axis="y")
    legend(figure, axes)
    explain(
        figure,
        "Higher is better. Dashed: the network in floats. A missing bar: the tool does not offer the widths, or was "
        "not run with them.",
    )
    save(figure, stem)

"""Transposes that undo each other around what is done element by element, as converters of layouts leave them.

From channels last to first, tf2onnx writes Transpose(Round(Transpose(x))), where Round(x) is the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bitsynth.graph.operators import TABLE
from bitsynth.graph.read.source import FileNode

_DEEP = 8
"""Nodes before an edge that are looked at."""
_KINDS = ("elementwise", "step")


def reordered(node: FileNode, edge: str, order: tuple[int, ...], deep: int = _DEEP) -> str | None:
    """An edge with its axes in another order, if it needs no transpose for that; else None."""
    graph, maker = node.graph, node.graph.maker(edge)
    if maker is None or not deep:
        return None
    if maker.op == "transpose":
        axes = maker.attributes["order"]
        return maker.inputs[0] if [axes[k] for k in order] == list(range(len(order))) else None
    if TABLE[maker.op].kind not in _KINDS or any(map(_several, maker.attributes.values())):
        return None
    inputs = []
    for name in maker.inputs:
        value, alike = graph.constants.get(name), graph.edges[name].shape == graph.edges[edge].shape
        found = name if value is not None and value.size == 1 else None
        found = found or (reordered(node, name, order, deep - 1) if alike else None)
        if found is None:
            return None
        inputs.append(found)
    return node.add(maker.op, *inputs, **maker.attributes)


def _several(attribute: Any) -> bool:
    """Whether an attribute has more than one value, so that places may matter; what describes an operand has."""
    if isinstance(attribute, tuple):
        return len(attribute) > 1 or any(map(_several, attribute))
    return np.size(attribute) > 1

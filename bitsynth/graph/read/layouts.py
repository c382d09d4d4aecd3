"""Channels last: nodes whose images lie so, and transposes that undo each other, as converters of layouts leave them.

From channels last to first, tf2onnx writes Transpose(Round(Transpose(x))), where Round(x) is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bitsynth.graph.operators import TABLE
from bitsynth.graph.read.source import FileNode
from bitsynth.graph.types import Tensor

_DEEP = 8
"""Nodes before an edge that are looked at."""
_IMAGE = 4
"""Axes of images and their channels."""
_KINDS = ("elementwise", "step")
_ALIKE = ("concatenate", "pad", "reduce_max", "reduce_min", "reduce_sum")
"""Rows of other kinds that are alike for every order of axes."""


def channels_last(read: Callable[[FileNode], tuple[str, ...]], *more: int) -> Callable[[FileNode], tuple[str, ...]]:
    """The reader of nodes like those of `read`, whose first input, inputs `more` and results have channels last."""

    def made(node: FileNode) -> tuple[str, ...]:
        inputs = list(node.inputs)
        for k in (0, *more):
            inputs[k] = to_first(node, node.edge(k))
        return tuple(to_last(node, edge) for edge in read(replace(node, inputs=tuple(inputs))))

    return made


def by_layout(read: Callable[[FileNode], tuple[str, ...]]) -> Callable[[FileNode], tuple[str, ...]]:
    """The reader of nodes that say by an attribute whether channels are last."""
    return lambda node: (channels_last(read) if node.get("channels_last") else read)(node)


def to_first(node: FileNode, edge: str) -> str:
    """An edge of channels last with channels behind the first axis."""
    rank = len(node.graph.edges[edge].shape)
    return transposed(node, edge, (0, rank - 1, *range(1, rank - 1)))


def to_last(node: FileNode, edge: str) -> str:
    """An edge of channels behind the first axis with channels last."""
    rank = len(node.graph.edges[edge].shape)
    return transposed(node, edge, (0, *range(2, rank), 1))


def transposed(node: FileNode, edge: str, order: tuple[int, ...]) -> str:
    """An edge with its axes in another order."""
    if order == tuple(range(len(order))):
        return edge
    if (edge, order) in node.graph.in_order:
        return node.graph.in_order[edge, order]
    shape = node.graph.edges[edge].shape
    several = [k for k in order if shape[k] != 1]
    if several == sorted(several):
        return _kept(node, edge, order, node.reshape(edge, tuple(shape[k] for k in order)))
    return _reordered(node, edge, order) or _kept(node, edge, order, node.add("transpose", edge, order=order))


def of_first(node: FileNode, edge: str, axes: tuple[int, ...]) -> tuple[str, tuple[int, ...], bool]:
    """An edge of channels last with channels behind the first axis, if that takes no transpose, and axes of it there.

    The last result says whether it is another edge.
    """
    rank = len(node.graph.edges[edge].shape)
    order = (0, rank - 1, *range(1, rank - 1))
    found = _reordered(node, edge, order) if rank == _IMAGE else None
    if found is None:
        return edge, axes, False
    return found, tuple(sorted(order.index(k) for k in axes)), True


def _kept(node: FileNode, edge: str, order: tuple[int, ...], made: str) -> str:
    """What was made of an edge, so that whatever wants one of both in the other's order takes it."""
    back = tuple(int(k) for k in np.argsort(order))
    node.graph.in_order |= {(edge, order): made, (made, back): edge}
    return made


def _reordered(node: FileNode, edge: str, order: tuple[int, ...], deep: int = _DEEP) -> str | None:
    """An edge with its axes in another order, if it needs no transpose for that; else None."""
    graph, maker = node.graph, node.graph.maker(edge)
    if maker is not None and maker.op == "transpose":
        axes = maker.attributes["order"]
        return maker.inputs[0] if [axes[k] for k in order] == list(range(len(order))) else None
    known = graph.in_order.get((edge, order))
    if known is not None and graph.maker(known, "transpose") is None:
        return known
    if maker is None or not deep:
        return None
    if maker.op not in _ALIKE and TABLE[maker.op].kind not in _KINDS:
        return None
    inputs = []
    for name in maker.inputs:
        alike = len(graph.edges[name].shape) == len(order)
        found = _constant(node, name, order) if name in graph.constants else None
        found = found or (_reordered(node, name, order, deep - 1) if alike else None)
        if found is None:
            return None
        inputs.append(found)
    attributes = {key: _moved(key, value, order) for key, value in maker.attributes.items()}
    return _kept(node, edge, order, node.add(maker.op, *inputs, **attributes))


def _constant(node: FileNode, name: str, order: tuple[int, ...]) -> str:
    """A constant operand for elements in another order."""
    shape = node.graph.edges[name].shape
    if node.graph.constants[name].size == 1:
        return name
    whole = node.reshape(name, (1,) * (len(order) - len(shape)) + shape)
    return node.add("transpose", whole, order=order)


def _moved(key: str, value: Any, order: tuple[int, ...]) -> Any:
    """An attribute of a node for elements in another order: arrays lie along their axes, but for rows of thresholds."""
    if key == "pads":
        return tuple(value[k] for k in order)
    if key == "axes":
        return tuple(sorted(order.index(k) for k in value))
    if isinstance(value, tuple):
        return tuple(_moved(key, part, order) for part in value)
    if key == "axis":
        return order.index(value)
    if key == "thresholds" or not isinstance(value, np.ndarray) or value.size == 1:
        return value
    whole: Tensor = value.reshape((1,) * (len(order) - value.ndim) + value.shape)
    return whole.transpose(order)

"""Warnings of integer sums that may overflow their type in the file, and of biases that were clipped to its limits.

Integers wrap, by the standard and in every runtime. So the results of a network with overflowing sums are defined, but
hardly intended: tools that quantize a bias by too small a scale clip it to the limits of int32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.operators import PRODUCTS
from bitsynth.graph.types import INT32, Edge, Integers, Tensor, full_range, limits

_Ends = tuple[Tensor, Tensor]
_RULES: dict[str, Callable[[_Ends, _Ends], _Ends]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
}
"""The least and the greatest result, from the least and the greatest value of both operands."""


def find_overflows(graph: Graph) -> tuple[str, ...]:
    """Return a warning for each node of the file whose sums may wrap, or whose bias holds an end of int32.

    A node whose operands may be any integer of their type is left out: nothing is known of its sums.
    """
    makers = graph.makers
    warnings: dict[str, str] = {}
    for node in graph.nodes:
        warning = _describe_wrap(graph, node) or _describe_cut_bias(graph, node, makers)
        if warning:
            warnings.setdefault(str(node), f"{node}: {warning}")
    return tuple(warnings.values())


def _describe_wrap(graph: Graph, node: Node) -> str:
    """Return the warning for a sum that may leave its integer type; "" for other nodes."""
    edge = graph.edges[node.outputs[0]]
    if node.op not in _RULES or edge.is_float or edge.dtype == "bool":
        return ""
    ends = [_ends(graph, name) for name in node.inputs]
    if ends[0] is None or ends[1] is None:
        return ""
    low, high = (int(end) for end in _extremes(_RULES[node.op](ends[0], ends[1])))
    least, most = limits(edge.dtype)
    if least <= low and high <= most:
        return ""
    return (
        f"its sums go from {low:,} to {high:,} and wrap, for {edge.dtype} does not hold them; "
        "check the bias and the scales that it was quantized by"
    )


def _ends(graph: Graph, name: str) -> _Ends | None:
    """Return the least and the greatest integer of each element; None if they may be any of their type."""
    edge = graph.edges[name]
    if name in graph.constants:
        return graph.constants[name], graph.constants[name]
    kind = edge.type
    if not isinstance(kind, Integers) or not kind.is_plain or _is_unknown(edge, kind):
        return None
    return kind.low, kind.high


def _is_unknown(edge: Edge, kind: Integers) -> bool:
    """Return whether an edge may carry any integer of its type."""
    every = full_range(edge.dtype)
    return (kind.least, kind.most) == (every.least, every.most)


def _extremes(ends: _Ends) -> tuple[Tensor, Tensor]:
    """Return the least and the greatest of all elements."""
    return ends[0].min(), ends[1].max()


def _describe_cut_bias(graph: Graph, node: Node, makers: Mapping[str, Node]) -> str:
    """Return the warning for a bias of a product that has elements at an end of int32; "" for other nodes."""
    if node.op != "add" or not any(name in makers and makers[name].op in PRODUCTS for name in node.inputs):
        return ""
    for name in node.inputs:
        if name in graph.constants and isinstance(graph.edges[name].type, Integers):
            count = int(np.isin(graph.constants[name], INT32).sum())
            if count:
                return (
                    f"{count} of its {graph.constants[name].size} biases lie at an end of int32, to which they were "
                    "probably cut; check the scales that they were quantized by"
                )
    return ""

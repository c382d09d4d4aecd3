"""Bits that comparisons make, and what binarizers make of them: bipolar codes.

A bit is 1 where a comparison holds: p > q is what p - q rounded up has between 0 and 1, p >= q what comes of rounding
down and adding 1. The sign of a difference is that of the comparison in IEEE floats too.
"""

from __future__ import annotations

import numpy as np

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Node
from bitsynth.graph.read.quantizer import Quantizer
from bitsynth.graph.read.source import FileNode

BOOL = "bool"


def bit(node: FileNode, edge: str, *, strict: bool) -> str:
    """1 where a number is above 0, or 0 too unless `strict`; else 0."""
    return Quantizer("CEIL" if strict else "FLOOR", (0, 1), 1.0, 0 if strict else 1).add(node, edge, dtype=BOOL)


def maker_of_bit(graph: GraphBuilder, edge: str) -> Node | None:
    """The node of a bit, if the edge is one, in any type."""
    while cast := graph.maker(edge, "cast"):
        edge = cast.inputs[0]
    made = graph.maker(edge, "quantize")
    return made if made and made.attributes.get("dtype") == BOOL else None


def is_strict(made: Node) -> bool:
    """Whether a bit is that of a number above 0, not of 0 too."""
    return bool(made.attributes["rounding"] == "CEIL")


def bipolar(node: FileNode, edge: str, dtype: str, scale: float = 1.0) -> str:
    """The scale where a number is 0 or more, else its negative."""
    grid = np.asarray(scale, np.float64), np.zeros(())
    return Quantizer("BIPOLAR", (-1, 1), 1.0, 0).add(node, edge, grid=grid, dtype=dtype)


def signed(node: FileNode, made: Node, number: float, dtype: str) -> str:
    """A number where a bit is 1, else its negative: of p > q the negative of what q >= p chooses."""
    turned = is_strict(made)
    edge = negative(node, made.inputs[0]) if turned else made.inputs[0]
    chosen = bipolar(node, edge, dtype, abs(number))
    return node.add("neg", chosen) if turned != (number < 0) else chosen


def negative(node: FileNode, edge: str) -> str:
    """What is 0 less an edge: of p - q this is q - p."""
    if taken := node.graph.maker(edge, "sub"):
        return node.add("sub", *taken.inputs[::-1])
    turned = node.graph.maker(edge, "neg")
    return turned.inputs[0] if turned else node.add("neg", edge)


def twice_less_one(node: FileNode, op: str, edge: str, other: str) -> str | None:
    """Bipolar codes, if a bit times 2, less 1, is what is written."""
    doubled, number = node.graph.maker(edge, "mul"), node.graph.value(other)
    if doubled is None or number is None or number.size != 1 or float(number.reshape(())) != (1 if op == "sub" else -1):
        return None
    two, made = node.graph.value(doubled.inputs[1]), maker_of_bit(node.graph, doubled.inputs[0])
    if made is None or two is None or two.size != 1 or float(two.reshape(())) != 2:
        return None
    same = node.graph.edges[made.inputs[0]].shape == np.broadcast_shapes(node.shape(0), node.shape(1))
    return signed(node, made, 1.0, node.of(0).dtype) if same else None

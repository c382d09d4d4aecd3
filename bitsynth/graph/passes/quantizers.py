"""Fuse quantizers that a file writes in several nodes, and drop quantizers that change nothing."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np

from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.passes.driver import rebuild
from bitsynth.graph.types import Edge, Integers

_QUANTIZERS = ("quantize", "requantize", "add_codes", "trunc")
_MAX_INTEGER = 1 << 20
"""Integers up to this survive scale, float32 and back: the two roundings move them by less than a quarter."""
_MIN_SCALE = 2.0**-100
"""Products with smaller scales may be subnormal in float32, where they have fewer digits."""


def fuse_quantizers(graph: Graph) -> Graph:
    """Fuse clips, views and changes of scale into the quantizer before them, if nothing else reads it.

    QuantizeLinear, Clip and DequantizeLinear then are one node, as a Quant of QONNX is.

    Given:
        %q = quantize(%x, low=0, high=255)
        %c = clip(%q, low=0, high=15)
        %y = view(%c, scale=0.1)         # the integers stay; each stands for 0.1 times itself
    Result:
        %y = quantize(%x, low=0, high=15, out_scale=0.1)
    """
    makers = dict(graph.makers)
    nodes = {node.name: node for node in graph.nodes}
    edges = dict(graph.edges)
    for node in graph.nodes:
        if not _cuts_or_views(graph, node) or node.inputs[0] not in makers:
            continue
        if node.op == "view" and graph.reference == "tflite":
            continue  # it subtracts a zero point before a product; its input is an edge of the file
        maker = nodes[makers[node.inputs[0]].name]
        if maker.op in _QUANTIZERS and graph.only_reader(node.inputs[0]):
            fused = _fuse_quantizer(maker, node, edges)
            if fused is not None:
                nodes[maker.name] = fused
                makers[node.outputs[0]] = maker
                del nodes[node.name]
    return rebuild(graph, nodes.values())


def _cuts_or_views(graph: Graph, node: Node) -> bool:
    """Return whether a node clips codes, or changes what they stand for and not the codes."""
    if node.op in ("clip", "view"):
        return True
    if node.op not in ("mul", "div") or node.inputs[1] not in graph.constants:
        return False
    before, after = (graph.edges[name] for name in (node.inputs[0], node.outputs[0]))
    if before.shape != after.shape or not (isinstance(before.type, Integers) and isinstance(after.type, Integers)):
        return False
    return before.type.low is after.type.low and before.type.high is after.type.high


def _fuse_quantizer(maker: Node, node: Node, edges: dict[str, Edge]) -> Node | None:
    """Return the quantizer that gives the codes of `node`, which reads the codes of `maker`; None if there is none."""
    kind, edge = edges[node.outputs[0]].type, edges[node.outputs[0]]
    if not isinstance(kind, Integers) or kind.low.size != 1 or kind.high.size != 1:
        return None
    attributes = dict(maker.attributes)
    if node.op == "clip":
        if not edges[node.inputs[0]].type.is_plain:  # type: ignore[union-attr]
            return None
        attributes |= {"low": kind.least, "high": kind.most}
    else:
        attributes |= {"out_scale": kind.scale, "out_zero": kind.zero}
    attributes |= {"dtype": edge.dtype}
    return Node(maker.name, maker.op, maker.inputs, node.outputs, MappingProxyType(attributes), maker.source)


def drop_repeated_quantizers(graph: Graph) -> Graph:
    """Drop quantizers of codes that are on their grid already: exporters put one after each move.

    Given:
        %q = quantize(%x, scale=0.1, low=0, high=15)
        %r = reshape(%q)
        %y = quantize(%r, scale=0.1, low=0, high=15)
    Result:
        %q = quantize(%x, scale=0.1, low=0, high=15)
        %r = reshape(%q)                 # readers of %y read %r
    """
    same = {node.outputs[0]: node.inputs[0] for node in graph.nodes if _is_repeated(graph, node)}
    if not same:
        return graph
    distinct = (node for node in graph.nodes if node.outputs[0] not in same)
    return rebuild(
        graph, (replace(node, inputs=tuple(_source(same, edge) for edge in node.inputs)) for node in distinct)
    )


def _source(same: dict[str, str], edge: str) -> str:
    """Return the earliest edge that holds the same integers as an edge."""
    while edge in same:
        edge = same[edge]
    return edge


def _is_repeated(graph: Graph, node: Node) -> bool:
    """Return whether a node is a quantizer that changes no integer, and not an output of the network."""
    is_inner = node.op == "quantize" and node.outputs[0] not in graph.output_set
    return is_inner and keeps_integers(graph, node, node.inputs[0])


def keeps_integers(graph: Graph, quantizer: Node, edge: str) -> bool:
    """Return whether a quantizer that reads an edge would return the edge's integers, on the same grid."""
    given, quantized = graph.edges[edge], graph.edges[quantizer.outputs[0]]
    before, after, at = given.type, quantized.type, quantizer.attributes
    if not (isinstance(before, Integers) and isinstance(after, Integers)) or given.dtype != quantized.dtype:
        return False
    scales, zeros = (before.scale, after.scale, at["scale"]), (before.zero, after.zero, at["zero"])
    if any(np.size(x) != 1 or np.ravel(x)[0] != np.ravel(some[0])[0] for some in (scales, zeros) for x in some):
        return False
    inside = np.all(at["low"] <= before.low) and np.all(before.high <= at["high"])
    return bool(inside) and before.is_centred and _survive_rounding(graph.reference, quantizer, before)


def _survive_rounding(reference: str, quantizer: Node, kind: Integers) -> bool:
    """Return whether rounding (n * scale) / scale gives every integer n of a type."""
    if quantizer.attributes["rounding"] not in ("ROUND", "HALF_ODD"):
        return False
    largest = max(-kind.least, kind.most, int(abs(kind.zero).max()))
    small = largest < _MAX_INTEGER and kind.scale.min() > _MIN_SCALE
    return reference == "exact" or bool(small and quantizer.attributes["real"] in ("float32", "float64"))

"""Facts of a network before it is compiled: types and ranges of edges, weights, and why products stay in floats."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bitsynth.graph.float_products import FloatProduct, find_float_products, multiply_accumulates
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.operators import PRODUCTS
from bitsynth.graph.overflow import find_overflows
from bitsynth.graph.types import Edge, Integers

_SUMS = (*PRODUCTS, "sum_pool", "reduce_sum")


@dataclass(frozen=True)
class EdgeFacts:
    """The type of an edge.

    Args:
        name: The name of the edge.
        shape: The sizes of its axes.
        dtype: The type in the file.
        carries: `codes`, `sums` or `reals`.
        bits: The bits of its codes; 0 of reals.
        encoding: unsigned, signed, ternary or bipolar; empty of reals.
        least: The least integer; None of reals.
        most: The greatest integer; None of reals.
        scale: The scale; several if channels differ.
        zero: The zero point; several if channels differ.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    carries: str
    bits: int = 0
    encoding: str = ""
    least: int | None = None
    most: int | None = None
    scale: tuple[float, ...] = ()
    zero: tuple[float, ...] = ()

    @classmethod
    def of(cls, edge: Edge, *, sums: bool = False) -> EdgeFacts:
        """Return the facts of an edge; integers of more than 8 bits are accumulators, others if `sums` says so."""
        kind = edge.type
        if not isinstance(kind, Integers):
            return cls(edge.name, edge.shape, edge.dtype, "reals")
        sums = sums or kind.bits > 8
        grid = (tuple(np.unique(p).tolist()) for p in (kind.scale, kind.zero))
        return cls(
            edge.name,
            edge.shape,
            edge.dtype,
            "sums" if sums else "codes",
            kind.bits,
            kind.encoding,
            kind.least,
            kind.most,
            *grid,
        )


@dataclass(frozen=True)
class WeightFacts:
    """The weights of a node: their type, their bytes in the file, and their bytes packed to few bits."""

    edge: EdgeFacts
    file_bytes: int
    packed_bytes: int


@dataclass(frozen=True)
class NodeFacts:
    """The meaning of a node of the file.

    Args:
        node: The name of the node in the graph.
        op: The operator, a row of the table.
        source: The node of the file: operator and name.
        outputs: The edges that it makes.
        weights: The constant factor of a product; None of other nodes.
        macs: The number of multiply-accumulates.
        stays_float: The reason why a product is computed in floats; empty if it is not.
        change: The change to the file, or the option, that makes it a product of integers.
        note: A likely mistake in the file; empty if none was found.
    """

    node: str
    op: str
    source: str
    outputs: tuple[EdgeFacts, ...]
    weights: WeightFacts | None
    macs: int
    stays_float: str
    change: str
    note: str


@dataclass(frozen=True)
class NetworkFacts:
    """Facts of a network: inputs, nodes, the names of outputs, and warnings of the import."""

    name: str
    reference: str
    inputs: tuple[EdgeFacts, ...]
    nodes: tuple[NodeFacts, ...]
    outputs: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all nodes."""
        return sum(n.macs for n in self.nodes)

    @property
    def float_macs(self) -> int:
        """Multiply-accumulates of the nodes that are computed in floats."""
        return sum(n.macs for n in self.nodes if n.stays_float)

    @property
    def weights(self) -> tuple[WeightFacts, ...]:
        """The weights of all nodes."""
        return tuple(n.weights for n in self.nodes if n.weights)


def inspect_graph(graph: Graph) -> NetworkFacts:
    """Return the facts of a network."""
    inputs = tuple(EdgeFacts.of(graph.edges[name]) for name in graph.inputs)
    floats = {product.node: product for product in find_float_products(graph)}
    nodes = tuple(_describe_node(graph, node, floats.get(node.name)) for node in graph.nodes)
    return NetworkFacts(graph.name, graph.reference, inputs, nodes, graph.outputs, find_overflows(graph))


def _describe_node(graph: Graph, node: Node, product: FloatProduct | None) -> NodeFacts:
    """Return the facts of a node; `product` is set if it is a float product."""
    edges = graph.edges_of(node.outputs)
    weights = _describe_weights(graph, node) if node.op in PRODUCTS else None
    why, change = (product.why, product.change) if product else ("", "")
    outputs = tuple(EdgeFacts.of(e, sums=node.op in _SUMS) for e in edges)
    macs, note = multiply_accumulates(graph, node), _note(graph, node)
    return NodeFacts(node.name, node.op, node.source, outputs, weights, macs, why, change, note)


def _describe_weights(graph: Graph, node: Node) -> WeightFacts | None:
    """Return the facts of a product's constant factor; None if there is none."""
    name = next((n for n in reversed(node.inputs) if n in graph.constants), None)
    if name is None:
        return None
    edge = graph.edges[name]
    count = math.prod(edge.shape)
    bits = edge.type.bits if isinstance(edge.type, Integers) else _bits(edge.dtype)
    return WeightFacts(EdgeFacts.of(edge), -(-count * _bits(edge.dtype) // 8), -(-count * bits // 8))


def _bits(dtype: str) -> int:
    """Return the bits of a number of a type of the file."""
    digits = "".join(c for c in dtype if c.isdigit())
    return int(digits) if digits else 8


def _note(graph: Graph, node: Node) -> str:
    """Return a warning of a likely mistake in the file; "" if there is none."""
    if node.attributes.get("rounding") == "BIPOLAR" and (graph.makers.get(node.inputs[0]) or node).op == "relu":
        return "gives 1 for every input: after Relu all are 0 or more; export it as a Quant of 1 bit, unsigned"
    kind = graph.edges[node.outputs[0]].type
    if isinstance(kind, Integers) and kind.least == kind.most:
        return f"gives {kind.least} for every input"
    return ""


def as_json(facts: NetworkFacts) -> dict[str, Any]:
    """Return the facts as plain values for JSON."""
    totals = {
        "macs": facts.macs,
        "float_macs": facts.float_macs,
        "weight_bytes": sum(w.file_bytes for w in facts.weights),
        "packed_weight_bytes": sum(w.packed_bytes for w in facts.weights),
    }
    return {**asdict(facts), **totals}

"""What is known of a network before it is compiled: per node what it carries, ranges, weights, and why floats stay."""

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
    """What an edge carries.

    Args:
        name: The edge's.
        shape: Its axes.
        dtype: The type of the file.
        carries: `codes`, `sums` or `reals`.
        bits: Bits that tell its integers apart; 0 of reals.
        encoding: unsigned, signed, ternary or bipolar; empty of reals.
        least: The least integer; None of reals.
        most: The greatest integer; None of reals.
        scale: The number one step stands for; several if channels differ.
        zero: The integers that stand for 0.
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
        """The facts of an edge, which has `sums` or, if they are as small, codes."""
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
    """The weights of a node: what they are, bytes in the file's type and packed to their bits."""

    edge: EdgeFacts
    file_bytes: int
    packed_bytes: int


@dataclass(frozen=True)
class NodeFacts:
    """What a node became.

    Args:
        node: Its name.
        op: Its row of the table.
        source: The node of the file: operator and name.
        outputs: What it makes.
        weights: Those of a product with a constant; None of others.
        macs: Multiply-accumulates.
        stays_float: Why a product is computed in floats; empty if it is not.
        change: What to change in the file, or to say of it, so that a product is not computed in floats.
        note: What a reader should know beside that.
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
    """What a network is: its inputs, its nodes, its outputs by name, and what was warned of when it was read."""

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
    """The facts of a network."""
    inputs = tuple(EdgeFacts.of(graph.edges[name]) for name in graph.inputs)
    floats = {product.node: product for product in find_float_products(graph)}
    nodes = tuple(_describe_node(graph, node, floats.get(node.name)) for node in graph.nodes)
    return NetworkFacts(graph.name, graph.reference, inputs, nodes, graph.outputs, find_overflows(graph))


def _describe_node(graph: Graph, node: Node, product: FloatProduct | None) -> NodeFacts:
    edges = graph.edges_of(node.outputs)
    weights = _describe_weights(graph, node) if node.op in PRODUCTS else None
    why, change = (product.why, product.change) if product else ("", "")
    made = tuple(EdgeFacts.of(e, sums=node.op in _SUMS) for e in edges)
    macs, note = multiply_accumulates(graph, node), _note(graph, node)
    return NodeFacts(node.name, node.op, node.source, made, weights, macs, why, change, note)


def _describe_weights(graph: Graph, node: Node) -> WeightFacts | None:
    name = next((n for n in reversed(node.inputs) if n in graph.constants), None)
    if name is None:
        return None
    edge = graph.edges[name]
    count = math.prod(edge.shape)
    bits = edge.type.bits if isinstance(edge.type, Integers) else _bits(edge.dtype)
    return WeightFacts(EdgeFacts.of(edge), -(-count * _bits(edge.dtype) // 8), -(-count * bits // 8))


def _bits(dtype: str) -> int:
    """Bits of a number in a type of the file."""
    digits = "".join(c for c in dtype if c.isdigit())
    return int(digits) if digits else 8


def _note(graph: Graph, node: Node) -> str:
    """What the file says that it can hardly mean."""
    if node.attributes.get("rounding") == "BIPOLAR" and (graph.makers().get(node.inputs[0]) or node).op == "relu":
        return "gives 1 for every input: after Relu all are 0 or more; export it as a Quant of 1 bit, unsigned"
    kind = graph.edges[node.outputs[0]].type
    if isinstance(kind, Integers) and kind.least == kind.most:
        return f"gives {kind.least} for every input"
    return ""


def as_json(facts: NetworkFacts) -> dict[str, Any]:
    """The facts as plain values for JSON."""
    totals = {
        "macs": facts.macs,
        "float_macs": facts.float_macs,
        "weight_bytes": sum(w.file_bytes for w in facts.weights),
        "packed_weight_bytes": sum(w.packed_bytes for w in facts.weights),
    }
    return {**asdict(facts), **totals}

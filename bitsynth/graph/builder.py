"""Construction of graphs, node by node; nodes of constants are folded at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.arithmetic import Interval
from bitsynth.graph.exact_numbers import ExactNumbers
from bitsynth.graph.infer import infer_edges
from bitsynth.graph.ir import EMPTY, Graph, Names, Node
from bitsynth.graph.quantizer_claims import QuantizerClaims
from bitsynth.graph.reference import evaluate
from bitsynth.graph.types import Edge, EdgeType, Integers, Reals, Shape, Tensor, cast, is_float, take_places

_MAX_WHOLE_FLOAT = 1 << 32
"""Constant floats are integers if all are whole and at most this: larger ones are no codes or accumulators."""
_ROUNDED_AS_WRITTEN = ("quantize", "trunc")


class GraphBuilder:
    """A graph under construction.

    Nodes that depend on constants alone are computed at once, where the result is exact.

    Args:
        name: The name of the network.
        reference: The named reference, by which constants are folded too.
        file_names: Every name that the file uses for an edge; no other edge gets one of them.
    """

    def __init__(self, name: str, reference: str, file_names: frozenset[str] = frozenset()) -> None:
        self.name, self.reference, self.file_names = name, reference, file_names
        self.quantizer: QuantizerClaims | None = None
        self.nodes: list[Node] = []
        self._makers: dict[str, Node] = {}
        self.edges: dict[str, Edge] = {}
        self.constants: dict[str, Tensor] = {}
        self.inputs: list[str] = []
        self.transposed: dict[tuple[str, tuple[int, ...]], str] = {}
        """The edge with the axes of another edge in an order, by that edge and the order."""
        self._names = Names(self.edges, file_names)
        self._by_value: dict[tuple[str, Shape, bytes], str] = {}
        self._as_floats: dict[str, Tensor | None] = {}
        """The numbers of edges that come from constants alone, in the floats of the file; None until asked for."""

    def input(self, name: str, shape: Shape, dtype: str, kind: EdgeType) -> str:
        """Add an input of the network; return its name."""
        self.edges[name] = Edge(name, shape, dtype, kind)
        self.inputs.append(name)
        return name

    def constant(self, value: Any, name: str = "") -> str:
        """Add an array, or find an equal one, and return its edge: of integers if all are whole and small."""
        array = np.asarray(value)
        key = (str(array.dtype), array.shape, array.tobytes())
        if not name and key in self._by_value:
            return self._by_value[key]
        name = name or self.fresh("constant")
        dtype, kind = str(array.dtype), _type_of(array)
        held = array.astype(np.int64) if isinstance(kind, Integers) else array
        self._keep(Edge(name, array.shape, dtype, kind), held)
        self._by_value.setdefault(key, name)
        return name

    def part(self, name: str, places: Tensor, axis: int) -> str:
        """Add the elements of a constant at `places` of an axis as a constant; return its edge."""
        edge, value = self.edges[name], self.constants[name].take(places, axis)
        kind, axes_from_there = edge.type, value.ndim - axis
        if isinstance(kind, Integers):
            arrays = kind.low, kind.high, kind.scale, kind.zero
            low, high, scale, zero = (take_places(a, places, a.ndim - axes_from_there) for a in arrays)
            kind = Integers(low, high, scale, zero, kind.step)
        fresh = self.fresh(f"{name}.part")
        self._keep(Edge(fresh, value.shape, edge.dtype, kind), value)
        return fresh

    def _keep(self, edge: Edge, value: Tensor) -> None:
        """Add a constant with its edge; the array is copied and made read-only."""
        value = np.array(value, order="C")
        value.setflags(write=False)
        self.edges[edge.name], self.constants[edge.name] = edge, value

    def fresh(self, stem: str) -> str:
        """Return a name that no edge has: in this graph, in the graph that it rewrites, or in the file."""
        return self._names.make(stem)

    def add(self, op: str, *inputs: str, name: str = "", source: str = "", count: int = 1, **attributes: Any) -> str:
        """Add a node; return its only or first output. If all inputs are constants, it may become one."""
        return self.add_all(op, *inputs, names=(name,) if name else (), source=source, count=count, **attributes)[0]

    def add_all(
        self, op: str, *inputs: str, names: tuple[str, ...] = (), source: str = "", count: int = 1, **attributes: Any
    ) -> tuple[str, ...]:
        """Add a node of `count` outputs; return their names."""
        stem = f"{source.partition(' ')[2] or self.name}.{op}"
        outputs = names or tuple(self.fresh(f"{stem}{k or ''}") for k in range(count))
        node = Node(outputs[0], op, inputs, outputs, MappingProxyType(attributes), source)
        edges = infer_edges(
            node, [self.edges[n] for n in inputs], [self.constants.get(n) for n in inputs], self.reference
        )
        self.edges.update(zip(outputs, edges, strict=True))
        if not (inputs and all(n in self.constants for n in inputs) and self._fold(node)):
            self.nodes.append(node)
            self._makers.update(dict.fromkeys(outputs, node))
            if inputs and count == 1 and all(n in self.constants or n in self._as_floats for n in inputs):
                self._as_floats[outputs[0]] = None
        return outputs

    def maker(self, name: str, op: str = "") -> Node | None:
        """Return the node that makes an edge, if it is an `op` or `op` is ""; None of inputs and constants."""
        node = self._makers.get(name)
        return node if node is not None and op in ("", node.op) else None

    def _fold(self, node: Node) -> bool:
        """Compute a node of constants; return whether the results were exact, and so were kept as constants.

        In exact arithmetic float64 must hold them. Weights are rounded to codes in the file's type of floats, as every
        executor and exporter does it.
        """
        graph = self._graph((), ())
        if node.op in _ROUNDED_AS_WRITTEN:
            graph = replace(graph, reference="onnxruntime")
        exact = ExactNumbers(graph, self.constants, self._makers)
        values = evaluate(node, graph, self.constants, exact)
        if any(isinstance(v, Interval) and not v.is_point for v in values):
            return False
        for name, value in zip(node.outputs, values, strict=True):
            edge = self.edges[name]
            array = value.low if isinstance(value, Interval) else np.asarray(value)
            kind = _constant_type(edge.type, array)
            self._keep(
                Edge(name, edge.shape, edge.dtype, kind),
                array.astype(np.int64) if isinstance(kind, Integers) else array,
            )
        return True

    @classmethod
    def begin_from(cls, graph: Graph) -> GraphBuilder:
        """Begin a rewritten form of a graph, with its inputs and constants and none of its nodes."""
        builder = cls(graph.name, graph.reference, graph.file_names)
        builder._names = Names(builder.edges, graph.edges, graph.file_names)
        builder.quantizer = graph.quantizer
        builder.inputs = list(graph.inputs)
        builder.constants = dict(graph.constants)
        builder.edges.update({name: graph.edges[name] for name in (*graph.inputs, *graph.constants)})
        return builder

    def repeat(self, node: Node) -> None:
        """Add a node of the graph before under its names; its edges are inferred again."""
        self.add_all(node.op, *node.inputs, names=node.outputs, source=node.source, **dict(node.attributes))
        if self.nodes and self.nodes[-1].outputs == node.outputs:
            self.nodes[-1] = replace(self.nodes[-1], name=node.name)

    def value(self, name: str) -> Tensor | None:
        """Return a constant in the file's type, dequantized if that is a float type; None of other edges."""
        if name not in self.constants:
            return None
        edge, value = self.edges[name], self.constants[name]
        if not isinstance(edge.type, Integers) or (edge.type.is_plain and not edge.is_float):
            return value
        numbers: Tensor = (value - edge.type.zero) * edge.type.scale
        return cast(numbers, edge.dtype) if edge.is_float else numbers.astype(np.int64)

    def in_floats(self, name: str) -> Tensor | None:
        """Return an edge's numbers as the floats of the file give them; None unless they come from constants."""
        todo = [name] if name in self._as_floats else []
        while todo:
            node = self._makers[todo[-1]]
            if missing := [n for n in {*node.inputs} if n in self._as_floats and self._as_floats[n] is None]:
                todo += missing
            else:
                self._as_floats[todo.pop()] = self._compute_in_floats(node)
        return self._as_floats[name] if name in self._as_floats else self.value(name)

    def _compute_in_floats(self, node: Node) -> Tensor:
        """Compute a node of constants, and of numbers that were computed so before, in the floats of the file."""
        graph = replace(self._graph((), ()), reference="onnxruntime")
        held = {n: self.constants[n] if n in self.constants else self._as_floats[n] for n in node.inputs}
        output = evaluate(node, graph, held, ExactNumbers(graph, held, {}))[0]
        edge = self.edges[node.outputs[0]]
        return np.asarray(
            output if not isinstance(edge.type, Integers) else (output - edge.type.zero) * edge.type.scale
        )

    def build(self, outputs: tuple[str, ...], names: Mapping[str, str] = EMPTY) -> Graph:
        """Return the graph of the nodes that `outputs` depend on; edges get the `names` that the file has for them."""
        used_nodes: list[Node] = []
        needed = set(outputs)
        for node in reversed(self.nodes):
            if needed & set(node.outputs):
                used_nodes.append(node)
                needed |= set(node.inputs)
        return rename_edges(self._graph(tuple(reversed(used_nodes)), outputs), names)

    def _graph(self, nodes: tuple[Node, ...], outputs: tuple[str, ...]) -> Graph:
        if not nodes and not outputs:
            edges: Mapping[str, Edge] = self.edges
            constants: Mapping[str, Tensor] = self.constants
        else:
            names = {*outputs, *self.inputs, *(n for node in nodes for n in (*node.inputs, *node.outputs))}
            edges = MappingProxyType({n: e for n, e in self.edges.items() if n in names})
            constants = MappingProxyType({n: v for n, v in self.constants.items() if n in names})
        inputs = tuple(self.inputs)
        return Graph(
            self.name, self.reference, nodes, edges, constants, inputs, outputs, self.file_names, self.quantizer
        )


def rename_edges(graph: Graph, names: Mapping[str, str]) -> Graph:
    """Return the graph with other names of edges: names of the file, which `GraphBuilder.fresh` never makes."""
    if not names:
        return graph
    to = {name: names.get(name, name) for name in graph.edges}
    nodes = tuple(
        replace(
            n, name=to[n.outputs[0]], inputs=tuple(to[i] for i in n.inputs), outputs=tuple(to[o] for o in n.outputs)
        )
        for n in graph.nodes
    )
    return replace(
        graph,
        nodes=nodes,
        edges=MappingProxyType({to[k]: replace(e, name=to[k]) for k, e in graph.edges.items()}),
        constants=MappingProxyType({to[k]: v for k, v in graph.constants.items()}),
        inputs=tuple(to[n] for n in graph.inputs),
        outputs=tuple(to[n] for n in graph.outputs),
    )


def _type_of(array: Tensor) -> EdgeType:
    """Return the type of a constant: integers if all numbers are whole and small, bipolar if all are -1 and 1."""
    if array.dtype == object:
        raise SpecError("texts are not numbers")
    floats = is_float(str(array.dtype))
    numbers = array.astype(np.float64) if floats else array.astype(np.int64)
    if not numbers.size:
        return Integers.between(0, 0) if not floats else Reals()
    if floats and not (np.isfinite(numbers).all() and (numbers == np.rint(numbers)).all()):
        return Reals()
    least, most = int(numbers.min()), int(numbers.max())
    if floats and max(-least, most) > _MAX_WHOLE_FLOAT:
        return Reals()
    step = 2 if numbers.ndim > 1 and (np.abs(numbers) == 1).all() else 1
    return Integers.between(least, most, step=step)


def _constant_type(kind: EdgeType, array: Tensor) -> EdgeType:
    """Return the type of a constant that was computed: integers as inferred, or else by its numbers."""
    if not isinstance(kind, Integers):
        return _type_of(array)
    return kind

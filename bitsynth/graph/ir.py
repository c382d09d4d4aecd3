"""The typed graph of a network. It is immutable, and its nodes are in an order in which they can run.

New names of edges and buffers are made here alone. The digest of a graph is a hash of its nodes, edges and constants,
the same for every file that gives them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.quantizer_claims import QuantizerClaims
from bitsynth.graph.types import Edge, Integers, Tensor
from bitsynth.printable import show


class Names:
    """A source of names that nothing else has.

    A file may call an edge anything: `input.1` (torch.onnx.export does), `x.codes`, `constant`. A name that bitsynth
    makes for an edge or a buffer must differ from all names of the file, also from names of edges that a pass has
    removed: results are compared with other runtimes by name.

    Example: `Names({"x", "x.rows"}).make("x.rows")` is "x.rows_1", and "x.rows_2" when it is asked for again.

    Args:
        taken: Collections of names that are in use. They are looked up, not copied, so they may grow later.
    """

    def __init__(self, *taken: Container[str]) -> None:
        self._taken = taken
        self._made: set[str] = set()
        self._suffixes: Counter[str] = Counter()

    def make(self, stem: str) -> str:
        """Return a new name: the stem, followed by a number if the stem is in use."""
        name = stem
        while name in self._made or any(name in names for names in self._taken):
            self._suffixes[stem] += 1
            name = f"{stem}_{self._suffixes[stem]}"
        self._made.add(name)
        return name


EMPTY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Node:
    """An operation on edges: a row of the table `operators.TABLE`, applied.

    Args:
        name: A unique name: its first output's, or the name of the node that it replaced.
        op: The name of its row of the table.
        inputs: The edges that it reads, in order.
        outputs: The edges that it makes.
        attributes: The numbers, texts and arrays that the row asks for.
        source: The node of the file: operator and name.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=lambda: EMPTY, hash=False, compare=False)
    source: str = ""

    def __str__(self) -> str:
        return show(self.source or f"{self.op} {self.name}")


@dataclass(frozen=True, eq=False)
class Graph:
    """A network: nodes in order, and every edge by name.

    The value of a constant of type `Integers` is its integers in int64; other constants are arrays of floats.

    Args:
        name: The name of the network.
        reference: The named reference that defines its results: exact, onnxruntime, onnx or tflite.
        nodes: The nodes, each after those whose outputs it reads.
        edges: Every edge by name, constants included.
        constants: The values of edges that no node makes.
        inputs: The edges that the caller gives.
        outputs: The edges that the caller gets.
        file_names: Every name that the file uses for an edge, also for edges that no longer exist.
        quantizer: The file's claims of its quantizer's error; None if it has none.
    """

    name: str
    reference: str
    nodes: tuple[Node, ...]
    edges: Mapping[str, Edge]
    constants: Mapping[str, Tensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    file_names: frozenset[str] = frozenset()
    quantizer: QuantizerClaims | None = None

    @cached_property
    def output_set(self) -> frozenset[str]:
        """The edges of `outputs` as a set."""
        return frozenset(self.outputs)

    @cached_property
    def may_leave_float64(self) -> bool:
        """Whether numbers may be larger than float64 holds: powers of float32 numbers may be."""
        return any(node.op in ("exp", "power") for node in self.nodes)

    def edges_of(self, names: tuple[str, ...]) -> tuple[Edge, ...]:
        """Return the edges of these names."""
        return tuple(self.edges[name] for name in names)

    @cached_property
    def readers(self) -> Mapping[str, list[Node]]:
        """The nodes that read each edge, in order; a node that reads an edge twice is there once."""
        readers: dict[str, list[Node]] = {name: [] for name in self.edges}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                readers[name].append(node)
        return readers

    def only_reader(self, edge: str) -> Node | None:
        """Return the only reader of an edge; None if there are others, an output of the network included."""
        readers = self.readers[edge]
        return readers[0] if len(readers) == 1 and edge not in self.output_set else None

    @cached_property
    def makers(self) -> Mapping[str, Node]:
        """The node that makes each edge."""
        return {name: node for node in self.nodes for name in node.outputs}

    def check(self) -> None:
        """Raise SpecError unless each edge is made once, before it is read, and is as its node's operator infers it."""
        from bitsynth.graph.infer import infer_edges

        known = {*self.inputs, *self.constants}
        for node in self.nodes:
            if missing := [name for name in node.inputs if name not in known]:
                raise SpecError(f"{node} reads {', '.join(missing)}, which nothing before it makes")
            if again := [name for name in node.outputs if name in known]:
                raise SpecError(f"{node} makes {', '.join(again)}, which exists already")
            given = [self.constants.get(name) for name in node.inputs]
            inferred = infer_edges(node, self.edges_of(node.inputs), given, self.reference)
            for edge, want in zip(self.edges_of(node.outputs), inferred, strict=True):
                if (edge.shape, edge.dtype, type(edge.type)) != (want.shape, want.dtype, type(want.type)):
                    raise SpecError(f"{node}: {edge.name} is {edge.shape} {edge.dtype}, not {want.shape} {want.dtype}")
            known |= set(node.outputs)
        if missing := [name for name in self.outputs if name not in known]:
            raise SpecError(f"nothing makes the output {', '.join(missing)}")
        for name, value in self.constants.items():
            self._check_constant(self.edges[name], value)

    def _check_constant(self, edge: Edge, value: Tensor) -> None:
        """Raise SpecError unless a constant has the shape of its edge, and its integers are within their limits."""
        if value.shape != edge.shape:
            raise SpecError(f"the constant {edge.name} has shape {value.shape}, not {edge.shape}")
        kind = edge.type
        if isinstance(kind, Integers) and ((value < kind.low).any() or (value > kind.high).any()):
            raise SpecError(f"the constant {edge.name} leaves {kind.least} to {kind.most}")


def digest(graph: Graph) -> str:
    """Return the SHA-256 of a graph's nodes, edges and constants, in hexadecimal.

    `file_names` and `quantizer` are left out: they say nothing of the graph, and a set has another order in each
    process.
    """
    hasher = hashlib.sha256()
    _feed(hasher, {f.name: getattr(graph, f.name) for f in fields(graph) if f.name not in ("file_names", "quantizer")})
    return hasher.hexdigest()


def _feed(hasher: Any, value: Any) -> None:
    """Hash a value together with its type, so that different values are different bytes."""
    if isinstance(value, np.ndarray | np.generic):
        _feed(hasher, (value.dtype.name, value.shape))
        hasher.update(np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<")).tobytes())
    elif is_dataclass(value):
        _feed(hasher, {f.name: getattr(value, f.name) for f in fields(value)})
    elif isinstance(value, Mapping):
        _feed(hasher, [(key, value[key]) for key in sorted(value)])
    elif isinstance(value, list | tuple):
        hasher.update(f"({len(value)}".encode())
        for part in value:
            _feed(hasher, part)
    else:
        text = repr(value).encode()
        hasher.update(f"{type(value).__name__} {len(text)} ".encode() + text)

"""Regions: nodes of a graph that one step computes together, and the formats they can read and write."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.types import Integers
from bitsynth.layers.pool import check_threads
from bitsynth.network.program import Buffer, Format, NetworkStep


@dataclass(frozen=True)
class NetworkTarget:
    """What a network is compiled for: an instruction set by name, not "auto", and threads."""

    isa: str
    threads: int = 1

    def __post_init__(self) -> None:
        check_threads(self.threads)


@dataclass(frozen=True, eq=False)
class Wiring:
    """A graph with who reads and makes each edge, looked up once."""

    graph: Graph
    target: NetworkTarget

    @cached_property
    def readers(self) -> Mapping[str, list[Node]]:
        """The nodes that read each edge."""
        return self.graph.readers()

    @cached_property
    def makers(self) -> Mapping[str, Node]:
        """The node that makes each edge."""
        return self.graph.makers()

    @cached_property
    def order(self) -> Mapping[str, int]:
        """The place of each node, by name."""
        return {node.name: place for place, node in enumerate(self.graph.nodes)}

    def only_reader(self, edge: str) -> Node | None:
        """The node that alone reads an edge which is no output of the network; None if there is no such."""
        found = self.readers[edge]
        return found[0] if len(found) == 1 and edge not in self.graph.outputs else None

    def only_source(self, node: Node) -> str | None:
        """The edge that a node reads alone besides constants; None if there are none or several."""
        found = {edge for edge in node.inputs if not self.is_constant(edge)}
        return found.pop() if len(found) == 1 else None

    def is_constant(self, edge: str) -> bool:
        """Whether an edge is a constant."""
        return edge in self.graph.constants

    def carries_integers(self, edge: str) -> bool:
        """Whether an edge carries integers."""
        return isinstance(self.graph.edges[edge].type, Integers)


class Region(ABC):
    """Nodes that one step computes.

    Attributes:
        nodes: In order; no edge between them is read elsewhere.
        inputs: Edges it reads, but for constants, as its step reads their buffers.
        outputs: Edges it makes for others, likewise.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @abstractmethod
    def reads(self, edge: str) -> tuple[Format, ...]:
        """The formats in which it can read an edge, the cheapest first."""

    @abstractmethod
    def writes(self, edge: str) -> tuple[Format, ...]:
        """The formats in which it can write an edge, the cheapest first."""

    @abstractmethod
    def step(self, buffers: Mapping[str, Buffer]) -> NetworkStep:
        """The step on the buffers of its edges; of an alias the caller never asks for one."""

    @property
    def is_alias(self) -> bool:
        """Whether its output has its input's elements in their order, in the same shape or another.

        If both have one format, and that leaves all in its place too, they are one memory.
        """
        return False

"""Fusion groups: nodes of a graph that one step computes together, and the formats they can read and write."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from bitsynth.graph.ir import Node
from bitsynth.network.program import Buffer, Format, NetworkStep


class FusionGroup(ABC):
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
    def names(self) -> tuple[str, ...]:
        """Its nodes by name, as its step has them."""
        return tuple(node.name for node in self.nodes)

    @property
    def is_alias(self) -> bool:
        """Whether its output has its input's elements in their order, in the same shape or another.

        If both have one format, and that leaves all in its place too, they are one memory.
        """
        return False

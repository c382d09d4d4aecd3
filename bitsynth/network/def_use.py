"""The def-use relation of a graph that is lowered: the node that computes each edge, and the nodes that read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.types import Integers
from bitsynth.layers.pool import check_threads
from bitsynth.network.declines import Declines, Reason, Stage

if TYPE_CHECKING:
    from bitsynth.network.formulas.chain import Chain, Link
    from bitsynth.network.formulas.epilogues import EpilogueForm
    from bitsynth.network.formulas.step_functions import StepFunction
    from bitsynth.network.fusion.layer_maker import Product


@dataclass(frozen=True)
class NetworkTarget:
    """The target of a network: an instruction set by name (not "auto"), the threads, and a processor or ""."""

    isa: str
    threads: int = 1
    cpu: str = ""

    def __post_init__(self) -> None:
        check_threads(self.threads)


class LinkKey(NamedTuple):
    """A node, the edge through which a chain comes to it, and what the chain is like."""

    edge: str
    axis: int
    node: str
    monotone: bool


class LinkList(NamedTuple):
    """A link of a chain and the links after it; None at the end."""

    link: Link
    rest: LinkList | None


class ChainKey(NamedTuple):
    """A chain by its start, its nodes' names and its axes of channels."""

    start: str
    nodes: tuple[str, ...]
    axes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class AnalysisMemo:
    """Results of analyses of one graph, each computed once, as several matchers ask for it.

    Attributes:
        links: The longest list of links that begins with a node; None if the node is no link.
        step_functions: The step function of a chain; None if the chain has none.
        sources: The edges that a node reads and that are not constant, in order, by the node's name.
        epilogue_forms: The product that begins with a node, a monotone chain after it and its epilogue, by the node's
            name; None if there are none.
    """

    links: dict[LinkKey, LinkList | None] = field(default_factory=dict)
    step_functions: dict[ChainKey, StepFunction | None] = field(default_factory=dict)
    sources: dict[str, tuple[str, ...]] = field(default_factory=dict)
    epilogue_forms: dict[str, tuple[Product, Chain, EpilogueForm] | None] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class DefUse:
    """A graph, its target, and what matchers ask of both, computed once."""

    graph: Graph
    target: NetworkTarget
    memo: AnalysisMemo = field(default_factory=AnalysisMemo, repr=False)
    declines: Declines = field(default_factory=Declines, repr=False)

    @property
    def readers(self) -> Mapping[str, list[Node]]:
        """The nodes that read each edge."""
        return self.graph.readers

    @property
    def makers(self) -> Mapping[str, Node]:
        """The node that makes each edge."""
        return self.graph.makers

    @cached_property
    def order(self) -> Mapping[str, int]:
        """The index of each node in the graph, by name."""
        return {node.name: place for place, node in enumerate(self.graph.nodes)}

    @cached_property
    def varying(self) -> frozenset[str]:
        """The edges that depend on an input of the network."""
        varying_edges = set(self.graph.inputs)
        for node in self.graph.nodes:
            if not varying_edges.isdisjoint(node.inputs):
                varying_edges.update(node.outputs)
        return frozenset(varying_edges)

    def only_reader(self, edge: str) -> Node | None:
        """Return the only reader of an edge that is no output of the network; None if there are others."""
        return self.graph.only_reader(edge)

    def only_source(self, node: Node) -> str | None:
        """Return the only input of a node that is not constant; None if there are none or several."""
        sources = self.sources(node)
        return sources[0] if len(sources) == 1 else None

    def sources(self, node: Node) -> tuple[str, ...]:
        """Return the different inputs of a node that are not constant, in order."""
        memo = self.memo.sources
        if node.name not in memo:
            memo[node.name] = tuple(dict.fromkeys(edge for edge in node.inputs if not self.is_constant(edge)))
        return memo[node.name]

    def decline(self, node: Node, stage: Stage, reason: Reason) -> None:
        """Record why a matcher makes no group of the nodes that begin with this one."""
        self.declines.add(node.name, stage, reason)

    def is_constant(self, edge: str) -> bool:
        """Return whether an edge is a constant."""
        return edge in self.graph.constants

    def carries_integers(self, edge: str) -> bool:
        """Return whether an edge carries integers."""
        return isinstance(self.graph.edges[edge].type, Integers)

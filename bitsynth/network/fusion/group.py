"""Fusion groups: nodes of a graph that one step computes together, and the formats they can read and write."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping

from bitsynth.graph.ir import Node
from bitsynth.graph.operators import PRODUCTS
from bitsynth.graph.types import INT32, Integers, Shape
from bitsynth.network.def_use import DefUse
from bitsynth.network.formulas import Chain
from bitsynth.network.program import Buffer, Format, NetworkStep
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import MatmulOperand


class FusionGroup(ABC):
    """Nodes that one step computes (elsewhere: a fusion region or cluster).

    Attributes:
        nodes: In order; no edge between them is read elsewhere.
        inputs: Edges that it reads, without constants, in the order of its step's input buffers.
        outputs: Edges that it computes for others, in the order of its step's output buffers.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @abstractmethod
    def reads(self, edge: str) -> tuple[Format, ...]:
        """Return the formats in which it can read an edge, the cheapest first."""

    @abstractmethod
    def writes(self, edge: str) -> tuple[Format, ...]:
        """Return the formats in which it can write an edge, the cheapest first."""

    @abstractmethod
    def step(self, buffers: Mapping[str, Buffer]) -> NetworkStep:
        """Return the step on the buffers of its edges; callers do not ask an alias for one."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its nodes, in order."""
        return tuple(node.name for node in self.nodes)

    @property
    def is_alias(self) -> bool:
        """Whether its output is its input with another shape: the same elements in the same order.

        If both have one format in which the reshape moves nothing, they share one memory.
        """
        return False

    @property
    def keeps_layout(self) -> bool:
        """Whether the step can write several orders, and is fastest if its results have the order of its inputs."""
        return False


_MIN_LOOP_ELEMENTS = 64
"""Elements from which on the beginning and the end of a vectorized loop cost little."""


def has_channels(def_use: DefUse, edge: str) -> bool:
    """Return whether an edge has int32 accumulators of images, rows or heads, with channels along axis 1."""
    kind, maker = def_use.graph.edges[edge].type, find_product_of(def_use, edge)
    inside = isinstance(kind, Integers) and INT32[0] < kind.least and kind.most < INT32[1]
    return inside and maker is not None and (maker.op == "conv" or len(def_use.graph.edges[edge].shape) in (2, 4))


def find_product_of(def_use: DefUse, edge: str) -> Node | None:
    """Return the product whose accumulators, or these with integers added, an edge has; None if there is none."""
    maker = def_use.makers.get(edge)
    source = def_use.only_source(maker) if maker is not None and maker.op == "add" else None
    if source is not None and def_use.carries_integers(edge):
        maker = def_use.makers.get(source)
    return maker if maker is not None and maker.op in PRODUCTS else None


class AccumulatorGroup(FusionGroup):
    """A chain from int32 accumulators, channels last, to codes, element by element."""

    def __init__(self, def_use: DefUse, chain: Chain, operand: MatmulOperand) -> None:
        self.def_use, self.chain, self.operand = def_use, chain, operand
        self.nodes = (*chain.second_path, *chain.nodes)
        self.inputs = (chain.start, *filter(None, (chain.second,)))
        self.outputs = (chain.end,)

    def reads(self, edge: str) -> tuple[Format, ...]:
        """Return the format of accumulators, channels last."""
        return (Format("int32", None, Layout.NHWC),)

    def writes(self, edge: str) -> tuple[Format, ...]:
        """Return the format of codes, a byte each."""
        return (Format.codes(self.operand),)


def repeats(shape: Shape) -> tuple[int, int]:
    """Return, for (N, C, ...), the pixels of one run of a loop, several if channels are few, and the number of runs."""
    batch, channels, *image = shape
    pixels = batch * math.prod(image)
    pixels_of_run = max(n for n in range(1, max(1, _MIN_LOOP_ELEMENTS // channels) + 1) if pixels % n == 0)
    return pixels_of_run, pixels // pixels_of_run

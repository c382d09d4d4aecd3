"""Convolutions of the caller's float32 numbers, and the chain to codes behind them, in one step.

Sums are in float32. Those so near to a threshold that their error could decide are summed again, exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.types import Edge, Integers, Reals, Tensor
from bitsynth.network.plain.planes import ImagePlanes
from bitsynth.network.program import CHANNELS_LAST, Buffer, Format, PlainStep, caller_format
from bitsynth.network.regions.codes import code_formats, codes_of, operand_of
from bitsynth.network.regions.decisions import LevelLines, level_lines
from bitsynth.network.regions.functions import chains
from bitsynth.network.regions.real_text import ROWS, RealBody
from bitsynth.network.regions.region import Region
from bitsynth.network.stairs import Chain, Staircase
from bitsynth.network.stairs.doubles import double_thresholds, real_staircase
from bitsynth.network.wiring import Wiring

_MOST_WEIGHT = 1 << 24


def match_real_convolution(wiring: Wiring, node: Node) -> Region | None:
    """A convolution of an input of the network, without groups, and the monotone chain to codes."""
    graph = wiring.graph
    if node.op != "conv" or node.attributes["groups"] != 1 or graph.reference != "exact":
        return None
    x, w = graph.edges_of(node.inputs)
    if x.name not in graph.inputs or x.dtype != "float32" or not isinstance(x.type, Reals) or len(x.shape) > 4:
        return None
    factors = _factors(graph, w) if wiring.is_constant(w.name) else None
    if factors is None or min(node.attributes["window"].begins) < 0:
        return None
    return _decided(wiring, node, *factors)


def _factors(graph: Graph, edge: Edge) -> tuple[Tensor, Tensor] | None:
    """Weights that float32 holds, and what each output channel's are times; None if they are no such."""
    value, kind = graph.constants[edge.name], edge.type
    if not isinstance(kind, Integers):
        return (value, np.ones(len(value))) if (value == value.astype(np.float32)).all() else None
    whole = value - kind.zero
    per_channel = kind.scale.size == 1 or kind.scale.shape == (len(value), *[1] * (value.ndim - 1))
    if not per_channel or np.abs(whole).max() >= _MOST_WEIGHT or (whole != np.rint(whole)).any():
        return None
    return whole, np.broadcast_to(kind.scale.reshape(-1), (len(value),))


def _decided(wiring: Wiring, node: Node, weights: Tensor, scales: Tensor) -> Region | None:
    scaled = Wiring(_of_sums(wiring.graph, node, scales), wiring.target)
    found = chains(scaled, _sums_name(node), monotone=True)
    chain = next((c for c in found if operand_of(scaled.graph.edges[c.end]) and not c.aside), None)
    stairs = real_staircase(scaled.graph, chain) if chain else None
    if chain is None or stairs is None:
        return None
    thresholds = np.sort(double_thresholds(stairs), axis=1)
    rows = weights.reshape(len(weights), -1)
    thresholds = np.broadcast_to(thresholds, (len(rows), thresholds.shape[1]))
    lines = level_lines(thresholds, rows)
    if lines is None:
        return None
    return RealConvolution(wiring, node, chain, stairs, DecidedSums(weights, thresholds, lines))


def _sums_name(node: Node) -> str:
    return f"{node.outputs[0]}.sums"


def _of_sums(graph: Graph, node: Node, scales: Tensor) -> Graph:
    """The graph with sums that are scaled in the place of a convolution."""
    made = graph.edges[node.outputs[0]]
    sums = Edge(_sums_name(node), made.shape, "float64", Reals())
    scale = Edge(f"{node.outputs[0]}.scale", (1, len(scales), *[1] * (len(made.shape) - 2)), "float64", Reals())
    times = replace(node, op="mul", inputs=(sums.name, scale.name), attributes=MappingProxyType({}))
    return replace(
        graph,
        nodes=tuple(times if n is node else n for n in graph.nodes),
        edges=MappingProxyType({**graph.edges, sums.name: sums, scale.name: scale}),
        constants=MappingProxyType({**graph.constants, scale.name: scales.reshape(scale.shape).astype(np.float64)}),
    )


@dataclass(frozen=True, eq=False)
class DecidedSums:
    """Weights (channels, ...), ascending thresholds of sums (channels, levels), and their lines."""

    weights: Tensor
    thresholds: Tensor
    lines: LevelLines


class RealConvolution(Region):
    """A convolution of float32 and the codes of its sums."""

    def __init__(self, wiring: Wiring, node: Node, chain: Chain, stairs: Staircase, sums: DecidedSums) -> None:
        self.wiring, self.node, self.stairs, self.sums = wiring, node, stairs, sums
        self.nodes, self.inputs, self.outputs = (node, *chain.nodes[1:]), node.inputs[:1], (chain.end,)

    def reads(self, edge: str) -> tuple[Format, ...]:
        return (caller_format(self.wiring.graph.edges[edge]),)

    def writes(self, edge: str) -> tuple[Format, ...]:
        return code_formats(self.wiring.graph.edges[edge], (CHANNELS_LAST,))

    def step(self, buffers: Mapping[str, Buffer]) -> PlainStep:
        given, made = buffers[self.inputs[0]], buffers[self.outputs[0]]
        planes = ImagePlanes(self.node.attributes["window"], given.edge.shape[2:])
        body = RealBody(given.edge.shape, len(self.sums.weights), planes, self.sums.thresholds.shape[1])
        constants = (self._weights(), *body.places(), self.sums.thresholds, *self._lines(made.edge))
        text, room = body.text(), body.scratch_bytes
        return PlainStep(self.names, (given.name,), (made.name,), text, constants, room, ("bs_decide.h",))

    def _weights(self) -> Tensor:
        """Rows of weights in blocks of a few, a term of each beside the others."""
        rows = self.sums.weights.reshape(len(self.sums.weights), -1)
        padded = np.pad(rows, ((0, -len(rows) % ROWS), (0, 0)))
        return padded.reshape(-1, ROWS, rows.shape[1]).swapaxes(1, 2).astype(np.float32)

    def _lines(self, edge: Edge) -> tuple[Tensor, Tensor, Tensor]:
        """Lines, margins, and the code of no threshold with the way codes go."""
        (first,) = codes_of(np.array([self.stairs.least]), edge).tolist()
        rising = np.broadcast_to(self.stairs.rising, len(self.sums.weights))
        codes = np.stack([np.where(rising, first, first + self.stairs.levels), np.where(rising, 1, -1)], 1)
        return self.sums.lines.lines, self.sums.lines.margins, codes.astype(np.int32)

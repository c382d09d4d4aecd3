"""The caller's float32 numbers as codes: moves and a monotone chain to a quantizer, by its levels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from bitsynth.graph.ir import Node
from bitsynth.graph.types import Edge, Reals, Tensor
from bitsynth.network.def_use import DefUse
from bitsynth.network.formulas import Chain, StepFunction, find_links, find_step_function, make_chain
from bitsynth.network.fusion.codes import code_formats, codes_of, operand_of
from bitsynth.network.fusion.group import FusionGroup
from bitsynth.network.fusion.input_text import LevelCodes, input_body
from bitsynth.network.fusion.rounding import RoundedLevels, fit_rounded_levels
from bitsynth.network.program import CHANNELS_LAST, PLAIN, Buffer, Format, PlainStep, caller_format

_MOVES = ("reshape", "transpose")
_MAX_LOOPS = 8
"""Planes of a formula each."""


def match_input(def_use: DefUse, node: Node) -> FusionGroup | None:
    """Moves of an input of the network, and the monotone chain to codes behind them."""
    graph = def_use.graph
    source = def_use.only_source(node)
    if source not in graph.inputs or graph.edges[source].dtype != "float32":
        return None
    if not isinstance(graph.edges[source].type, Reals):
        return None
    moves = _collect_moves(def_use, node)
    start = moves[-1].outputs[0] if moves else source
    links = find_links(def_use, start, 1, None if moves else node, mixing=True)
    for count in range(len(links), 0, -1):
        if operand_of(graph.edges[links[count - 1].node.outputs[0]]):
            chain = make_chain(def_use, start, links[:count])
            if chain.axes[-1] == 1 or not chain.varies:
                return _make_group(def_use, source, moves, chain)
    return None


def _collect_moves(def_use: DefUse, node: Node | None) -> tuple[Node, ...]:
    """Moves one after another, the first of which is a node."""
    found: list[Node] = []
    while node is not None and node.op in _MOVES:
        found.append(node)
        node = def_use.only_reader(node.outputs[0])
    return tuple(found)


def _make_group(def_use: DefUse, source: str, moves: tuple[Node, ...], chain: Chain) -> FusionGroup | None:
    order = _find_order(def_use, source, moves, chain.end)
    step_function = find_step_function(def_use.graph, chain) if order and chain.is_limited else None
    if order is None or step_function is None or len(set(step_function.rising.tolist())) > 1:
        return None
    return InputGroup(def_use, source, (*moves, *chain.nodes), step_function, order)


def _find_order(def_use: DefUse, source: str, moves: tuple[Node, ...], end: str) -> str | None:
    """Whether the caller's numbers lie as codes do, channels last, or in planes of channels; None if in other order."""
    graph = def_use.graph
    given, made = graph.edges[source].shape, graph.edges[end].shape
    places = np.arange(math.prod(given), dtype=np.int32).reshape(given)
    for node in moves:
        attributes = node.attributes
        places = places.reshape(attributes["sizes"]) if node.op == "reshape" else places.transpose(attributes["order"])
    if len(made) < 2:
        return None
    places = places.reshape(made)
    return CHANNELS_LAST if _is_rising(np.moveaxis(places, 1, -1)) else PLAIN if _is_rising(places) else None


def _is_rising(places: Tensor) -> bool:
    """Return whether each of some different numbers is greater than the one before it."""
    row = places.reshape(-1)
    return bool((row[:-1] < row[1:]).all())


class InputGroup(FusionGroup):
    """Codes of the caller's numbers, by a step function.

    Args:
        def_use: The graph.
        source: The input.
        nodes: Moves and the chain.
        step_function: What the chain makes.
        order: How numbers lie: channels last, or plain as the result's axes are.
    """

    def __init__(
        self, def_use: DefUse, source: str, nodes: tuple[Node, ...], step_function: StepFunction, order: str
    ) -> None:
        self.def_use, self.nodes, self.inputs, self.outputs = def_use, nodes, (source,), nodes[-1].outputs
        self.step_function, self.order = step_function, order

    def reads(self, edge: str) -> tuple[Format, ...]:
        return (caller_format(self.def_use.graph.edges[edge]),)

    def writes(self, edge: str) -> tuple[Format, ...]:
        return code_formats(self.def_use.graph.edges[edge], (CHANNELS_LAST,))

    def step(self, buffers: Mapping[str, Buffer]) -> PlainStep:
        given, made = (buffers[e].name for e in (*self.inputs, *self.outputs))
        edge = self.def_use.graph.edges[self.outputs[0]]
        return replace(
            input_step(self.step_function, edge, self.order), nodes=self.names, inputs=(given,), outputs=(made,)
        )


def input_step(step_function: StepFunction, edge: Edge, order: str) -> PlainStep:
    """Return the step, of no buffers yet, that makes codes of `edge` of float32 that lie in an `order`."""
    (first,) = codes_of(np.array([step_function.least]), edge).tolist()
    codes = LevelCodes.of(step_function, first, _find_formulas(step_function, order))
    batch, channels, *image = edge.shape
    body = input_body(codes, (batch, math.prod(image), channels), planes=order == PLAIN)
    return PlainStep((), (), (), body, (codes.table,), headers=("bs_exact.h",), formula=step_function)


def _find_formulas(step_function: StepFunction, order: str) -> tuple[RoundedLevels, ...]:
    """Formulas of levels, if C has a loop for each."""
    if len(step_function.low) > (_MAX_LOOPS if order == PLAIN else 1):
        return ()
    return fit_rounded_levels(step_function)

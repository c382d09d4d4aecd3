"""Functions of accumulators that are not monotone, as a table of breakpoints: plain C of two loads an element."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from bitsynth.emit.element_loops import CInput, ElementLoops, double
from bitsynth.graph.ir import Node
from bitsynth.network.declines import Stage
from bitsynth.network.def_use import DefUse
from bitsynth.network.formulas.chain import Chain, find_chain
from bitsynth.network.formulas.curves import Curve, find_curve
from bitsynth.network.fusion.codes import operand_of
from bitsynth.network.fusion.group import AccumulatorGroup, FusionGroup, has_channels, repeats
from bitsynth.network.fusion.lookup import find_forks
from bitsynth.network.program import Buffer, NetworkStep, PlainStep
from bitsynth.spec.matmul import MatmulOperand

_DOUBLE_BYTES = 8


def match_curve(def_use: DefUse, node: Node) -> FusionGroup | None:
    """Match a function of accumulators that is not monotone, up to codes.

    Given:   %y = batch_norm(%acc); %codes = quantize(mul(%y, sigmoid(%y)))    %acc of a product
    Result:  %codes = curve(%acc)    cell = (int)(factor * acc + summand); one of two codes by the cell's breakpoint
    """
    source = def_use.only_source(node)
    if source is None or not has_channels(def_use, source):
        return None
    if def_use.graph.reference != "exact":
        def_use.decline(node, Stage.OPERANDS, "tables of breakpoints are proved for exact arithmetic alone")
        return None
    for chain in _find_functions(def_use, source, node):
        operand = operand_of(def_use.graph.edges[chain.end])
        curve = find_curve(def_use.graph, chain, operand) if operand else None
        if operand and curve:
            return CurveGroup(def_use, chain, curve, operand)
    return None


def _find_functions(def_use: DefUse, source: str, node: Node) -> Iterator[Chain]:
    """Yield the longest function whose paths fork, and the chain."""
    shape = def_use.graph.edges[source].shape
    cone = next(find_forks(def_use, source, node), None)
    chain = find_chain(def_use, source, monotone=False)
    functions = (x for x in (cone, chain) if x and x.axes[-1] == 1)
    return (x for x in functions if def_use.graph.edges[x.end].shape[:2] == shape[:2])


class CurveGroup(AccumulatorGroup):
    """A table of breakpoints that all channels share, with an affine formula for each."""

    def __init__(self, def_use: DefUse, chain: Chain, curve: Curve, operand: MatmulOperand) -> None:
        super().__init__(def_use, chain, operand)
        self.curve = curve

    def step(self, buffers: Mapping[str, Buffer]) -> NetworkStep:
        """Return plain C: the places of a row of elements on the axis of cells, then their codes."""
        shape = self.def_use.graph.edges[self.chain.start].shape
        copies, times = repeats(shape)
        curve = self.curve.of(shape[1]).repeat(copies)
        inputs, outputs = (tuple(buffers[e].name for e in edges) for edges in (self.inputs, self.outputs))
        arrays = curve.factor, curve.summand, curve.breakpoints, curve.table
        constants = tuple(np.ascontiguousarray(x) for x in arrays)
        channels, cells = len(curve.factor), len(curve.breakpoints)
        given = {
            "s": CInput("(uint32_t)in0[at]", 32),
            "f": double("k0[c]"),
            "b": double("k1[c]"),
            "w": double("k2", cells),
            "t": CInput("k3", 8, 2 * cells),
        }
        loops = ElementLoops(times, channels, given, curve.text, row=curve.place_text)
        return PlainStep(
            self.names, inputs, outputs, loops.text(), constants, _DOUBLE_BYTES * channels, formula=self.curve
        )

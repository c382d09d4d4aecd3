"""Chains of many levels after accumulators, as an affine formula in float64: plain C of a few operations an element."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from bitsynth.emit.element_loops import CInput, ElementLoops, double
from bitsynth.graph.ir import Node
from bitsynth.graph.operators import TABLE
from bitsynth.graph.types import INT32
from bitsynth.network.declines import Stage
from bitsynth.network.def_use import DefUse
from bitsynth.network.formulas import Chain, Paired, find_chain, find_joined_chain, step_function_of
from bitsynth.network.formulas.affine import (
    find_affine,
    find_gated_affine,
    find_guarded_affine,
    find_paired_affine,
)
from bitsynth.network.formulas.affine_formula import AffineFormula
from bitsynth.network.formulas.chain import explain_no_chain
from bitsynth.network.fusion.codes import operand_of
from bitsynth.network.fusion.group import AccumulatorGroup, FusionGroup, find_product_of, has_channels, repeats
from bitsynth.network.plain import group as plain_group
from bitsynth.network.program import Buffer, Format, NetworkStep, PlainStep
from bitsynth.spec.matmul import MatmulOperand

_MAX_UNCLIPPED = 2.0**30
"""Values below it can be rounded before they are clipped."""
_INT32_BYTES = 4


def match_affine(def_use: DefUse, node: Node) -> FusionGroup | None:
    """Match a chain from accumulators to codes of many levels.

    Given:   %codes = quantize(relu(batch_norm(%acc)))           %acc of a product
      or     %codes = quantize(add(mul(%acc, s), mul(%other, t)))   %other of codes or accumulators
    Result:  %codes = affine(%acc[, %other])    clip(rint(factor * acc + summand [+ ratio * other])) in float64
    """
    source = def_use.only_source(node)
    if source is None or not has_channels(def_use, source):
        return None
    group = _match_single(def_use, source) or _match_gated(def_use, source) or _match_joined(def_use, source, node)
    if group is None and TABLE[node.op].kind in ("elementwise", "step"):
        _explain(def_use, source, node)
    return group


def _explain(def_use: DefUse, source: str, node: Node) -> None:
    """Record why no affine formula computes the nodes after accumulators."""
    chain = find_chain(def_use, source, monotone=False) or find_joined_chain(def_use, source, 1, node)
    if chain is None:
        def_use.decline(node, Stage.CHAIN, partial(explain_no_chain, def_use, source))
    elif _find_operand(def_use, chain) is None:
        def_use.decline(node, Stage.CHAIN, "the codes after it lie in other places than the accumulators")
    else:
        def_use.decline(node, Stage.FORMULA, "no formula is proved for the nodes up to the next codes")


def _match_single(def_use: DefUse, source: str) -> FusionGroup | None:
    """Match a chain of one operand that is monotone."""
    chain = find_chain(def_use, source)
    operand = _find_operand(def_use, chain)
    if chain is None or operand is None:
        return None
    step_function = step_function_of(def_use, chain)
    affine = find_affine(step_function, operand, def_use.graph.edges[chain.end].integers) if step_function else None
    return AffineGroup(def_use, chain, affine, operand, None) if affine else None


def _match_gated(def_use: DefUse, source: str) -> FusionGroup | None:
    """Match a chain of one operand through hard swish."""
    chain = find_chain(def_use, source, monotone=False)
    operand = _find_operand(def_use, chain)
    if chain is None or operand is None:
        return None
    affine = find_gated_affine(def_use.graph, chain, operand)
    return AffineGroup(def_use, chain, affine, operand, None) if affine else None


def _match_joined(def_use: DefUse, source: str, node: Node) -> FusionGroup | None:
    """Match a chain that a second operand joins."""
    chain = find_joined_chain(def_use, source, 1, node)
    operand = _find_operand(def_use, chain)
    if chain is None or operand is None:
        return None
    second = residual_operand(def_use, chain.second)
    paired = Paired(def_use.graph, chain, operand, second)
    if affine := find_paired_affine(paired):
        return AffineGroup(def_use, chain, affine, operand, second)
    guarded = find_guarded_affine(paired)
    return GuardedAffineGroup(def_use, chain, guarded, operand, second) if guarded else None


def _find_operand(def_use: DefUse, chain: Chain | None) -> MatmulOperand | None:
    """Return the operand of the codes at a chain's end; None if there are none, or elements change their places."""
    return operand_of(def_use.graph.edges[chain.end]) if chain and _keeps_places(def_use, chain) else None


def residual_operand(def_use: DefUse, edge: str) -> MatmulOperand | None:
    """Return the operand of an edge's codes; None if the edge has accumulators of a layer in int32."""
    return None if find_product_of(def_use, edge) else operand_of(def_use.graph.edges[edge])


def _keeps_places(def_use: DefUse, chain: Chain) -> bool:
    """Return whether elements at the end of a chain lie in the places of those at its start."""
    first, last = (def_use.graph.edges[name].shape for name in (chain.start, chain.end))
    return chain.axes[-1] == 1 and first[:2] == last[:2]


class AffineGroup(AccumulatorGroup):
    """An affine formula in float64 for each channel, as plain C."""

    def __init__(
        self, def_use: DefUse, chain: Chain, affine: AffineFormula, operand: MatmulOperand, second: MatmulOperand | None
    ) -> None:
        super().__init__(def_use, chain, operand)
        self.affine, self.second = affine, second

    def reads(self, edge: str) -> tuple[Format, ...]:
        """Return the formats of accumulators, and of the second edge's codes; channels last."""
        if edge == self.chain.second and self.second:
            return (Format.codes(self.second),)
        return super().reads(edge)

    @property
    def repeated(self) -> tuple[AffineFormula, int]:
        """The formulas of channels, of several pixels if channels are few, and the iterations of the loop over them."""
        shape = self.def_use.graph.edges[self.chain.start].shape
        copies, times = repeats(shape)
        return self.affine.of(shape[1]).repeat(copies), times

    def step(self, buffers: Mapping[str, Buffer]) -> NetworkStep:
        """Return the loops over elements as plain C."""
        affine, pixels = self.repeated
        numbers = [affine.factor, affine.summand, *([] if affine.ratio is None else [affine.ratio])]
        inputs, outputs = (tuple(buffers[e].name for e in edges) for edges in (self.inputs, self.outputs))
        channels = len(affine.factor)
        row, code = affine.texts_of_rows(fits=self.fits)
        body = ElementLoops(pixels, channels, _inputs(), code, row=row).text()
        constants = tuple(np.ascontiguousarray(k) for k in numbers)
        formula = self.affine.of(self.def_use.graph.edges[self.chain.start].shape[1])
        return PlainStep(self.names, inputs, outputs, body, constants, _INT32_BYTES * channels, formula=formula)

    @property
    def fits(self) -> bool:
        """Whether int32 holds values before they are clipped."""
        return self._most < _MAX_UNCLIPPED

    @property
    def _most(self) -> float:
        """The greatest absolute value before it is clipped."""
        kind, affine = self.def_use.graph.edges[self.chain.start].integers, self.affine
        values = max(abs(kind.least), abs(kind.most)) * np.abs(affine.factor) + np.abs(affine.summand)
        if affine.ratio is not None:
            values = values + (self.second.codes[-1] if self.second else -INT32[0]) * np.abs(affine.ratio)
        return float(values.max())


class GuardedAffineGroup(AffineGroup):
    """An affine formula in float64; tensors with a value near a half are left to the plain C of the nodes."""

    def __init__(
        self, def_use: DefUse, chain: Chain, affine: AffineFormula, operand: MatmulOperand, second: MatmulOperand | None
    ) -> None:
        super().__init__(def_use, chain, affine, operand, second)
        self.plain = plain_group.PlainGroup(def_use, *sorted(self.nodes, key=lambda node: def_use.order[node.name]))
        self.inputs = self.plain.inputs

    def step(self, buffers: Mapping[str, Buffer]) -> NetworkStep:
        """Return plain C of the formula, then plain C of the nodes, which runs if an element was too near a half."""
        plain, (affine, pixels) = self.plain.step(buffers), self.repeated
        assert affine.ratio is not None
        sums, second = (self.inputs.index(e) for e in (self.chain.start, self.chain.second))
        given = _inputs(sums, second, len(plain.constants))
        channels, (row, code) = len(affine.factor), affine.texts_of_rows(fits=self.fits)
        near_half = affine.near_half_text(fits=self.fits)
        body = ElementLoops(pixels, channels, given, code, row=row, flag=near_half).text()
        body += "if (!flag)\nreturn BS_OK;\n"
        added = (np.ascontiguousarray(k) for k in (affine.factor, affine.summand, affine.ratio))
        return replace(
            plain,
            body=f"{body}{plain.body}",
            constants=(*plain.constants, *added),
            scratch_bytes=max(plain.scratch_bytes, _INT32_BYTES * channels),
            reason="",
        )


def _inputs(sums: int = 0, second: int = 1, constant: int = 0) -> dict[str, CInput]:
    """Return what the formula's texts read: inputs `sums` and `second` of the step, and constants from one on."""
    elements = {"s": CInput(f"(uint32_t)in{sums}[at]", 32), "e": CInput(f"(uint32_t)in{second}[at]", 32)}
    return {**elements, **{name: double(f"k{constant + n}[c]") for n, name in enumerate("fbr")}}

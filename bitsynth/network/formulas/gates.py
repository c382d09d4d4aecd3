"""Chains through hard swish as a line with a gate: found from the numbers of its ends, proved on the whole range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TypeVar

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.arithmetic import arithmetic_of
from bitsynth.graph.arithmetic.intervals import interval
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.reference import Evaluation
from bitsynth.graph.types import INT32, Shape, Tensor
from bitsynth.layers.epilogues import Rescale
from bitsynth.network.formulas.affine import AffineFormula
from bitsynth.network.formulas.alike import IntegerBounds, prove_equal
from bitsynth.network.formulas.chain import Chain
from bitsynth.network.formulas.forms import zero_code
from bitsynth.network.formulas.oracle import Oracle
from bitsynth.network.formulas.step_functions import ranges
from bitsynth.spec.matmul import MatmulOperand

_Form = TypeVar("_Form", Rescale, AffineFormula)
_ULP_OFFSETS = sorted(product(range(-2, 3), repeat=2), key=lambda x: abs(x[0]) + abs(x[1]))[:9]
"""Units in the last place by which factors and summands are moved where those of float32 that are found are wrong."""
_MAX_WRONG_SHARE = 0.25
"""Of channels at first: where more are wrong, numbers are too coarse for the codes, and others help little."""
_GATE_TOLERANCE = 1e-9
"""Parts by which the gates of channels, computed in float64, may differ."""


def find_gated_rescale(graph: Graph, chain: Chain, operand: MatmulOperand) -> Rescale | None:
    """The epilogue that gives codes of `operand` for all sums of a chain through hard swish; None if none is proved."""
    return _find_gated(graph, chain, operand, partial(_make_rescale, operand.bits))


def find_gated_affine(graph: Graph, chain: Chain, operand: MatmulOperand) -> AffineFormula | None:
    """The same as a line of float64 with a gate."""
    return _find_gated(graph, chain, operand, _make_affine)


def _make_rescale(bits: int, affine: AffineFormula, near: Tensor) -> Rescale:
    """A line in float32, its factors and summands moved by units in the last place (2, channels)."""
    factor, summand = _move_by_ulps(affine, near, np.float32)
    low, high = affine.limits
    return Rescale(factor, bits, affine.zero, low=low, high=high, bias=summand, gate=affine.gate)


def _make_affine(affine: AffineFormula, near: Tensor) -> AffineFormula:
    """The same in float64."""
    factor, summand = _move_by_ulps(affine, near, np.float64)
    return replace(affine, factor=factor, summand=summand)


def _move_by_ulps(affine: AffineFormula, near: Tensor, real: type) -> list[Tensor]:
    given: list[Tensor] = [x.astype(real) for x in (affine.factor, affine.summand)]
    return [x + units.astype(real) * np.spacing(np.abs(x)) for x, units in zip(given, near, strict=True)]


def _find_gated(
    graph: Graph, chain: Chain, operand: MatmulOperand, make: Callable[[AffineFormula, Tensor], _Form]
) -> _Form | None:
    node = next((n for n in chain.nodes if n.op == "hard_swish"), None)
    low, high = ranges(graph, chain)
    if node is None or graph.reference != "exact" or low.min() <= INT32[0] or high.max() >= INT32[1]:
        return None
    oracle = Oracle(graph, chain)
    try:
        affine = _fit_through_ends(oracle, node, operand, np.stack([low, high]))
        return _prove_gated(oracle, partial(make, affine), operand, (low, high)) if affine else None
    except SpecError:
        return None


def _fit_through_ends(oracle: Oracle, node: Node, operand: MatmulOperand, ends: Tensor) -> AffineFormula | None:
    """What the ends (2, channels) of the range tell of a chain that is a line before hard swish, and a factor after it.

    The line is in codes; None if factors differ, as channels would have gates of their own.
    """
    graph, chain = oracle.graph, oracle.chain
    kind, values = graph.edges[chain.end].integers, oracle.values([ends])
    before, after, last = (
        _numbers(values, name, ends.shape) for name in (*node.inputs, *node.outputs, chain.nodes[-1].inputs[0])
    )
    rows = np.abs(after).argmax(0)[None]
    one, other = (np.take_along_axis(x, rows, 0)[0] for x in (after, last))
    codes = np.where(one == 0, 1, other) / np.where(one == 0, 1, one) / (kind.scale.reshape(-1) * operand.scale)
    if (
        np.abs(codes).min() < np.finfo(float).tiny
        or not (np.abs(codes - codes[0]) <= _GATE_TOLERANCE * np.abs(codes[0])).all()
    ):
        return None
    slope = (before[1] - before[0]) / np.maximum(ends[1] - ends[0], 1)
    summand, zero = (before[0] - slope * ends[0]) * codes, zero_code(kind.zero, operand)
    least, most = (int(x) for x in operand.encode(np.array([kind.least, kind.most]), chain.end))
    gate = float(node.attributes["alpha"] / codes[0]), 0.5
    return AffineFormula(slope * codes, summand, zero, (least, most), gate=gate)


def _numbers(values: Evaluation, name: str, shape: Shape) -> Tensor:
    """The numbers (points, channels) on an edge, nearly."""
    found = interval(arithmetic_of("exact").number(values[name], values.graph.edges[name]))
    return np.broadcast_to((found.low + found.high).reshape(len(found.low), -1) / 2, shape)


def _prove_gated(
    oracle: Oracle, make: Callable[[Tensor], _Form], operand: MatmulOperand, ends: tuple[Tensor, Tensor]
) -> _Form | None:
    """The form with the first numbers that are right for each channel; None if one channel has none."""
    low, high = ends
    missing, kept = np.ones(low.shape, bool), np.zeros((2, low.size))
    for near in _ULP_OFFSETS:
        tried = np.where(missing, np.array(near)[:, None], kept)
        bounds: IntegerBounds = make(tried).bounds

        def integers(first: Tensor, last: Tensor, bounds: IntegerBounds = bounds) -> tuple[Tensor, Tensor]:
            least, most = (operand.offset + operand.scale * x.astype(np.int64) for x in bounds(first, last))
            return least, most

        wrong = ~prove_equal(oracle, integers, low, np.where(missing, high, low))
        kept, missing = np.where(missing, tried, kept), missing & wrong
        if not missing.any():
            return make(kept)
        if missing.mean() > _MAX_WRONG_SHARE:
            return None
    return None

"""Affine formulas in float64, for codes of many bits, found by fitting and proved with the reference.

The code of an accumulator s, and an element e of a second edge if there is one, is rint(a * s + b + r * e), clipped,
plus a zero point. For example a = 0.2, b = 0 gives the codes 0, 1, 1 of accumulators 2, 3, 4. Formulas are constructed
from points of the function, then proved. Only formulas with a gate try neighbours, by `search.py`:

* `find_affine`: for a step function, equal at its deciding points (Lemma 3).
* `find_gated_affine`, `find_gated_rescale`: for a chain through hard swish, proved by intervals on the whole range.
* `find_paired_affine`, `find_guarded_affine`: for a chain of two operands with too many pairs to ask the reference
  about each. Before its quantizer the chain is affine in real arithmetic, and float64 has an error of 1e-13. So codes
  can differ only where a value lies within that error of a half; integers rarely do, and the reference is asked there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.arithmetic import arithmetic_of
from bitsynth.graph.arithmetic.intervals import interval
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.reference import Evaluation
from bitsynth.graph.types import INT32, Integers, Shape, Tensor
from bitsynth.layers.epilogues import Rescale
from bitsynth.network.formulas.affine_formula import AffineFormula
from bitsynth.network.formulas.chain import Chain
from bitsynth.network.formulas.oracle import IntegerBounds, Oracle, prove_equal
from bitsynth.network.formulas.rescaling import Wanted, find_wanted_codes, zero_code
from bitsynth.network.formulas.residuals import MAX_VALUE_ERROR, Paired, PairProof
from bitsynth.network.formulas.search import NEAREST_PAIRS, ByChannel, find_together
from bitsynth.network.formulas.step_functions import StepFunction, ranges
from bitsynth.spec.matmul import MatmulOperand


def find_affine(step_function: StepFunction, operand: MatmulOperand, kind: Integers) -> AffineFormula | None:
    """Return the affine formula of a step function, equal at its deciding points; None if none is found. Found once."""
    memo = step_function.memo.affine
    if (operand, kind) not in memo:
        memo[operand, kind] = _fit_affine(find_wanted_codes(step_function, operand, kind))
    return memo[operand, kind]


def _fit_affine(wanted: Wanted) -> AffineFormula | None:
    """Return the first candidate that is right in all channels: they share one loop in C."""
    return next(
        (formula for formula in _try_affine(wanted) if (formula.codes(wanted.sums) == wanted.codes).all()), None
    )


def _try_affine(wanted: Wanted) -> Iterator[AffineFormula]:
    """Yield formulas of factors and summands, factors in float64 and rounded to float32."""
    for factor in wanted.fit.factors():
        for tried in (factor, factor.astype(np.float32).astype(np.float64)):
            for summand in wanted.fit.summands(tried):
                yield AffineFormula(tried, summand, wanted.zero, wanted.limits)


_Form = TypeVar("_Form", Rescale, AffineFormula)
_MAX_WRONG_SHARE = 0.25
"""The share of wrong channels at which the search ends: moving numbers helps few channels then."""
_GATE_TOLERANCE = 1e-9
"""The relative difference of the gates of channels, as float64 computes them, that is taken for equal."""


def find_gated_rescale(graph: Graph, chain: Chain, operand: MatmulOperand) -> Rescale | None:
    """Find the epilogue that gives the codes of a chain through hard swish for all accumulators; None if unproved."""
    return _find_gated(graph, chain, operand, partial(_make_rescale, operand.bits))


def find_gated_affine(graph: Graph, chain: Chain, operand: MatmulOperand) -> AffineFormula | None:
    """Find the affine formula in float64, with a gate, of a chain through hard swish; None if unproved."""
    return _find_gated(graph, chain, operand, _make_affine)


def _make_rescale(bits: int, affine: AffineFormula, near: Tensor) -> Rescale:
    """Return the formula in float32, factors and summands moved by `near` units in the last place (2, channels)."""
    factor, summand = _move_by_ulps(affine, near, np.float32)
    low, high = affine.limits
    return Rescale(factor, bits, affine.zero, low=low, high=high, bias=summand, gate=affine.gate)


def _make_affine(affine: AffineFormula, near: Tensor) -> AffineFormula:
    """Return the formula in float64, factors and summands moved by `near` units in the last place (2, channels)."""
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
    """Return the formula of a chain that is affine before hard swish and a factor after it, from the range's ends.

    The `ends` are (2, channels). None if factors differ by channel: each channel would need its own gate.
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
    """Return the numbers (points, channels) on an edge, as the middles of intervals."""
    bounds = interval(arithmetic_of("exact").number(values[name], values.graph.edges[name]))
    return np.broadcast_to((bounds.low + bounds.high).reshape(len(bounds.low), -1) / 2, shape)


def _prove_gated(
    oracle: Oracle, make: Callable[[Tensor], _Form], operand: MatmulOperand, ends: tuple[Tensor, Tensor]
) -> _Form | None:
    """Return the formula with the first offsets that are proved for each channel; None if a channel has none."""
    low, high = ends

    def gives(offsets: _UlpOffsets, missing: Tensor) -> Tensor:
        bounds: IntegerBounds = make(offsets.units).bounds

        def integers(first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
            least, most = (operand.offset + operand.scale * x.astype(np.int64) for x in bounds(first, last))
            return least, most

        return prove_equal(oracle, integers, low, np.where(missing, high, low))

    candidates = (_UlpOffsets(np.tile(np.array(pair)[:, None], low.size)) for pair in NEAREST_PAIRS)
    fitted = find_together(candidates, gives, _MAX_WRONG_SHARE)
    return make(fitted.units) if fitted else None


@dataclass(frozen=True, eq=False)
class _UlpOffsets(ByChannel):
    """Units in the last place by which factors and summands are moved (2, channels)."""

    units: Tensor


_MAX_PAIRS = 1 << 26
_MAX_ASKED = 1 << 14
_PAIRS_AT_ONCE = 1 << 22
_RANDOM_POINTS = 64


def find_paired_affine(paired: Paired) -> AffineFormula | None:
    """Find the affine formula that equals a chain for all accumulators and elements of the second edge; or None."""
    proof = PairProof(paired)
    affine = proof.affine
    if affine is None or (asked := _find_points_near_halves(proof, affine)) is None:
        return None
    sums, elements = asked
    same = affine.codes(sums, elements) == proof.ask(sums, elements)
    return affine if same.all() else None


def find_guarded_affine(paired: Paired) -> AffineFormula | None:
    """Find the affine formula that gives the codes of all values not within `GUARD` of a half; None if none does."""
    return PairProof(paired).guarded


def _find_points_near_halves(proof: PairProof, affine: AffineFormula) -> tuple[Tensor, Tensor] | None:
    """Return accumulators and elements (points, channels) near a half, and random ones; None if there are too many."""
    elements, channels = proof.paired.elements, len(proof.low)
    halves = np.arange(*affine.limits) + 0.5 - affine.zero
    if len(elements) * len(halves) * channels > _MAX_PAIRS:
        return None
    points_of_channel = [list[_Point]() for _ in range(channels)]
    for channel, point in _points_near_halves(proof, affine, elements, halves):
        points_of_channel[channel].append(point)
        if len(points_of_channel[channel]) > _MAX_ASKED:
            return None
    rng = np.random.default_rng(0)
    sums = rng.integers(proof.low, proof.high + 1, (max(map(len, points_of_channel)) + _RANDOM_POINTS, channels))
    seconds = np.clip(rng.choice(elements, sums.shape), proof.least, proof.most)
    for channel, points in enumerate(points_of_channel):
        for k, point in enumerate(points):
            sums[k, channel], seconds[k, channel] = point.sum, point.element
    return sums, seconds


@dataclass(frozen=True)
class _Point:
    """An accumulator and an element of the second edge."""

    sum: int
    element: int


def _points_near_halves(
    proof: PairProof, affine: AffineFormula, elements: Tensor, halves: Tensor
) -> Iterator[tuple[int, _Point]]:
    """Yield the points with values near a half, with their channel."""
    assert affine.ratio is not None
    many = max(1, _PAIRS_AT_ONCE // (len(halves) * len(proof.low)))
    for k in range(0, len(elements), many):
        some = elements[k : k + many][:, None, None]
        exact = (halves[:, None] - affine.summand - affine.ratio * some) / affine.factor
        sums = np.rint(exact)
        near = (
            (np.abs(exact - sums) * np.abs(affine.factor) < MAX_VALUE_ERROR)
            & (sums >= proof.low)
            & (sums <= proof.high)
        )
        near &= (some >= proof.least) & (some <= proof.most)
        for e, h, c in np.argwhere(near):
            yield int(c), _Point(int(sums[e, h, c]), int(some[e, 0, 0]))

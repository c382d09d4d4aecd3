"""Affine formulas in float64, for codes of many bits, found by fitting and proved with the reference.

The code of an accumulator s, and an element e of a second edge if there is one, is rint(a * s + b + r * e), clipped,
plus a zero point. For example a = 0.2, b = 0 gives the codes 0, 1, 1 of accumulators 2, 3, 4. They are
constructed from points of the function, then proved; only those with a gate try neighbours, by `search.py`:

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

import msgspec
import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.arithmetic import arithmetic_of
from bitsynth.graph.arithmetic.intervals import Intervals, interval
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.reference import Evaluation
from bitsynth.graph.types import INT32, Integers, Shape, Tensor
from bitsynth.isa.doubles import ONE, ZERO, bits_of
from bitsynth.layers.epilogues import Rescale
from bitsynth.layers.epilogues.claimed import ClaimedGate, ClaimedRescale
from bitsynth.layers.epilogues.floats import GateLine, apply_gate, claim_rescale, gate_bounds
from bitsynth.network.formulas.chain import AFFINE_OPS, Chain
from bitsynth.network.formulas.oracle import IntegerBounds, Oracle, prove_equal
from bitsynth.network.formulas.rescaling import Wanted, wanted_codes, zero_code
from bitsynth.network.formulas.residuals import Paired, PairProof
from bitsynth.network.formulas.search import NEAREST_PAIRS, ByChannel, find_together
from bitsynth.network.formulas.step_functions import StepFunction, ranges
from bitsynth.spec.matmul import MatmulOperand


@dataclass(frozen=True, eq=False)
class AffineFormula:
    """An affine formula in float64 for each channel, or one for all.

    Args:
        factor: (channels,), of sums.
        summand: (channels,).
        zero: The code that is added after rounding.
        limits: The least and the greatest code.
        ratio: (channels,), of elements of a second edge; None without one.
        gate: Factor and summand of a gate, as `Rescale` has it; None without one.
    """

    factor: Tensor
    summand: Tensor
    zero: int
    limits: tuple[int, int]
    ratio: Tensor | None = None
    gate: GateLine | None = None

    def codes(self, sums: Tensor, elements: Tensor | None = None) -> Tensor:
        """Return the codes of integers (points, channels) that `text` gives."""
        value = sums * self.factor + self.summand
        if elements is not None and self.ratio is not None:
            value = value + elements * self.ratio
        return self._rounded(apply_gate(value, self.gate))

    def bounds(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Return bounds of the codes of accumulators from `low` to `high` (points, channels), without a second edge."""
        first, last = (sums * self.factor + self.summand for sums in (low, high))
        least, most = gate_bounds(first, last, self.gate)
        return self._rounded(least), self._rounded(most)

    def _rounded(self, values: Tensor) -> Tensor:
        low, high = (float(end - self.zero) for end in self.limits)
        return np.asarray(np.rint(values.clip(low, high)).astype(np.int64) + self.zero)

    @property
    def text(self) -> str:
        """The code in the lane language: the value clipped, then rounded.

        Of an accumulator s with factor f and summand b, and an element e of a second edge with ratio r.
        """
        return f"{self._whole} + {self.zero}"

    @property
    def texts_of_rows(self) -> tuple[str, str]:
        """The rounded value, and the code that is clipped later: the same codes, if int32 holds all values."""
        whole = f"dnearest({self._value})"
        return whole, f"smin(smax({whole} + {self.zero}, {self.limits[0]}), {self.limits[1]})"

    @property
    def near_half_text(self) -> str:
        """The bit that says that a clipped value is within `GUARD` of a half."""
        return f"~bit(dlt(dabs(dsub({self._clipped}, double_of({self._whole}))), {bits_of(0.5 - GUARD)}))"

    @property
    def _whole(self) -> str:
        return f"dnearest({self._clipped})"

    @property
    def _clipped(self) -> str:
        low, high = (bits_of(float(end - self.zero)) for end in self.limits)
        return f"dmin(dmax({self._value}, {low}), {high})"

    @property
    def _value(self) -> str:
        value = "dadd(dmul(double_of(s), f), b)"
        if self.ratio is not None:
            value = f"dadd({value}, dmul(double_of(e), r))"
        if self.gate is not None:
            factor, summand = map(bits_of, self.gate)
            value = f"dmul({value}, dmin(dmax(dadd(dmul({value}, {factor}), {summand}), {ZERO}), {ONE}))"
        return value

    def formula(self) -> ClaimedRescale | ClaimedGate:
        """Return the formula as a certificate claims it."""
        claim = claim_rescale(self.factor, self.summand, self.zero, self.limits, self.gate)
        return claim if self.ratio is None else msgspec.structs.replace(claim, factor=self.ratio[:, None])

    def of(self, channels: int) -> AffineFormula:
        """Return the formula with a factor and a summand for each of `channels` channels."""
        every = [None if x is None else np.broadcast_to(x, channels) for x in (self.factor, self.summand, self.ratio)]
        assert every[0] is not None
        assert every[1] is not None
        return replace(self, factor=every[0], summand=every[1], ratio=every[2])

    def repeated(self, times: int) -> AffineFormula:
        """Return the formula for the channels repeated `times` times, one after another."""
        ratio = None if self.ratio is None else np.tile(self.ratio, times)
        return replace(self, factor=np.tile(self.factor, times), summand=np.tile(self.summand, times), ratio=ratio)


def find_affine(step_function: StepFunction, operand: MatmulOperand, kind: Integers) -> AffineFormula | None:
    """Return the affine formula of a step function, equal at its deciding points; None if none is found. Found once."""
    memo = step_function.memo.affine
    if (operand, kind) not in memo:
        memo[operand, kind] = _fit_affine(wanted_codes(step_function, operand, kind))
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


_MAX_VALUE_ERROR = 1e-9
"""The distance to a half, in codes, within which the reference is asked: far more than float64 is off by."""
_MAX_GUARDED_PART = 2.0**17
"""The greatest part of a value, in codes, for which float64 is off by less than the guard."""
GUARD = 1e-8
"""The distance to a half within which a guarded formula does not decide."""
_MAX_PAIRS = 1 << 26
_MAX_ASKED = 1 << 14
_PAIRS_AT_ONCE = 1 << 22
_RANDOM_POINTS = 64


def find_paired_affine(paired: Paired) -> AffineFormula | None:
    """Find the affine formula that equals a chain for all accumulators and elements of the second edge; or None."""
    ends = _find_quantizer(paired)
    if ends is None or paired.graph.reference != "exact" or paired.operand.scale != 1:
        return None
    proof = PairProof(paired)
    affine = _fit_paired(proof, *ends)
    if affine is None or (asked := _find_points_near_halves(proof, affine)) is None:
        return None
    sums, elements = asked
    same = affine.codes(sums, elements) == proof.codes(sums, elements)
    return affine if same.all() else None


def find_guarded_affine(paired: Paired) -> AffineFormula | None:
    """Find the affine formula that decides all codes but those of values within `GUARD` of a half; None if none does.

    The formula has the chain's values at three corners of the range, so in between it differs from the chain by at most
    4 * _MAX_VALUE_ERROR / 64. The rounding of float64 adds at most as much.
    """
    ends = _find_quantizer(paired)
    if ends is None or paired.graph.reference != "exact" or paired.operand.scale != 1:
        return None
    proof = PairProof(paired)
    affine = _fit_paired(proof, *ends)
    if affine is None or affine.ratio is None:
        return None
    sums, seconds = (np.abs(np.stack(pair)).max(0) for pair in ((proof.low, proof.high), (proof.least, proof.most)))
    parts = np.abs(affine.factor) * sums, np.abs(affine.summand), np.abs(affine.ratio) * seconds
    return affine if max(part.max() for part in parts) < _MAX_GUARDED_PART else None


def _find_quantizer(paired: Paired) -> tuple[str, Node, bool] | None:
    """Return the edge of values before rounding, the quantizer, and whether a ReLU is between them; None for others."""
    nodes = list(paired.chain.nodes)
    before = [n for n in (*paired.chain.second_path, *nodes[:-1]) if n.op not in AFFINE_OPS]
    last = nodes[-1]
    if last.op != "quantize" or last.attributes["rounding"] not in ("ROUND", "HALF_EVEN"):
        return None
    if before and (before != [nodes[-2]] or before[0].op != "relu"):
        return None
    if any(np.size(last.attributes[key]) != 1 for key in ("scale", "zero")):
        return None
    return (nodes[-2] if before else last).inputs[0], last, bool(before)


def _fit_paired(proof: PairProof, edge: str, node: Node, relu: bool) -> AffineFormula | None:
    """Return the affine formula through the values at three corners of the range; None if they are not exact enough."""
    zero, scale = (float(np.asarray(node.attributes[key]).reshape(())) for key in ("zero", "scale"))
    low, high, first, last = proof.low, proof.high, proof.least, proof.most
    if zero != round(zero) or not ((high > low).all() and (last > first).all()):
        return None
    seconds = proof.paired.integers(np.stack([first, first, last]))
    values = proof.oracle.values([np.stack([low, high, low]), seconds])
    numbers = interval(Intervals().number(values[edge], values.graph.edges[edge]))
    if (numbers.high - numbers.low).max() > scale * _MAX_VALUE_ERROR / 64:
        return None
    start, by_sum, by_element = ((numbers.low + numbers.high) / 2 / scale).reshape(3, -1)
    factor, ratio = (by_sum - start) / (high - low), (by_element - start) / (last - first)
    if np.abs(factor).min() < 4 * _MAX_VALUE_ERROR:
        return None
    offset = proof.paired.operand.offset
    least = max(int(node.attributes["low"]), round(zero)) if relu else int(node.attributes["low"])
    limits = least - offset, int(node.attributes["high"]) - offset
    return AffineFormula(factor, start - factor * low - ratio * first, round(zero) - offset, limits, ratio)


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
            (np.abs(exact - sums) * np.abs(affine.factor) < _MAX_VALUE_ERROR)
            & (sums >= proof.low)
            & (sums <= proof.high)
        )
        near &= (some >= proof.least) & (some <= proof.most)
        for e, h, c in np.argwhere(near):
            yield int(c), _Point(int(sums[e, h, c]), int(some[e, 0, 0]))

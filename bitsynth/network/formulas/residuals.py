"""Epilogues with a residual that equal a chain of two operands, proved for every element of the residual.

For example %codes = quantize(relu(add(batch_norm(%acc), %residual))). For one residual element the chain is a step
function of accumulators, and so is an epilogue: they are equal if they agree at the epilogue's breakpoints. So a
formula is fitted at the breakpoints for a few elements, checked at its own breakpoints for all, and refitted where it
is wrong.

Evaluating the chain would take most of the time. A chain that is affine before its quantizer is evaluated in float64,
and by the reference only where a value is near a half. Example: 3.2 gives code 3, but 3.5 + 1e-12 is asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bitsynth.graph.arithmetic import arithmetic_of
from bitsynth.graph.arithmetic.intervals import Intervals, interval
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.types import INT32, Integers, Tensor
from bitsynth.layers.epilogues import Thresholds
from bitsynth.layers.epilogues.residual import Residual
from bitsynth.network.formulas.affine_formula import AffineFormula
from bitsynth.network.formulas.chain import AFFINE_OPS, Chain
from bitsynth.network.formulas.epilogues import (
    MAX_CHEAP_THRESHOLDS,
    EpilogueForm,
)
from bitsynth.network.formulas.oracle import Oracle, over_channels
from bitsynth.network.formulas.rescaling import Wanted, find_rescaling, zero_code
from bitsynth.network.formulas.search import ByChannel, find_by_channel
from bitsynth.network.formulas.step_functions import find_breakpoints, ranges
from bitsynth.network.formulas.thresholds import fit_thresholds
from bitsynth.spec.matmul import MatmulOperand

_MAX_EVALUATIONS = 10_000_000
"""Evaluations of the reference that a proof may take: enough for 64 channels, and 8 bits of elements and of codes."""
_MAX_REFITS = 6
"""Times that a formula is fitted; the points that it misses are added each time."""
_FIRST_ELEMENTS = 5
"""Elements of the residual whose deciding points are fitted first."""
MAX_VALUE_ERROR = 1e-9
"""The distance to a half, in codes, within which the reference is asked: far more than float64 is off by."""
_MAX_GUARDED_PART = 2.0**17
"""The greatest part of a value, in codes, for which float64 is off by less than the guard."""
_MAX_ADDED_POINTS = 1 << 12
_MIN_GUARDED_POINTS = 256
"""Points from which on the guarded formula is used: for fewer the reference takes little time."""
_POINTS_AT_ONCE = 1 << 17
"""Elements evaluated at once: about as many as stay in the caches."""
_FLOAT32_ERROR = 2.0**-23
"""The relative error of a value in float32."""


@dataclass(frozen=True, eq=False)
class Paired:
    """A chain of two operands, with the operands of its codes and of its second edge (None: int32 accumulators)."""

    graph: Graph
    chain: Chain
    operand: MatmulOperand
    second: MatmulOperand | None

    @property
    def kind(self) -> Integers:
        """The type of the integers at the end."""
        return self.graph.edges[self.chain.end].integers

    @property
    def second_kind(self) -> Integers:
        """The type of the integers of the second edge."""
        return self.graph.edges[self.chain.second].integers

    @property
    def residual(self) -> Residual:
        """Type and zero point of the residual in memory."""
        if self.second is None:
            return Residual("int32")
        return Residual("uint8", zero_point=zero_code(self.second_kind.zero, self.second))

    @property
    def elements(self) -> Tensor:
        """All elements of the residual, as they lie in memory."""
        kind = self.second_kind
        return self.element(np.arange(kind.least, kind.most + 1, kind.step))

    def element(self, integers: Tensor) -> Tensor:
        """Return integers of the second edge as they lie in memory."""
        return integers if self.second is None else (integers - self.second.offset) // self.second.scale

    def integers(self, elements: Tensor) -> Tensor:
        """Return the integers of the second edge for elements in memory."""
        return elements if self.second is None else elements * self.second.scale + self.second.offset


CodesAt = Callable[[Tensor, Tensor], Tensor]
"""Return the codes (points, channels) of accumulators and elements (points, channels)."""


def _evaluate_in_parts(codes: CodesAt, sums: Tensor, elements: Tensor) -> Tensor:
    """Return codes (points, channels), some points after others, so that intermediate arrays stay in the caches."""
    step = max(1, _POINTS_AT_ONCE // sums.shape[1])
    return np.concatenate([codes(sums[k : k + step], elements[k : k + step]) for k in range(0, len(sums), step)])


class PairProof:
    """A chain of two operands as a function of accumulators and residual elements to codes."""

    def __init__(self, paired: Paired) -> None:
        self.paired, self.oracle = paired, Oracle(paired.graph, paired.chain)
        self.low, self.high = ranges(paired.graph, paired.chain)
        self.least, self.most = self._bounds()
        self.levels = paired.operand.codes[-1]

    def _bounds(self) -> list[Tensor]:
        """Return the least and the greatest element of the residual (channels,)."""
        paired, channels = self.paired, self.low.shape
        kind, edge, axis = paired.second_kind, paired.graph.edges[paired.chain.second], paired.chain.axes[0]
        if not paired.chain.varies:
            return [np.full(channels, end) for end in (paired.elements[0], paired.elements[-1])]
        bounds = (over_channels(b, edge, axis, k == 0) for k, b in enumerate((kind.low, kind.high)))
        return [paired.element(b) for b in bounds]

    @cached_property
    def ratio(self) -> Tensor:
        """The weight of a residual element relative to an accumulator (channels,), from the values where both meet."""
        chain, graph = self.paired.chain, self.paired.graph
        joint = next(
            n for n in chain.nodes if any(name in n.inputs for name in _joint_inputs(chain)) and len(n.inputs) == 2
        )
        low, high, first, last = self.low, self.high, self.least, self.most
        seconds = self.paired.integers(np.stack([first, first, last]))
        values = self.oracle.values([np.stack([low, high, low]), seconds])
        edge = values.graph.edges[joint.outputs[0]]
        numbers = interval(arithmetic_of(graph.reference).number(values[edge.name], edge))
        start, by_sum, by_element = ((numbers.low + numbers.high) / 2).reshape(3, -1)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = ((by_element - start) / (last - first)) / ((by_sum - start) / (high - low))
        return np.asarray(np.nan_to_num(ratios, nan=0.0, posinf=0.0, neginf=0.0))

    @cached_property
    def affine(self) -> AffineFormula | None:
        """The affine formula with the chain's values at three corners of the range; None if they are not exact enough.

        Before its quantizer the chain is affine in exact arithmetic. So in between the formula's values differ from the
        chain's by at most 4 * MAX_VALUE_ERROR / 64, and by what float64 rounds.
        """
        ends = _find_quantizer(self.paired)
        if ends is None or self.paired.graph.reference != "exact" or self.paired.operand.scale != 1:
            return None
        return _fit_corners(self, *ends)

    @cached_property
    def guarded(self) -> AffineFormula | None:
        """The affine formula, if its codes are the chain's for all values that are not within `GUARD` of a half.

        Values are so small that the rounding of float64 adds no more to their difference than the corners do.
        """
        affine = self.affine
        if affine is None or affine.ratio is None:
            return None
        sums, seconds = (np.abs(np.stack(pair)).max(0) for pair in ((self.low, self.high), (self.least, self.most)))
        parts = np.abs(affine.factor) * sums, np.abs(affine.summand), np.abs(affine.ratio) * seconds
        return affine if max(part.max() for part in parts) < _MAX_GUARDED_PART else None

    def codes(self, sums: Tensor, elements: Tensor) -> Tensor:
        """Return the codes (points, channels) of accumulators and elements.

        The reference is asked only about pairs that the guarded formula does not decide, as it takes twenty times as
        long.
        """
        affine = self.guarded
        if affine is None or len(sums) < _MIN_GUARDED_POINTS:
            return self.ask(sums, elements)

        def decide(sums: Tensor, elements: Tensor) -> Tensor:
            codes, open_ones = affine.decide(sums, elements)
            if open_ones.any():
                rows = np.argsort(~open_ones, axis=0, kind="stable")[: open_ones.sum(0).max()]
                asked = (np.take_along_axis(x, rows, 0) for x in (sums, elements))
                np.put_along_axis(codes, rows, self.ask(*asked), 0)
            return codes

        return _evaluate_in_parts(decide, sums, elements)

    def ask(self, sums: Tensor, elements: Tensor) -> Tensor:
        """Return the codes (points, channels) that the reference gives."""
        operand = self.paired.operand
        return np.asarray((self.oracle(sums, self.paired.integers(elements)) - operand.offset) // operand.scale)

    def deciding(self, elements: Tensor, codes: CodesAt) -> tuple[Tensor, Tensor]:
        """Return accumulators and elements (points, channels) around the breakpoints of `codes`, for each element."""
        return self.points_around(self.breakpoints(elements, codes), elements)

    def breakpoints(self, elements: Tensor, codes: CodesAt, near: Tensor | None = None) -> Tensor:
        """Return the breakpoints (levels, elements x channels) of `codes`; faster if they are `near` the given ones."""
        channels, every = len(self.low), self._every(elements)
        if near is None and self.affine is not None:
            near = self._guess_breakpoints(every, self.affine)
        if near is not None or len(elements) == 1:
            return self._breakpoints(every, codes, near)
        breakpoints = self._breakpoints(every[:channels], codes)
        # An element that adds more moves breakpoints down by about as much.
        rest = every[channels:].reshape(-1, channels)
        sooner = np.rint(self.ratio * (rest - every[:channels])).clip(*INT32).astype(np.int64)
        near = (breakpoints[:, None] - sooner).reshape(len(breakpoints), -1)
        return np.hstack([breakpoints, self._breakpoints(rest.reshape(-1), codes, near)])

    def _guess_breakpoints(self, every: Tensor, affine: AffineFormula) -> Tensor:
        """Return about where the chain's codes change (levels, elements x channels), as its affine formula has it."""
        assert affine.ratio is not None
        halves = np.arange(1, self.levels + 1)[:, None, None] - 0.5 - affine.zero
        exact = (halves - affine.summand - affine.ratio * every.reshape(-1, len(self.low))) / affine.factor
        first = np.where(affine.factor > 0, np.ceil(exact), np.floor(exact) + 1)
        return np.asarray(first.clip(*INT32).astype(np.int64).reshape(self.levels, -1))

    def points_around(self, breakpoints: Tensor, elements: Tensor) -> tuple[Tensor, Tensor]:
        """Return accumulators and elements (points, channels): both sides of the breakpoints, and both ends."""
        count, channels, every = len(elements), len(self.low), self._every(elements)
        low, high = np.tile(self.low, count), np.tile(self.high, count)
        sums = np.clip(np.concatenate([breakpoints - 1, breakpoints, low[None], high[None]]), low, high)
        return sums.reshape(-1, channels), np.broadcast_to(every, sums.shape).reshape(-1, channels)

    def _every(self, elements: Tensor) -> Tensor:
        """Return elements (elements x channels), each within the bounds of its channel."""
        count, channels = len(elements), len(self.low)
        return np.asarray(np.clip(np.repeat(elements, channels), np.tile(self.least, count), np.tile(self.most, count)))

    def _breakpoints(self, every: Tensor, codes: CodesAt, near: Tensor | None = None) -> Tensor:
        """Return the breakpoints (levels, elements x channels) of `codes` for one element after another."""
        channels = len(self.low)
        step = max(1, _POINTS_AT_ONCE // (self.levels * channels)) * channels
        parts = []
        for k in range(0, len(every), step):
            some, near_some = every[k : k + step], None if near is None else near[:, k : k + step]

            def levels(sums: Tensor, some: Tensor = some) -> Tensor:
                wide = np.broadcast_to(some, sums.shape).reshape(-1, channels)
                return codes(sums.reshape(-1, channels), wide).reshape(sums.shape)

            low, high = (np.tile(end, len(some) // channels) for end in (self.low, self.high))
            parts.append(find_breakpoints(levels, low, high, self.levels, near_some)[0])
        return np.hstack(parts)


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


def _fit_corners(proof: PairProof, edge: str, node: Node, relu: bool) -> AffineFormula | None:
    """Return the affine formula through the values at three corners of the range; None if they are not exact enough."""
    zero, scale = (float(np.asarray(node.attributes[key]).reshape(())) for key in ("zero", "scale"))
    low, high, first, last = proof.low, proof.high, proof.least, proof.most
    if zero != round(zero) or not ((high > low).all() and (last > first).all()):
        return None
    seconds = proof.paired.integers(np.stack([first, first, last]))
    values = proof.oracle.values([np.stack([low, high, low]), seconds])
    numbers = interval(Intervals().number(values[edge], values.graph.edges[edge]))
    if (numbers.high - numbers.low).max() > scale * MAX_VALUE_ERROR / 64:
        return None
    start, by_sum, by_element = ((numbers.low + numbers.high) / 2 / scale).reshape(3, -1)
    factor, ratio = (by_sum - start) / (high - low), (by_element - start) / (last - first)
    if np.abs(factor).min() < 4 * MAX_VALUE_ERROR:
        return None
    offset = proof.paired.operand.offset
    least = max(int(node.attributes["low"]), round(zero)) if relu else int(node.attributes["low"])
    limits = least - offset, int(node.attributes["high"]) - offset
    return AffineFormula(factor, start - factor * low - ratio * first, round(zero) - offset, limits, ratio)


def find_paired_form(paired: Paired, *, floats: bool = False) -> EpilogueForm | None:
    """Find the epilogue with a residual that equals a chain for all accumulators and elements; None if unproved.

    With `floats`, thresholds are not tried.
    """
    proof, elements = PairProof(paired), paired.elements
    points = len(elements) * 2 * (proof.levels + 1) * len(proof.low)
    if points > _MAX_EVALUATIONS or proof.low.min() <= INT32[0] or proof.high.max() >= INT32[1]:
        return None
    makers = [_make_thresholds] if proof.levels <= MAX_CHEAP_THRESHOLDS and not floats else []
    wanted = _collect_wanted(proof, elements)
    for make in (*makers, _make_rescale):
        if (form := _prove_form(proof, elements, wanted, make)) is not None:
            return form
    return None


_Make = Callable[[PairProof, Wanted], EpilogueForm | None]


def _prove_form(proof: PairProof, elements: Tensor, wanted: Wanted, make: _Make) -> EpilogueForm | None:
    """Return a form that equals the chain everywhere: refit it with the points that it misses, a few times."""
    check: _Check | None = None
    for _ in range(_MAX_REFITS):
        form = make(proof, wanted)
        if form is None:
            return None
        check = _check_form(proof, elements, form, check)
        wrong = check.wrong[:_MAX_ADDED_POINTS]
        if not len(wrong):
            return form
        wanted = wanted.at_more(check.sums[wrong], check.seconds[wrong], check.codes[wrong])
    return None


def _collect_wanted(proof: PairProof, elements: Tensor) -> Wanted:
    """Return the codes wanted at the deciding points of some residual elements, both ends among them."""
    paired = proof.paired
    some = elements[np.unique(np.linspace(0, len(elements) - 1, _FIRST_ELEMENTS).astype(int))]
    sums, seconds = proof.deciding(some, proof.codes)
    codes, zero = proof.codes(sums, seconds), zero_code(paired.kind.zero, paired.operand)
    limits = int(codes.min()), int(codes.max())
    return Wanted(sums, codes, paired.operand, limits, zero, seconds, proof.ratio, paired.residual)


@dataclass(frozen=True, eq=False)
class _Check:
    """An epilogue compared with the chain at all of the epilogue's breakpoints.

    Attributes:
        breakpoints: The breakpoints (levels, elements x channels) of the epilogue.
        sums, seconds: Accumulators and elements (points, channels) around these.
        codes: The codes (points, channels) of the chain there.
        wrong: The points at which the epilogue is wrong in a channel.
    """

    breakpoints: Tensor
    sums: Tensor
    seconds: Tensor
    codes: Tensor
    wrong: Tensor


def _check_form(proof: PairProof, elements: Tensor, form: EpilogueForm, last: _Check | None) -> _Check:
    """Compare an epilogue with the chain.

    A refitted epilogue moves few breakpoints, and evaluating the chain takes most of the time: the codes of points that
    the `last` check had are taken from there.
    """
    residual = form.epilogue.residual
    assert residual is not None
    kind = residual.type

    def compute_codes(sums: Tensor, seconds: Tensor) -> Tensor:
        return form.epilogue.reference(sums + form.bias, np.ascontiguousarray(seconds.astype(kind))).astype(np.int64)

    def all_emitted(sums: Tensor, seconds: Tensor) -> Tensor:
        return _evaluate_in_parts(compute_codes, sums, seconds)

    breakpoints = proof.breakpoints(elements, compute_codes, None if last is None else last.breakpoints)
    sums, seconds = proof.points_around(breakpoints, elements)
    if last is None:
        codes = proof.codes(sums, seconds)
    else:
        codes, moved = last.codes.copy(), (sums != last.sums).any(1)
        codes[moved] = proof.codes(sums[moved], seconds[moved])
    return _Check(breakpoints, sums, seconds, codes, np.flatnonzero((all_emitted(sums, seconds) != codes).any(1)))


def _joint_inputs(chain: Chain) -> tuple[str, ...]:
    return (chain.second_path[-1].outputs[0] if chain.second_path else chain.second,)


def _make_rescale(proof: PairProof, wanted: Wanted) -> EpilogueForm | None:
    """Return a float32 formula that gives the wanted codes; None if there is none."""
    fit = wanted.fit
    if fit.room(fit.best).min() < proof.levels * _FLOAT32_ERROR:
        return None
    rescaling = find_rescaling(wanted)
    return EpilogueForm(rescaling.epilogue(wanted), rescaling.shift) if rescaling else None


def _make_thresholds(proof: PairProof, wanted: Wanted) -> EpilogueForm | None:
    """Return thresholds of accumulators plus an integer multiple of the residual; None if a channel has none."""
    assert wanted.elements is not None
    assert wanted.residual is not None
    centred, ratio = wanted.elements - wanted.residual.zero_point, np.broadcast_to(wanted.ratio, proof.low.shape)
    if not (np.abs(ratio) < INT32[1]).all():
        return None

    def tries() -> Iterator[_FittedThresholds]:
        for rounded in (np.rint, np.floor, np.ceil):
            factor = rounded(ratio).astype(np.int64)
            values, rising, fits = fit_thresholds(wanted.sums + factor * centred, wanted.codes, proof.levels)
            yield _FittedThresholds(values.T, rising, factor, fits)

    fitted = find_by_channel(tries(), lambda tried, channels: tried.fits)
    if fitted is None:
        return None
    return EpilogueForm(Thresholds(fitted.values.T, fitted.rising, replace(wanted.residual, scale=fitted.factor)))


@dataclass(frozen=True, eq=False)
class _FittedThresholds(ByChannel):
    """Thresholds (levels, channels), directions and factors of the residual, and whether they give all codes."""

    values: Tensor
    rising: Tensor
    factor: Tensor
    fits: Tensor

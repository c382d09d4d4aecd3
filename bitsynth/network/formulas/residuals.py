"""Epilogues with a residual that equal a chain of two operands, proved for every element of the residual.

For example %codes = quantize(relu(add(batch_norm(%acc), %residual))). For one residual element the chain is a step
function of accumulators, and so is an epilogue: they are equal if they agree at the epilogue's breakpoints. So a
formula is fitted at the breakpoints for a few elements, checked at its own breakpoints for all, and refitted where it
is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bitsynth.graph.arithmetic import arithmetic_of
from bitsynth.graph.arithmetic.intervals import interval
from bitsynth.graph.ir import Graph
from bitsynth.graph.types import INT32, Integers, Tensor
from bitsynth.layers.epilogues import Thresholds
from bitsynth.layers.epilogues.residual import Residual
from bitsynth.network.formulas.chain import Chain
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
_MAX_ADDED_POINTS = 1 << 12
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

    def codes(self, sums: Tensor, elements: Tensor) -> Tensor:
        """Return the codes (points, channels) of accumulators and elements."""
        operand = self.paired.operand
        return np.asarray((self.oracle(sums, self.paired.integers(elements)) - operand.offset) // operand.scale)

    def deciding(self, elements: Tensor, codes: CodesAt) -> tuple[Tensor, Tensor]:
        """Return accumulators and elements (points, channels) around the breakpoints of `codes`, for each element."""
        return self.points_around(self.breakpoints(elements, codes), elements)

    def breakpoints(self, elements: Tensor, codes: CodesAt, near: Tensor | None = None) -> Tensor:
        """Return the breakpoints (levels, elements x channels) of `codes`; faster if they are `near` the given ones."""
        channels, every = len(self.low), self._every(elements)
        if near is not None or len(elements) == 1:
            return self._breakpoints(every, codes, near)
        breakpoints = self._breakpoints(every[:channels], codes)
        # An element that adds more moves breakpoints down by about as much.
        rest = every[channels:].reshape(-1, channels)
        sooner = np.rint(self.ratio * (rest - every[:channels])).clip(*INT32).astype(np.int64)
        near = (breakpoints[:, None] - sooner).reshape(len(breakpoints), -1)
        return np.hstack([breakpoints, self._breakpoints(rest.reshape(-1), codes, near)])

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

        def levels(sums: Tensor) -> Tensor:
            wide = np.broadcast_to(every, sums.shape).reshape(-1, channels)
            return codes(sums.reshape(-1, channels), wide).reshape(sums.shape)

        count = len(every) // channels
        return find_breakpoints(levels, np.tile(self.low, count), np.tile(self.high, count), self.levels, near)[0]


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

    def emitted(sums: Tensor, seconds: Tensor) -> Tensor:
        return form.epilogue.reference(sums + form.bias, np.ascontiguousarray(seconds.astype(kind))).astype(np.int64)

    breakpoints = proof.breakpoints(elements, emitted, None if last is None else last.breakpoints)
    sums, seconds = proof.points_around(breakpoints, elements)
    if last is None:
        codes = proof.codes(sums, seconds)
    else:
        codes, moved = last.codes.copy(), (sums != last.sums).any(1)
        codes[moved] = proof.codes(sums[moved], seconds[moved])
    return _Check(breakpoints, sums, seconds, codes, np.flatnonzero((emitted(sums, seconds) != codes).any(1)))


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

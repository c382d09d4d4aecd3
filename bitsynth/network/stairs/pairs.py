"""Epilogues with a residual that are the same as a chain of two operands, proved for every element of the second.

For each of these the chain is a staircase of sums, and so is an epilogue: they are the same if they agree where the
epilogue's levels turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bitsynth.graph.arithmetic import arithmetic_of
from bitsynth.graph.arithmetic.intervals import interval
from bitsynth.graph.ir import Graph
from bitsynth.graph.types import INT32, Integers, Tensor
from bitsynth.layers.epilogues import Thresholds
from bitsynth.layers.epilogues.base import Residual
from bitsynth.network.stairs.chain import Chain
from bitsynth.network.stairs.forms import FEW_LEVELS, EpilogueForm, zero_code
from bitsynth.network.stairs.oracle import Oracle, over_channels
from bitsynth.network.stairs.rescaling import Wanted, rescaling_of
from bitsynth.network.stairs.search import turns
from bitsynth.network.stairs.staircase import ranges
from bitsynth.network.stairs.thresholds import counted
from bitsynth.spec.matmul import MatmulOperand

_MOST_POINTS = 600_000
"""Evaluations of the reference that a proof may take."""
_ROUNDS = 6
"""Times that a formula is laid through points, and those that it misses are added."""
_FIRST = 5
"""Elements of the residual through whose staircases it is laid first."""
_MOST_ADDED = 1 << 12
_ROUNDED = 2.0**-23
"""Of values: what float32 may round away."""


@dataclass(frozen=True, eq=False)
class Paired:
    """A chain of two operands, with the operands of its codes and of the second edge's, None if that has sums."""

    graph: Graph
    chain: Chain
    operand: MatmulOperand
    second: MatmulOperand | None

    @property
    def kind(self) -> Integers:
        """The integers at the end."""
        return self.graph.edges[self.chain.end].integers

    @property
    def second_kind(self) -> Integers:
        """The integers of the second edge."""
        return self.graph.edges[self.chain.second].integers

    @property
    def residual(self) -> Residual:
        """How its elements lie in memory."""
        if self.second is None:
            return Residual("int32")
        return Residual("uint8", zero_point=zero_code(self.second_kind.zero, self.second))

    @property
    def elements(self) -> Tensor:
        """Every element of the residual, as it lies in memory."""
        kind = self.second_kind
        return self.element(np.arange(kind.least, kind.most + 1, kind.step))

    def element(self, integers: Tensor) -> Tensor:
        """Integers of the second edge as they lie in memory."""
        return integers if self.second is None else (integers - self.second.offset) // self.second.scale

    def integers(self, elements: Tensor) -> Tensor:
        """The integers of the second edge."""
        return elements if self.second is None else elements * self.second.scale + self.second.offset


class PairProof:
    """The oracle of a chain of two operands, in codes."""

    def __init__(self, paired: Paired) -> None:
        self.paired, self.oracle = paired, Oracle(paired.graph, paired.chain)
        self.low, self.high = ranges(paired.graph, paired.chain)
        self.least, self.most = self._bounds()
        self.levels = paired.operand.codes[-1]

    def _bounds(self) -> list[Tensor]:
        """The least and the greatest element of the residual (channels,)."""
        paired, channels = self.paired, self.low.shape
        kind, edge, axis = paired.second_kind, paired.graph.edges[paired.chain.second], paired.chain.axes[0]
        if not paired.chain.varies:
            return [np.full(channels, end) for end in (paired.elements[0], paired.elements[-1])]
        bounds = (over_channels(b, edge, axis, k == 0) for k, b in enumerate((kind.low, kind.high)))
        return [paired.element(b) for b in bounds]

    @cached_property
    def ratio(self) -> Tensor:
        """How much of a sum an element of the residual is (channels,), by the numbers where both meet."""
        chain, graph = self.paired.chain, self.paired.graph
        joint = next(n for n in chain.nodes if any(name in n.inputs for name in _ends(chain)) and len(n.inputs) == 2)
        low, high, first, last = self.low, self.high, self.least, self.most
        seconds = self.paired.integers(np.stack([first, first, last]))
        values = self.oracle.values([np.stack([low, high, low]), seconds])
        edge = values.graph.edges[joint.outputs[0]]
        numbers = interval(arithmetic_of(graph.reference).number(values[edge.name], edge))
        start, by_sum, by_element = ((numbers.low + numbers.high) / 2).reshape(3, -1)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = ((by_element - start) / (last - first)) / ((by_sum - start) / (high - low))
        return np.asarray(np.nan_to_num(found, nan=0.0, posinf=0.0, neginf=0.0))

    def codes(self, sums: Tensor, elements: Tensor) -> Tensor:
        """The codes (points, channels) of sums and elements."""
        operand = self.paired.operand
        return np.asarray((self.oracle(sums, self.paired.integers(elements)) - operand.offset) // operand.scale)

    def deciding(self, elements: Tensor, codes: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Where the levels of `codes`, a function of sums and elements, turn, for each of these elements."""
        count, channels = len(elements), len(self.low)
        every = np.clip(np.repeat(elements, channels), np.tile(self.least, count), np.tile(self.most, count))
        found = self._turns(every[:channels], codes)
        if count > 1:
            # Of each further element levels turn about as much sooner as its part of a sum is greater.
            rest = every[channels:].reshape(-1, channels)
            sooner = np.rint(self.ratio * (rest - every[:channels])).clip(*INT32).astype(np.int64)
            near = found[:, None] - sooner
            found = np.hstack([found, self._turns(rest.reshape(-1), codes, near.reshape(len(found), -1))])
        low, high = np.tile(self.low, count), np.tile(self.high, count)
        sums = np.clip(np.concatenate([found - 1, found, low[None], high[None]]), low, high)
        return sums.reshape(-1, channels), np.broadcast_to(every, sums.shape).reshape(-1, channels)

    def _turns(self, every: Tensor, codes: Callable[[Tensor, Tensor], Tensor], near: Tensor | None = None) -> Tensor:
        """Where levels (levels, elements x channels) turn for an element a channel, of one element after another."""
        channels = len(self.low)

        def levels(sums: Tensor) -> Tensor:
            wide = np.broadcast_to(every, sums.shape).reshape(-1, channels)
            return codes(sums.reshape(-1, channels), wide).reshape(sums.shape)

        count = len(every) // channels
        return turns(levels, np.tile(self.low, count), np.tile(self.high, count), self.levels, near)[0]


def paired_form(paired: Paired, *, floats: bool = False) -> EpilogueForm | None:
    """The epilogue with a residual that is the same as the chain on all sums and elements; None if none is proved.

    No thresholds if it is to have `floats`.
    """
    proof, elements = PairProof(paired), paired.elements
    points = len(elements) * 2 * (proof.levels + 1) * len(proof.low)
    if points > _MOST_POINTS or proof.low.min() <= INT32[0] or proof.high.max() >= INT32[1]:
        return None
    makers = [_thresholds] if proof.levels <= FEW_LEVELS and not floats else []
    wanted = _wanted(proof, elements)
    for make in (*makers, _rescaled):
        if (form := _proved(proof, elements, wanted, make)) is not None:
            return form
    return None


_Make = Callable[[PairProof, Wanted], EpilogueForm | None]


def _proved(proof: PairProof, elements: Tensor, wanted: Wanted, make: _Make) -> EpilogueForm | None:
    """The form that is made of what is `wanted` first, if it is the chain everywhere; else points are added."""
    for _ in range(_ROUNDS):
        form = make(proof, wanted)
        if form is None:
            return None
        sums, seconds, codes = _wrong(proof, elements, form)
        if not len(sums):
            return form
        wanted = wanted.at_more(sums, seconds, codes)
    return None


def _wanted(proof: PairProof, elements: Tensor) -> Wanted:
    """What the epilogue is to give for some elements, both ends among them."""
    paired = proof.paired
    some = elements[np.unique(np.linspace(0, len(elements) - 1, _FIRST).astype(int))]
    sums, seconds = proof.deciding(some, proof.codes)
    codes, zero = proof.codes(sums, seconds), zero_code(paired.kind.zero, paired.operand)
    limits = int(codes.min()), int(codes.max())
    return Wanted(sums, codes, paired.operand, limits, zero, seconds, proof.ratio, paired.residual)


def _wrong(proof: PairProof, elements: Tensor, form: EpilogueForm) -> tuple[Tensor, Tensor, Tensor]:
    """Sums, elements and codes of the chain (points, channels) where the epilogue turns and differs in a channel."""
    residual = form.epilogue.residual
    assert residual is not None
    kind = residual.type

    def made(sums: Tensor, seconds: Tensor) -> Tensor:
        return form.epilogue.reference(sums + form.bias, np.ascontiguousarray(seconds.astype(kind))).astype(np.int64)

    sums, seconds = proof.deciding(elements, made)
    codes = proof.codes(sums, seconds)
    differs = np.flatnonzero((made(sums, seconds) != codes).any(1))[:_MOST_ADDED]
    return sums[differs], seconds[differs], codes[differs]


def _ends(chain: Chain) -> tuple[str, ...]:
    return (chain.beside[-1].outputs[0] if chain.beside else chain.second,)


def _rescaled(proof: PairProof, wanted: Wanted) -> EpilogueForm | None:
    """The float32 formula."""
    lines = wanted.lines
    if lines.room(lines.best).min() < proof.levels * _ROUNDED:
        return None
    found = rescaling_of(wanted)
    return EpilogueForm(found.epilogue(wanted), found.shift) if found else None


def _thresholds(proof: PairProof, wanted: Wanted) -> EpilogueForm | None:
    """Thresholds of sums with whole multiples of the residual, for each channel those that fit."""
    assert wanted.elements is not None
    assert wanted.residual is not None
    centred, ratio = wanted.elements - wanted.residual.zero_point, np.broadcast_to(wanted.ratio, proof.low.shape)
    if not (np.abs(ratio) < INT32[1]).all():
        return None
    factors = np.stack([rounded(ratio).astype(np.int64) for rounded in (np.rint, np.floor, np.ceil)])
    tries = [counted(wanted.sums + factor * centred, wanted.codes, proof.levels) for factor in factors]
    values, rising, fits = (np.stack(parts) for parts in zip(*tries, strict=True))
    if not fits.any(0).all():
        return None
    taken = fits.argmax(0), np.arange(fits.shape[1])
    return EpilogueForm(Thresholds(values[taken], rising[taken], replace(wanted.residual, scale=factors[taken])))

"""Where the levels of monotone functions turn: many levels and channels at once, in few steps of many parts.

Thresholds of a chain by bisection, proved on the whole range of its start.

Of a monotone function to levels 0 .. m the least element at which level k is reached (or, where it falls, lost) is all
there is to know: what is proved at T - 1 and T holds everywhere (two evaluations a level and channel).


Step functions of real numbers in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from bitsynth.graph.ir import Graph
from bitsynth.graph.types import Integers, Tensor
from bitsynth.network.def_use import ChainKey, DefUse
from bitsynth.network.formulas.chain import Chain
from bitsynth.network.formulas.oracle import Oracle, over_channels

if TYPE_CHECKING:
    from bitsynth.network.formulas.affine import AffineFormula
    from bitsynth.network.formulas.epilogues import Wanted
    from bitsynth.spec.matmul import MatmulOperand

Levels = Callable[[Tensor], Tensor]
"""Levels (points, channels) of elements, likewise, that are whole numbers."""
_MAX_UNGUESSED_LEVELS = 3
"""Levels that are not worth a guess."""
_MAX_GUESS = float(1 << 62)
"""Beyond any guess that is worth a try."""
_PROBES_AROUND_GUESS = ((-1, 0), (-2, 1))
"""Elements around a guess, those first between which it should be."""
_PROBE_ROWS = 64
"""Rows of elements whose levels take little longer than those of one."""


def find_breakpoints(
    levels: Levels, low: Tensor, high: Tensor, m: int, near: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The first elements (m, channels) at which each level is reached, or lost where levels fall; and where they rise.

    Levels are monotone from `low` to `high` (channels,). An element past the end stands for none. They are found sooner
    if they are `near` those that are given.
    """
    ends = levels(np.stack([low, high]))
    rising = ends[1] >= ends[0]
    search = _Search(levels, low, high, rising, ends)
    wanted = np.repeat(np.arange(1, m + 1)[:, None], len(low), axis=1)
    if near is None and m > _MAX_UNGUESSED_LEVELS:
        near = _guess_breakpoints(search, wanted, m)
    return search.first(wanted, near), np.asarray(rising)


def _guess_breakpoints(search: _Search, wanted: Tensor, m: int) -> Tensor:
    """Where levels may turn: on the straight line between the first and the last that do."""
    first, last = np.sort(search.ends, axis=0)
    outer = search.first(np.stack([np.minimum(first + 1, m), np.maximum(last, 1)]), None)
    span = np.maximum(last - first - 1, 1)
    apart = (outer[1].astype(np.float64) - outer[0]) / span
    return np.asarray(outer[0] + np.rint((wanted - first - 1) * apart).clip(-_MAX_GUESS, _MAX_GUESS).astype(np.int64))


@dataclass(frozen=True, eq=False)
class _Search:
    """The search of many thresholds at once; `ends` are the levels of the least and the greatest elements."""

    levels: Levels
    low: Tensor
    high: Tensor
    rising: Tensor
    ends: Tensor

    def first(self, wanted: Tensor, guess: Tensor | None) -> Tensor:
        """The first elements at which levels (rows, channels) are reached or lost; `guess` tells where that may be."""
        below = np.where(self._after(self.ends[0], wanted), self.low - 1, self.low)
        above = np.where(self._after(self.ends[1], wanted), self.high, self.high + 1)
        above = np.where(below < self.low, self.low, above)
        below = np.where(above > self.high, self.high, below)
        if guess is not None:
            for around in _PROBES_AROUND_GUESS:
                below, above = self._narrow(np.stack([guess + k for k in around]), below, above, wanted)
        while most := (above > below + 1).sum(0).max():
            below, above = self._narrow(
                _spread_between(below, above, max(1, _PROBE_ROWS // int(most))), below, above, wanted
            )
        return above

    def _after(self, levels: Tensor, wanted: Tensor) -> Tensor:
        """Whether a level is reached, or lost, where these are."""
        return np.asarray((levels >= wanted) == self.rising)

    def _narrow(self, probes: Tensor, below: Tensor, above: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """The bounds of thresholds by the levels at probes (parts, rows, channels), where these are between them."""
        inside = (probes > below) & (probes < above)
        if not inside.any():
            return below, above
        rows = np.argsort(~inside.any(0), axis=0, kind="stable")[: inside.any(0).sum(0).max()]
        asked = np.take_along_axis(np.clip(probes, self.low, self.high), rows[None], 1)
        found = self.levels(asked.reshape(-1, len(self.low))).reshape(asked.shape)
        after = np.zeros(probes.shape, bool)
        np.put_along_axis(after, rows[None], self._after(found, np.take_along_axis(wanted, rows, 0)), 1)
        low = np.where(inside & ~after, probes, below).max(0)
        high = np.where(inside & after, probes, above).min(0)
        return low, high


def _spread_between(below: Tensor, above: Tensor, count: int) -> Tensor:
    """So many elements (count, ...) that part what lies between others evenly, whose distance int64 may not hold."""
    start = below.astype(np.uint64)
    apart = above.astype(np.uint64) - start
    step = np.maximum(apart // np.uint64(count + 1), np.uint64(1))
    parts = np.arange(1, count + 1, dtype=np.uint64).reshape(-1, *[1] * below.ndim)
    inside = np.minimum(parts * step, np.maximum(apart, np.uint64(1)) - np.uint64(1))
    made: Tensor = (start + inside).astype(np.int64)
    return made


_MAX_DOUBLE = 2.0**400
"""A size that no sum of products of float32 reaches, and that the reference can scale and square."""
INFINITE_PLACE = 0x7F800000
"""The bits of the least float32 above all that are finite."""


_MAX_THRESHOLDS = 1 << 22
"""Of all channels: each takes some 7 us to be found and proved, so that all of them take half a minute at most."""


@dataclass(frozen=True, eq=False)
class FormulaMemo:
    """Formulas of a step function, each sought once; keys are the operand of its codes and the type of its integers.

    Attributes:
        wanted: The codes that a formula has to give.
        affine: The affine formula; None if there is none.
    """

    wanted: dict[tuple[MatmulOperand, Integers], Wanted] = field(default_factory=dict)
    affine: dict[tuple[MatmulOperand, Integers], AffineFormula | None] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class StepFunction:
    """A chain, exactly, on elements of its start from `low` to `high` (channels,), which are 1 if all are alike.

    An element `a` gets the integer least + step * (levels k with a >= thresholds[k]), of a channel that is not rising
    the levels with a < thresholds[k]. A threshold lies from low to high + 1: what is below or above is always or never
    reached. Elements that are float32 are told by their place in the order of these numbers (`places`).

    Args:
        chain: What it is the same as.
        low: The least elements.
        high: The greatest elements.
        thresholds: (channels, levels), of rising channels ascending, of others descending.
        rising: (channels,).
        least: The integer of level 0.
        step: Between the integers of two levels.
        proof: Levels (channels, levels, 2) of the chain at each threshold - 1 and threshold, kept within the range.
        memo: Formulas that were found for it.
    """

    chain: Chain
    low: Tensor
    high: Tensor
    thresholds: Tensor
    rising: Tensor
    least: int
    step: int
    proof: Tensor
    memo: FormulaMemo = field(default_factory=FormulaMemo, repr=False)

    @property
    def levels(self) -> int:
        """How many levels there are above the least."""
        return int(self.thresholds.shape[1])

    def points(self) -> Tensor:
        """Elements (points, channels) that decide whether another monotone function is the same (Lemma 3)."""
        ends = np.stack([self.low, self.high])
        both = np.concatenate([self.thresholds.T - 1, self.thresholds.T, ends])
        return np.asarray(np.clip(both, self.low, self.high))

    def at(self, elements: Tensor) -> Tensor:
        """The integers of elements (points, channels)."""
        every = np.broadcast_to(elements, np.broadcast_shapes(elements.shape, self.low.shape))
        breakpoints = np.broadcast_to(np.sort(self.thresholds, axis=1), (every.shape[1], self.levels))
        reached = np.stack([np.searchsorted(t, x, "right") for t, x in zip(breakpoints, every.T, strict=True)], axis=1)
        return np.asarray(self.least + self.step * np.where(self.rising, reached, self.levels - reached))


def find_step_function(
    graph: Graph, chain: Chain, *, doubles: bool = False, beyond: float = float("inf")
) -> StepFunction | None:
    """Return the step function of a chain over the range of its start, integers or finite floats.

    None if the chain is none, or if its channels have more than `_MAX_THRESHOLDS` together.

    Floats are float32, or float64 if they are `doubles`, of a size below `beyond`. Where the chain makes one integer
    alone, it has a single level that is never reached.
    """
    end = np.float64(min(beyond, _MAX_DOUBLE)).view(np.int64) if doubles else np.float32(beyond).view(np.int32)
    low, high = ranges(graph, chain, int(end))
    kind, oracle = graph.edges[chain.end].integers, Oracle(graph, chain, doubles=doubles)
    floats = double_of if doubles else float_of
    numbers = _same if isinstance(graph.edges[chain.start].type, Integers) else floats
    m = max(1, (kind.most - kind.least) // kind.step)
    if m * len(low) > _MAX_THRESHOLDS:
        return None

    def levels(elements: Tensor) -> Tensor:
        found: Tensor = (oracle(numbers(elements)) - kind.least) // kind.step
        return found

    thresholds, rising = find_breakpoints(levels, low, high, m)
    inside = np.clip(np.stack([thresholds - 1, thresholds]), low, high)
    proof = levels(inside.reshape(-1, len(low))).reshape(inside.shape)
    made = StepFunction(
        chain, low, high, thresholds.T, rising, kind.least, kind.step, np.ascontiguousarray(proof.transpose(2, 1, 0))
    )
    return made if _is_proved(made) else None


def step_function_of(def_use: DefUse, chain: Chain) -> StepFunction | None:
    """The step function of a chain of the graph, found once."""
    memo, key = def_use.memo.step_functions, ChainKey(chain.start, chain.names, chain.axes)
    if key not in memo:
        memo[key] = find_step_function(def_use.graph, chain)
    return memo[key]


def ranges(graph: Graph, chain: Chain, infinite: int = INFINITE_PLACE) -> tuple[Tensor, Tensor]:
    """The least and greatest element of the start for each channel (channels,): integers, or places of finite floats.

    Floats are those whose least infinite one has the place `infinite`.
    """
    edge, axis = graph.edges[chain.start], chain.axes[0]
    if not isinstance(edge.type, Integers):
        channels = edge.shape[axis] if chain.varies else 1
        return np.full(channels, 1 - infinite), np.full(channels, infinite - 1)
    low, high = (over_channels(b, edge, axis, k == 0) for k, b in enumerate((edge.type.low, edge.type.high)))
    return (low, high) if chain.varies else (low.min(keepdims=True), high.max(keepdims=True))


def _is_proved(made: StepFunction) -> bool:
    """Whether the levels at each threshold - 1 and threshold, which the chain gave, are those of the step function."""
    t = made.thresholds.T
    inside = np.clip(np.stack([t - 1, t]), made.low, made.high)
    said = (made.at(inside.reshape(-1, len(made.low))) - made.least) // made.step
    return bool((said.reshape(inside.shape) == made.proof.transpose(2, 1, 0)).all())


def _same(elements: Tensor) -> Tensor:
    return elements


def places(numbers: Tensor) -> Tensor:
    """The places of float32 in the order of these numbers, in which both zeros are one."""
    bits = numbers.astype(np.float32).view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def float_of(places: Tensor) -> Tensor:
    """The float32 at places in their order."""
    bits = np.where(places < 0, -places | 0x80000000, places)
    made: Tensor = bits.astype(np.uint32).view(np.float32)
    return made


def double_of(places: Tensor) -> Tensor:
    """The float64 at places in their order."""
    made: Tensor = np.copysign(np.abs(places).view(np.float64), places)
    return made


_MAX_UNBOUNDED_INPUT = float(1 << 36)
"""Size of numbers from which integers of a chain without limits may be too great for int64."""


def find_real_step_function(graph: Graph, chain: Chain) -> StepFunction | None:
    """The step function of a chain of real numbers in float64; None if there is none.

    Of a chain whose integers grow without limit before they are cut, the least and the greatest level must be reached
    by numbers of a size that int64 holds after it.
    """
    if chain.is_limited:
        return find_step_function(graph, chain, doubles=True)
    made = find_step_function(graph, chain, doubles=True, beyond=_MAX_UNBOUNDED_INPUT)
    if made is None:
        return None
    inside = (made.thresholds > made.low[:, None]) & (made.thresholds <= made.high[:, None])
    return made if inside.all() else None


def double_thresholds(step_function: StepFunction) -> Tensor:
    """The float64 (channels, levels) from which levels are reached, or lost; infinite where always or never."""
    breakpoints, low, high = step_function.thresholds, step_function.low[:, None], step_function.high[:, None]
    made: Tensor = np.where(breakpoints <= low, -np.inf, np.where(breakpoints > high, np.inf, double_of(breakpoints)))
    return made

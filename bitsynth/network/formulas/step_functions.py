"""Monotone chains as step functions: thresholds, found by search and proved on the whole range.

A monotone function to levels 0 .. m is determined by its breakpoints: for each level k the least element T at which
the level is reached, or lost where the function falls. If a chain is below level k at T - 1 and has reached it at T,
that is proved for all elements: two evaluations a level and channel.

For example quantize(0.2 * acc) to codes 0 .. 2 has the breakpoints 3 and 8: code 1 from 3 on, code 2 from 8 on.
`find_breakpoints` finds the breakpoints of all levels and channels at once by k-ary search: it evaluates many elements
between the bounds of each breakpoint in one call, as a call costs more than an element.
"""

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
    from bitsynth.network.formulas.affine_formula import AffineFormula
    from bitsynth.network.formulas.rescaling import Wanted
    from bitsynth.spec.matmul import MatmulOperand

Levels = Callable[[Tensor], Tensor]
"""Return the levels (points, channels) of integer elements (points, channels)."""
_MAX_UNGUESSED_LEVELS = 3
"""The number of levels up to which they are searched without a guess."""
_MAX_GUESS = float(1 << 62)
"""Guesses are clipped to this size."""
_PROBES_AROUND_GUESS = ((-1, 0), (-2, 1))
"""Offsets of probes around a guess: first the two between which the breakpoint should be."""
_PROBE_ROWS = 64
"""Rows of elements whose levels cost little more than the levels of one row."""


def find_breakpoints(
    levels: Levels, low: Tensor, high: Tensor, m: int, near: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the first elements (m, channels) at which each level is reached, or lost where levels fall; and `rising`.

    Levels are monotone from `low` to `high` (channels,). A level that is not reached has the element after `high`. The
    search is faster if breakpoints are `near` the given elements.
    """
    ends = levels(np.stack([low, high]))
    rising = ends[1] >= ends[0]
    search = _Search(levels, low, high, rising, ends)
    wanted = np.repeat(np.arange(1, m + 1)[:, None], len(low), axis=1)
    if near is None and m > _MAX_UNGUESSED_LEVELS:
        near = _guess_breakpoints(search, wanted, m)
    return search.first(wanted, near), np.asarray(rising)


def _guess_breakpoints(search: _Search, wanted: Tensor, m: int) -> Tensor:
    """Return guesses: evenly spaced between the first and the last breakpoint."""
    first, last = np.sort(search.ends, axis=0)
    outer = search.first(np.stack([np.minimum(first + 1, m), np.maximum(last, 1)]), None)
    span = np.maximum(last - first - 1, 1)
    apart = (outer[1].astype(np.float64) - outer[0]) / span
    return np.asarray(outer[0] + np.rint((wanted - first - 1) * apart).clip(-_MAX_GUESS, _MAX_GUESS).astype(np.int64))


@dataclass(frozen=True, eq=False)
class _Search:
    """The search for many breakpoints at once; `ends` are the levels of the least and the greatest elements."""

    levels: Levels
    low: Tensor
    high: Tensor
    rising: Tensor
    ends: Tensor

    def first(self, wanted: Tensor, guess: Tensor | None) -> Tensor:
        """Return the first elements at which levels (rows, channels) are reached or lost, near a `guess` first."""
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
        """Return whether the wanted level is reached, or lost, at elements with these levels."""
        return np.asarray((levels >= wanted) == self.rising)

    def _narrow(self, probes: Tensor, below: Tensor, above: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """Return the bounds of breakpoints narrowed by the levels at probes (parts, rows, channels) between them."""
        inside = (probes > below) & (probes < above)
        if not inside.any():
            return below, above
        rows = np.argsort(~inside.any(0), axis=0, kind="stable")[: inside.any(0).sum(0).max()]
        asked = np.take_along_axis(np.clip(probes, self.low, self.high), rows[None], 1)
        levels = self.levels(asked.reshape(-1, len(self.low))).reshape(asked.shape)
        after = np.zeros(probes.shape, bool)
        np.put_along_axis(after, rows[None], self._after(levels, np.take_along_axis(wanted, rows, 0)), 1)
        low = np.where(inside & ~after, probes, below).max(0)
        high = np.where(inside & after, probes, above).min(0)
        return low, high


def _spread_between(below: Tensor, above: Tensor, count: int) -> Tensor:
    """Return `count` evenly spaced elements (count, ...) between others, whose distance may exceed int64."""
    start = below.astype(np.uint64)
    apart = above.astype(np.uint64) - start
    step = np.maximum(apart // np.uint64(count + 1), np.uint64(1))
    parts = np.arange(1, count + 1, dtype=np.uint64).reshape(-1, *[1] * below.ndim)
    inside = np.minimum(parts * step, np.maximum(apart, np.uint64(1)) - np.uint64(1))
    probes: Tensor = (start + inside).astype(np.int64)
    return probes


_MAX_DOUBLE = 2.0**400
"""A size that sums of products of float32 do not reach, and that the reference can scale and square."""
INFINITE_PLACE = 0x7F800000
"""The bits of float32 infinity: finite numbers have smaller places."""


_MAX_THRESHOLDS = 1 << 22
"""Thresholds of all channels, at most: each takes some 7 us to be found and proved, all of them half a minute."""


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
    """A chain as thresholds, equal to it on elements of its start from `low` to `high` (channels,); 1 if all are alike.

    An element `a` gives the integer least + step * (number of k with a >= thresholds[k]); in a channel that is not
    rising, the number of k with a < thresholds[k]. Thresholds lie from low, always reached, to high + 1, never reached.
    Elements that are float32 are given by their places in the order of float32 numbers (`places`).

    Args:
        chain: The chain that it equals.
        low: The least elements.
        high: The greatest elements.
        thresholds: (channels, levels), of rising channels ascending, of others descending.
        rising: (channels,).
        least: The integer of level 0.
        step: The difference of the integers of two levels.
        proof: Levels (channels, levels, 2) of the chain at each threshold - 1 and threshold, clipped to the range.
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
        """The number of levels above the least."""
        return int(self.thresholds.shape[1])

    def points(self) -> Tensor:
        """Return the elements (points, channels) that decide whether another monotone function is equal (Lemma 3)."""
        ends = np.stack([self.low, self.high])
        both = np.concatenate([self.thresholds.T - 1, self.thresholds.T, ends])
        return np.asarray(np.clip(both, self.low, self.high))

    def at(self, elements: Tensor) -> Tensor:
        """Return the integers of elements (points, channels)."""
        every = np.broadcast_to(elements, np.broadcast_shapes(elements.shape, self.low.shape))
        breakpoints = np.broadcast_to(np.sort(self.thresholds, axis=1), (every.shape[1], self.levels))
        reached = np.stack([np.searchsorted(t, x, "right") for t, x in zip(breakpoints, every.T, strict=True)], axis=1)
        return np.asarray(self.least + self.step * np.where(self.rising, reached, self.levels - reached))


def find_step_function(
    graph: Graph, chain: Chain, *, doubles: bool = False, beyond: float = float("inf")
) -> StepFunction | None:
    """Return the step function of a chain over the range of its start, integers or finite floats.

    Return None if the chain is no step function, or if its channels have more than `_MAX_THRESHOLDS` together.

    Floats are float32, or float64 with `doubles`, of a size below `beyond`. Where the chain gives one integer
    only, it has a single level that is never reached.
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
        levels_there: Tensor = (oracle(numbers(elements)) - kind.least) // kind.step
        return levels_there

    thresholds, rising = find_breakpoints(levels, low, high, m)
    inside = np.clip(np.stack([thresholds - 1, thresholds]), low, high)
    proof = levels(inside.reshape(-1, len(low))).reshape(inside.shape)
    step_function = StepFunction(
        chain, low, high, thresholds.T, rising, kind.least, kind.step, np.ascontiguousarray(proof.transpose(2, 1, 0))
    )
    return step_function if _is_proved(step_function) else None


def step_function_of(def_use: DefUse, chain: Chain) -> StepFunction | None:
    """Return the step function of a chain of the graph, found once."""
    memo, key = def_use.memo.step_functions, ChainKey(chain.start, chain.names, chain.axes)
    if key not in memo:
        memo[key] = find_step_function(def_use.graph, chain)
    return memo[key]


def ranges(graph: Graph, chain: Chain, infinite: int = INFINITE_PLACE) -> tuple[Tensor, Tensor]:
    """Return the least and greatest element of the start (channels,): integers, or places of finite floats.

    The place of infinity is `infinite`, which tells float32 from float64.
    """
    edge, axis = graph.edges[chain.start], chain.axes[0]
    if not isinstance(edge.type, Integers):
        channels = edge.shape[axis] if chain.varies else 1
        return np.full(channels, 1 - infinite), np.full(channels, infinite - 1)
    low, high = (over_channels(b, edge, axis, k == 0) for k, b in enumerate((edge.type.low, edge.type.high)))
    return (low, high) if chain.varies else (low.min(keepdims=True), high.max(keepdims=True))


def _is_proved(step_function: StepFunction) -> bool:
    """Return whether chain and step function have the same levels at each threshold - 1 and threshold."""
    t = step_function.thresholds.T
    inside = np.clip(np.stack([t - 1, t]), step_function.low, step_function.high)
    levels = (step_function.at(inside.reshape(-1, len(step_function.low))) - step_function.least) // step_function.step
    return bool((levels.reshape(inside.shape) == step_function.proof.transpose(2, 1, 0)).all())


def _same(elements: Tensor) -> Tensor:
    return elements


def places(numbers: Tensor) -> Tensor:
    """Return the places of float32 numbers in their order; both zeros have place 0."""
    bits = numbers.astype(np.float32).view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def float_of(places: Tensor) -> Tensor:
    """Return the float32 numbers at places in their order."""
    bits = np.where(places < 0, -places | 0x80000000, places)
    floats: Tensor = bits.astype(np.uint32).view(np.float32)
    return floats


def double_of(places: Tensor) -> Tensor:
    """Return the float64 numbers at places in their order."""
    doubles: Tensor = np.copysign(np.abs(places).view(np.float64), places)
    return doubles


_MAX_UNBOUNDED_INPUT = float(1 << 36)
"""From this size of numbers on, integers of a chain without limits may exceed int64."""


def find_real_step_function(graph: Graph, chain: Chain) -> StepFunction | None:
    """Return the step function of a chain of real numbers in float64; None if there is none.

    If integers grow without limit before they are clipped, numbers that int64 still holds must reach the least and the
    greatest level.
    """
    if chain.is_limited:
        return find_step_function(graph, chain, doubles=True)
    step_function = find_step_function(graph, chain, doubles=True, beyond=_MAX_UNBOUNDED_INPUT)
    if step_function is None:
        return None
    inside = (step_function.thresholds > step_function.low[:, None]) & (
        step_function.thresholds <= step_function.high[:, None]
    )
    return step_function if inside.all() else None


def double_thresholds(step_function: StepFunction) -> Tensor:
    """Return the float64 (channels, levels) at which levels are reached or lost; infinite for always and never."""
    breakpoints, low, high = step_function.thresholds, step_function.low[:, None], step_function.high[:, None]
    thresholds: Tensor = np.where(
        breakpoints <= low, -np.inf, np.where(breakpoints > high, np.inf, double_of(breakpoints))
    )
    return thresholds

"""Thresholds of a chain by bisection, proved on the whole range of its start.

Of a monotone function to levels 0 .. m the least element at which level k is reached (or, where it falls, lost) is all
there is to know: what is proved at T - 1 and T holds everywhere (two evaluations a level and channel).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from bitsynth.graph.ir import Graph
from bitsynth.graph.types import Integers, Tensor
from bitsynth.network.def_use import ChainKey, DefUse
from bitsynth.network.formulas.chain import Chain
from bitsynth.network.formulas.oracle import Oracle, over_channels
from bitsynth.network.formulas.search import find_breakpoints

if TYPE_CHECKING:
    from bitsynth.network.formulas.affine import AffineFormula
    from bitsynth.network.formulas.rescaling import Wanted
    from bitsynth.spec.matmul import MatmulOperand

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

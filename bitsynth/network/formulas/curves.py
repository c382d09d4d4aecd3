"""Breakpoints of a function from real numbers to codes, proved between the breakpoints by interval arithmetic.

Chains that bend, as x * sigmoid(x) between sums and codes, by a table of breakpoints that all channels share.

A sum becomes a place u = a * s + b, in float64, on an axis of cells 1 wide. A cell has one breakpoint at most:
the code is one before it, another from there on. Between breakpoints the code is proved by intervals, for all real
numbers at once; of sums so near to a turn that float64 could take the wrong side the reference is asked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.arithmetic import arithmetic_of
from bitsynth.graph.arithmetic.intervals import interval
from bitsynth.graph.ir import Graph
from bitsynth.graph.types import INT32, Integers, Tensor
from bitsynth.network.formulas.chain import Chain
from bitsynth.network.formulas.oracle import Oracle
from bitsynth.network.formulas.step_functions import ranges
from bitsynth.spec.matmul import MatmulOperand

_EVEN_SAMPLES, _SCALED_SAMPLES = 1 << 11, 1 << 10
"""Numbers among which breakpoints are looked for: as far apart from each other, and by their size."""
_BREAKPOINT_WIDTH = 2.0**-42
"""Of the greatest number: how near breakpoints are found."""
_INTERVAL_PARTS, _MAX_DIVISIONS = 8, 24
"""How many parts intervals are divided into, and how often."""
_MAX_OPEN_INTERVALS = 1 << 17
"""Open parts at once: of functions that come near to a tie and stay there, as tanh does, each leaves some."""


@dataclass(frozen=True, eq=False)
class CodesOf:
    """Codes of real numbers (points,) behind a line."""

    oracle: Oracle
    operand: MatmulOperand

    def __call__(self, numbers: Tensor) -> Tensor:
        """The codes of numbers (points,)."""
        return self._of(self.oracle(numbers[:, None]))

    def bounds(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Codes between which those of all numbers from `low` to `high` (points,) lie."""
        least, most = self.oracle.bounds(low[:, None], high[:, None])
        return self._of(least), self._of(most)

    def _of(self, integers: Tensor) -> Tensor:
        return np.asarray((integers[:, 0] - self.operand.offset) // self.operand.scale)


@dataclass(frozen=True, eq=False)
class CodeBreakpoints:
    """Where codes of real numbers from `low` to `high` turn.

    Attributes:
        breakpoints: The numbers, ascending.
        made: The codes before, between and behind them: one more.
    """

    codes: CodesOf
    low: float
    high: float
    breakpoints: Tensor
    made: Tensor

    def holds(self, guard: float) -> bool:
        """Whether codes are `made` for all numbers farther than `guard` from breakpoints; open parts are divided."""
        ends = np.concatenate([[self.low - guard], self.breakpoints, [self.high + guard]])
        first, last, wanted = ends[:-1] + guard, ends[1:] - guard, self.made
        if (first >= last).any():
            return False
        for _ in range(_MAX_DIVISIONS):
            least, most = self.codes.bounds(first, last)
            left = (least != wanted) | (most != wanted)
            if ((most < wanted) | (least > wanted)).any() or left.sum() > _MAX_OPEN_INTERVALS:
                return False
            if not left.any():
                return True
            cuts = np.linspace(first[left], last[left], _INTERVAL_PARTS + 1)
            first, last = cuts[:-1].reshape(-1), cuts[1:].reshape(-1)
            wanted = np.tile(wanted[left], _INTERVAL_PARTS)
        return False


def find_code_breakpoints(codes: CodesOf, low: float, high: float) -> CodeBreakpoints:
    """Turns, by halving the room between numbers of other codes; what lies between is found with them."""
    size = max(abs(low), abs(high))
    by_size = np.geomspace(size * 2.0**-30, size, _SCALED_SAMPLES) if size else np.zeros(1)
    numbers = np.unique(np.concatenate([np.linspace(low, high, _EVEN_SAMPLES), by_size, -by_size]).clip(low, high))
    made = codes(numbers)
    first, last, one, other = numbers[:-1], numbers[1:], made[:-1], made[1:]
    while True:
        first, last, one, other = (x[one != other] for x in (first, last, one, other))
        if not first.size or (last - first).max() <= size * _BREAKPOINT_WIDTH:
            break
        middle = (first + last) / 2
        between = codes(middle)
        ends = (first, middle), (middle, last), (one, between), (between, other)
        first, last, one, other = (np.concatenate(pair) for pair in ends)
    order = np.argsort(first)
    return CodeBreakpoints(codes, low, high, ((first + last) / 2)[order], np.concatenate([made[:1], other[order]]))


_AFFINE = ("add", "sub", "mul", "div", "batch_norm", "neg", "cast", "view")
_TABLE_SIZES = (256, 512, 1024, 2048, 4096)
"""Tables that are tried, the smallest first."""
GUARD = 1e-6
"""Cells from a turn within which the reference is asked."""
_FLOAT64_ERROR = 2.0**-48
"""Of the size of a place: what float64 may be off by, far more than it is."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Codes by the place of a sum on an axis of cells.

    Args:
        factor: (channels,), of sums.
        summand: Likewise; their sum is the place, kept within the axis.
        breakpoints: (cells,), the place in each cell from which the second code holds; infinite if there is none.
        table: (cells, 2), codes before and from the turn.
    """

    factor: Tensor
    summand: Tensor
    breakpoints: Tensor
    table: Tensor

    def codes(self, sums: Tensor) -> Tensor:
        """The codes of sums (points, channels), as C computes them."""
        place = (sums * self.factor + self.summand).clip(0.0, len(self.breakpoints) - 1.0)
        cell = place.astype(np.int64)
        return np.asarray(self.table[cell, (place >= self.breakpoints[cell]).astype(np.int64)].astype(np.int64))

    def of(self, channels: int) -> Curve:
        """The same with a line for each of so many channels."""
        factor, summand = (np.broadcast_to(x, channels) for x in (self.factor, self.summand))
        return replace(self, factor=factor, summand=summand)

    def repeated(self, times: int) -> Curve:
        """The same for channels so many times behind each other."""
        return replace(self, factor=np.tile(self.factor, times), summand=np.tile(self.summand, times))


def find_curve(graph: Graph, chain: Chain, operand: MatmulOperand) -> Curve | None:
    """The curve that gives codes of `operand` for all sums of a chain; None if none is proved."""
    low, high = ranges(graph, chain)
    affine_nodes = _count_affine_nodes(graph, chain)
    if graph.reference != "exact" or low.min() <= INT32[0] or high.max() >= INT32[1]:
        return None
    if affine_nodes == len(chain.nodes) or not _is_shared_by_channels(graph, chain, affine_nodes):
        return None
    try:
        return _prove_curve(Oracle(graph, chain), affine_nodes, operand, (low, high))
    except SpecError:
        return None


def _prove_curve(
    oracle: Oracle, affine_nodes: int, operand: MatmulOperand, sums: tuple[Tensor, Tensor]
) -> Curve | None:
    """The curve through what the nodes behind a line make of its numbers; None if it is not proved."""
    graph, chain, (low, high) = oracle.graph, oracle.chain, sums
    edge = graph.edges[chain.nodes[affine_nodes - 1].outputs[0]]
    found = interval(arithmetic_of("exact").number(oracle.values([np.stack(sums)])[edge.name], edge))
    ends, off = (x.reshape(2, -1) for x in ((found.low + found.high) / 2, found.high - found.low))
    behind = replace(
        chain, start=edge.name, nodes=chain.nodes[affine_nodes:], axes=chain.axes[affine_nodes:], varies=False
    )
    codes = CodesOf(Oracle(graph, behind, doubles=True), operand)
    code_breakpoints = find_code_breakpoints(codes, float(ends.min()), float(ends.max()))
    axis = next((a for cells in _TABLE_SIZES if (a := _make_axis(code_breakpoints.breakpoints, cells)).is_alone), None)
    if axis is None:
        return None
    slope = (ends[1] - ends[0]) / np.maximum(high - low, 1)
    table = code_breakpoints.made[np.stack([axis.before, axis.behind], 1)].astype(np.uint8)
    curve = Curve(slope * axis.scale, axis.place(ends[0] - slope * low), axis.places, table)
    size = np.abs(curve.factor) * np.maximum(np.abs(low), np.abs(high)) + np.abs(curve.summand) + axis.cells
    if max(size.max() * _FLOAT64_ERROR, off.max() * axis.scale) > GUARD / 8 or not code_breakpoints.holds(
        GUARD / axis.scale
    ):
        return None
    asked = _near_breakpoints(curve, low, high)
    if asked is None:
        return None
    return curve if (oracle(asked) == operand.offset + operand.scale * curve.codes(asked)).all() else None


def _near_breakpoints(curve: Curve, low: Tensor, high: Tensor) -> Tensor | None:
    """Sums (points, channels) nearest to breakpoints, and both ends; None if several are near to one breakpoint."""
    alive = high > low
    if (np.abs(curve.factor[alive]) < 4 * GUARD).any():
        return None
    factor = np.where(alive, curve.factor, 1.0)
    exact = (curve.breakpoints[np.isfinite(curve.breakpoints)][:, None] - curve.summand) / factor
    nearest = np.rint(exact)
    near = (np.abs(exact - nearest) * np.abs(factor) < 2 * GUARD) & (nearest >= low) & (nearest <= high)
    asked = np.where(near, nearest, low).astype(np.int64)
    return np.concatenate([asked[near.any(1)], low[None], high[None]])


def _count_affine_nodes(graph: Graph, chain: Chain) -> int:
    """How many nodes at the beginning of a chain make a line of its elements, each of the one before alone."""
    edge, count = chain.start, 0
    for node in chain.nodes:
        readers = [n for n in chain.nodes if edge in n.inputs]
        is_float = graph.edges[node.outputs[0]].is_float
        if node.op not in _AFFINE or readers != [node] or node.inputs.count(edge) != 1 or not is_float:
            break
        edge, count = node.outputs[0], count + 1
    return count


def _is_shared_by_channels(graph: Graph, chain: Chain, affine_nodes: int) -> bool:
    """Whether the nodes behind the line are one function of real numbers for all channels."""
    behind = chain.nodes[affine_nodes:]
    made = {e for node in (*chain.nodes, *chain.constant_nodes) for e in node.outputs} | {chain.start}
    sizes = [graph.edges[e].shape for node in behind for e in node.inputs if e not in made]
    sizes += [graph.edges[e].shape for node in chain.constant_nodes for e in node.outputs]
    sizes += [np.shape(value) for node in behind for value in node.attributes.values()]
    is_real = affine_nodes > 0 and not isinstance(graph.edges[chain.nodes[affine_nodes - 1].outputs[0]].type, Integers)
    return is_real and all(np.prod(shape, dtype=int) <= 1 for shape in sizes)


@dataclass(frozen=True, eq=False)
class _Axis:
    """Cells, with breakpoints between the first and the last one.

    Attributes:
        places: (cells,), the turn in each cell, the first of several; infinite if there is none.
        before: How many breakpoints are before each cell.
        behind: How many are before its end.
    """

    start: float
    scale: float
    cells: int
    places: Tensor
    before: Tensor
    behind: Tensor

    @property
    def is_alone(self) -> bool:
        """Whether no cell has more than one turn."""
        return bool((self.behind - self.before).max() <= 1)

    def place(self, numbers: Tensor) -> Tensor:
        """Where numbers are."""
        return (numbers - self.start) * self.scale + 1


def _make_axis(breakpoints: Tensor, cells: int) -> _Axis:
    """So many cells from the first turn to the last one."""
    start = float(breakpoints[0]) if breakpoints.size else 0.0
    wide = float(breakpoints[-1]) - start if breakpoints.size > 1 else 0.0
    scale = (cells - 3) / wide if wide else 1.0
    where = (breakpoints - start) * scale + 1
    ends = np.searchsorted(where.astype(np.int64), np.arange(cells + 1))
    has = ends[:-1] < ends[1:]
    places = np.where(has, np.append(where, np.inf)[ends[:-1]], np.inf)
    return _Axis(start, scale, cells, places, ends[:-1], ends[1:])

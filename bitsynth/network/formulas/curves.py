"""Chains that are not monotone, as x * sigmoid(x) between accumulators and codes, by a table that all channels share.

An accumulator s becomes a place u = a * s + b, in float64, on an axis of cells of width 1. The factors a and b come
from the affine nodes at the beginning of the chain, or from the accumulators' scales alone. A cell has at most one
breakpoint: the code is one before it, another from there on. For example cell 3 with breakpoint 3.4 and codes (7, 6)
gives 7 at u = 3.2 and 6 at u = 3.9.

The table is constructed, not searched: breakpoints are bisected, and the axis is the first of a few with one a cell.
Between breakpoints the code is proved by interval arithmetic, for all real numbers at once. For accumulators so near to
a breakpoint that float64 could take the wrong side, the reference is asked, and the breakpoint is moved to their side.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.arithmetic import arithmetic_of
from bitsynth.graph.arithmetic.intervals import interval
from bitsynth.graph.ir import Graph
from bitsynth.graph.types import INT32, Reals, Tensor
from bitsynth.isa.doubles import ZERO, bits_of
from bitsynth.layers.epilogues.claimed import ClaimedCurve
from bitsynth.network.formulas.chain import AFFINE_OPS, Chain
from bitsynth.network.formulas.oracle import Oracle
from bitsynth.network.formulas.step_functions import ranges
from bitsynth.spec.matmul import MatmulOperand

_EVEN_SAMPLES, _SCALED_SAMPLES = 1 << 11, 1 << 10
"""Numbers that are sampled for breakpoints: evenly spaced, and geometrically around 0."""
_BREAKPOINT_WIDTH = 2.0**-42
"""The width to which breakpoints are bisected, relative to the greatest number."""
_INTERVAL_PARTS, _MAX_DIVISIONS = 8, 24
"""The parts that an undecided interval is split into, and the number of splits."""
_MAX_OPEN_INTERVALS = 1 << 17
"""Undecided intervals at once. Functions that stay near a tie, as tanh does, leave some at each."""


@dataclass(frozen=True, eq=False)
class CodesOf:
    """Codes of real numbers (points,), by the nodes after the affine ones."""

    oracle: Oracle
    operand: MatmulOperand

    def __call__(self, numbers: Tensor) -> Tensor:
        """Return the codes of numbers (points,)."""
        return self._of(self.oracle(numbers[:, None]))

    def bounds(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Return bounds of the codes of numbers from `low` to `high` (points,)."""
        least, most = self.oracle.bounds(low[:, None], high[:, None])
        return self._of(least), self._of(most)

    def _of(self, integers: Tensor) -> Tensor:
        return np.asarray((integers[:, 0] - self.operand.offset) // self.operand.scale)


@dataclass(frozen=True, eq=False)
class CodeBreakpoints:
    """The breakpoints of codes of real numbers from `low` to `high`.

    Attributes:
        breakpoints: The numbers, ascending.
        results: The codes before, between and after the breakpoints: one more.
    """

    codes: CodesOf
    low: float
    high: float
    breakpoints: Tensor
    results: Tensor

    def holds(self, guard: float) -> bool:
        """Return whether codes are `results` for all numbers farther than `guard` from breakpoints."""
        ends = np.concatenate([[self.low - guard], self.breakpoints, [self.high + guard]])
        first, last, wanted = ends[:-1] + guard, ends[1:] - guard, self.results
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
    """Find breakpoints by bisection between sampled numbers with different codes."""
    size = max(abs(low), abs(high))
    by_size = np.geomspace(size * 2.0**-30, size, _SCALED_SAMPLES) if size else np.zeros(1)
    numbers = np.unique(np.concatenate([np.linspace(low, high, _EVEN_SAMPLES), by_size, -by_size]).clip(low, high))
    codes_there = codes(numbers)
    first, last, one, other = numbers[:-1], numbers[1:], codes_there[:-1], codes_there[1:]
    while True:
        first, last, one, other = (x[one != other] for x in (first, last, one, other))
        if not first.size or (last - first).max() <= size * _BREAKPOINT_WIDTH:
            break
        middle = (first + last) / 2
        between = codes(middle)
        ends = (first, middle), (middle, last), (one, between), (between, other)
        first, last, one, other = (np.concatenate(pair) for pair in ends)
    order = np.argsort(first)
    return CodeBreakpoints(
        codes, low, high, ((first + last) / 2)[order], np.concatenate([codes_there[:1], other[order]])
    )


_TABLE_SIZES = (256, 512, 1024, 2048, 4096)
"""Numbers of cells that are tried, the smallest first."""
_GUARD_CELLS = 1e-6
"""The distance to a breakpoint, in cells, within which the reference is asked."""
_FLOAT64_ERROR = 2.0**-48
"""A bound of float64's relative error of a place, far above the real one."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Codes by the place of an accumulator on an axis of cells.

    Args:
        factor: (channels,), of accumulators.
        summand: (channels,); factor * accumulator + summand is the place, clipped to the axis.
        breakpoints: (cells,), the place in each cell from which the second code holds; infinite if there is none.
        table: (cells, 2), codes below the breakpoint, and from it on.
    """

    factor: Tensor
    summand: Tensor
    breakpoints: Tensor
    table: Tensor

    def codes(self, sums: Tensor) -> Tensor:
        """Return the codes of accumulators (points, channels) that `text` gives."""
        place = self.places(sums)
        cell = place.astype(np.int64)
        return np.asarray(self.table[cell, (place >= self.breakpoints[cell]).astype(np.int64)].astype(np.int64))

    def places(self, sums: Tensor) -> Tensor:
        """Return the places of accumulators (points, channels), as `place_text` gives them."""
        return np.asarray((sums * self.factor + self.summand).clip(0.0, len(self.breakpoints) - 1.0))

    @property
    def place_text(self) -> str:
        """The place in the lane language: of an accumulator s with factor f and summand b."""
        last = bits_of(len(self.breakpoints) - 1.0)
        return f"dmin(dmax(dadd(dmul(double_of(s), f), b), {ZERO}), {last})"

    @property
    def text(self) -> str:
        """The code in the lane language, with w the breakpoints and t the table, row by row."""
        place = self.place_text
        cell = f"int_of({place})"
        return f"lookup(t, ({cell} << 1) + zext(~bit(dlt({place}, lookup(w, {cell}))), 32))"

    def formula(self) -> ClaimedCurve:
        """Return the formula as a certificate claims it."""
        scale, bias = self.factor[:, None], self.summand[:, None]
        return ClaimedCurve(scale=scale, bias=bias, breakpoints=self.breakpoints, table=self.table)

    def of(self, channels: int) -> Curve:
        """Return the curve with a factor and a summand for each of `channels` channels."""
        factor, summand = (np.broadcast_to(x, channels) for x in (self.factor, self.summand))
        return replace(self, factor=factor, summand=summand)

    def repeat(self, times: int) -> Curve:
        """Return the curve for the channels repeated `times` times, one after another."""
        return replace(self, factor=np.tile(self.factor, times), summand=np.tile(self.summand, times))


def find_curve(graph: Graph, chain: Chain, operand: MatmulOperand) -> Curve | None:
    """Find the curve that gives the codes of a chain for all accumulators; None if none is proved."""
    low, high = ranges(graph, chain)
    affine_nodes = _count_affine_nodes(graph, chain)
    if graph.reference != "exact" or low.min() <= INT32[0] or high.max() >= INT32[1]:
        return None
    if affine_nodes == len(chain.nodes) or not _is_shared_by_channels(graph, chain, affine_nodes):
        return None
    if not graph.edges[_end_of_affine_nodes(chain, affine_nodes)].is_float:
        return None
    try:
        return _prove_curve(Oracle(graph, chain), affine_nodes, operand, (low, high))
    except SpecError:
        return None


def _prove_curve(
    oracle: Oracle, affine_nodes: int, operand: MatmulOperand, sums: tuple[Tensor, Tensor]
) -> Curve | None:
    """Return the curve of the nodes after the affine ones; None if it is not proved."""
    graph, chain, (low, high) = oracle.graph, oracle.chain, sums
    edge = graph.edges[_end_of_affine_nodes(chain, affine_nodes)]
    results = interval(arithmetic_of("exact").number(oracle.values([np.stack(sums)])[edge.name], edge))
    ends, off = (x.reshape(2, -1) for x in ((results.low + results.high) / 2, results.high - results.low))
    behind = replace(
        chain, start=edge.name, nodes=chain.nodes[affine_nodes:], axes=chain.axes[affine_nodes:], varies=False
    )
    of_reals = replace(graph, edges={**graph.edges, edge.name: replace(edge, type=Reals())})
    codes = CodesOf(Oracle(of_reals, behind, doubles=True), operand)
    code_breakpoints = find_code_breakpoints(codes, float(ends.min()), float(ends.max()))
    axis = next((a for cells in _TABLE_SIZES if (a := _make_axis(code_breakpoints.breakpoints, cells)).is_alone), None)
    if axis is None:
        return None
    slope = (ends[1] - ends[0]) / np.maximum(high - low, 1)
    table = code_breakpoints.results[np.stack([axis.before, axis.behind], 1)].astype(np.uint8)
    curve = Curve(slope * axis.scale, axis.place(ends[0] - slope * low), axis.places, table)
    size = np.abs(curve.factor) * np.maximum(np.abs(low), np.abs(high)) + np.abs(curve.summand) + axis.cells
    if max(size.max() * _FLOAT64_ERROR, off.max() * axis.scale) > _GUARD_CELLS / 8 or not code_breakpoints.holds(
        _GUARD_CELLS / axis.scale
    ):
        return None
    near = _near_breakpoints(curve, low, high)
    if near is None:
        return None
    asked = np.concatenate([near.sums, low[None], high[None]])
    wanted = (oracle(asked) - operand.offset) // operand.scale
    curve = _settle_ties(curve, near, wanted[:-2])
    return curve if (wanted == curve.codes(asked)).all() else None


@dataclass(frozen=True, eq=False)
class _NearSums:
    """Accumulators (cells, channels) near the breakpoints of some cells.

    Attributes:
        cells: (cells,), the cells.
        sums: The accumulators nearest to the breakpoints; the least one where none is near.
        distances: Their distances to the breakpoints in cells; infinite where none is near.
    """

    cells: Tensor
    sums: Tensor
    distances: Tensor


def _near_breakpoints(curve: Curve, low: Tensor, high: Tensor) -> _NearSums | None:
    """Return the accumulators near breakpoints; None if two of a channel are near one breakpoint."""
    alive = high > low
    if (np.abs(curve.factor[alive]) < 4 * _GUARD_CELLS).any():
        return None
    factor = np.where(alive, curve.factor, 1.0)
    (cells,) = np.nonzero(np.isfinite(curve.breakpoints))
    exact = (curve.breakpoints[cells][:, None] - curve.summand) / factor
    nearest = np.rint(exact)
    distances = np.abs(exact - nearest) * np.abs(factor)
    near = (distances < 2 * _GUARD_CELLS) & (nearest >= low) & (nearest <= high)
    rows = near.any(1)
    sums = np.where(near, nearest, low).astype(np.int64)
    return _NearSums(cells[rows], sums[rows], np.where(near, distances, np.inf)[rows])


def _settle_ties(curve: Curve, near: _NearSums, wanted: Tensor) -> Curve:
    """Return the curve with breakpoints moved to the accumulators that lie on them, as codes `wanted` have it.

    Scales of few bits make such accumulators common: a number halfway between two codes has the even one. Breakpoints
    move by little more than `_GUARD_CELLS`, which other accumulators are farther away.
    """
    breakpoints = curve.breakpoints.copy()
    places = curve.places(near.sums)
    is_tie = near.distances < _GUARD_CELLS
    for cell, place, code, ties in zip(near.cells, places, wanted, is_tie, strict=True):
        before, after = (place[ties & (code == of)] for of in curve.table[cell])
        if after.size:
            breakpoints[cell] = after.min()
        elif before.size:
            breakpoints[cell] = np.nextafter(before.max(), np.inf)
    return replace(curve, breakpoints=breakpoints)


def _count_affine_nodes(graph: Graph, chain: Chain) -> int:
    """Return the number of nodes at a chain's beginning that are affine, each read by the next one alone."""
    edge, count = chain.start, 0
    for node in chain.nodes:
        readers = [n for n in chain.nodes if edge in n.inputs]
        is_float = graph.edges[node.outputs[0]].is_float
        if node.op not in AFFINE_OPS or readers != [node] or node.inputs.count(edge) != 1 or not is_float:
            break
        edge, count = node.outputs[0], count + 1
    return count


def _end_of_affine_nodes(chain: Chain, affine_nodes: int) -> str:
    """Return the edge after the affine nodes: the start of the chain, whose integers stand for numbers, if none are."""
    return chain.nodes[affine_nodes - 1].outputs[0] if affine_nodes else chain.start


def _is_shared_by_channels(graph: Graph, chain: Chain, affine_nodes: int) -> bool:
    """Return whether the nodes after the affine ones are one function of real numbers for all channels."""
    behind = chain.nodes[affine_nodes:]
    results = {e for node in (*chain.nodes, *chain.constant_nodes) for e in node.outputs} | {chain.start}
    sizes = [graph.edges[e].shape for node in behind for e in node.inputs if e not in results]
    sizes += [graph.edges[e].shape for node in chain.constant_nodes for e in node.outputs]
    sizes += [np.shape(value) for node in behind for value in node.attributes.values()]
    return all(np.prod(shape, dtype=int) <= 1 for shape in sizes)


@dataclass(frozen=True, eq=False)
class _Axis:
    """An axis of cells, with all breakpoints between the first and the last cell.

    Attributes:
        places: (cells,), the first breakpoint in each cell; infinite if there is none.
        before: The number of breakpoints before each cell.
        behind: The number of breakpoints before the end of each cell.
    """

    start: float
    scale: float
    cells: int
    places: Tensor
    before: Tensor
    behind: Tensor

    @property
    def is_alone(self) -> bool:
        """Whether no cell has more than one breakpoint."""
        return bool((self.behind - self.before).max() <= 1)

    def place(self, numbers: Tensor) -> Tensor:
        """Return the places of numbers on the axis."""
        return (numbers - self.start) * self.scale + 1


def _make_axis(breakpoints: Tensor, cells: int) -> _Axis:
    """Return an axis of `cells` cells from the first breakpoint to the last."""
    start = float(breakpoints[0]) if breakpoints.size else 0.0
    wide = float(breakpoints[-1]) - start if breakpoints.size > 1 else 0.0
    scale = (cells - 3) / wide if wide else 1.0
    where = (breakpoints - start) * scale + 1
    ends = np.searchsorted(where.astype(np.int64), np.arange(cells + 1))
    has = ends[:-1] < ends[1:]
    places = np.where(has, np.append(where, np.inf)[ends[:-1]], np.inf)
    return _Axis(start, scale, cells, places, ends[:-1], ends[1:])

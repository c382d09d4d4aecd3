"""The cheapest flush of accumulators: levels that merge or widen their sums, then a write-back to the tile."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import count as counter

from bitsynth.isa.instr import Metric
from bitsynth.isa.trace import Trace
from bitsynth.isa.types import VecType
from bitsynth.sketches.reduction.moves import ILLEGAL, AnyMove, Signature, all_moves, atoms, signature
from bitsynth.sketches.reduction.writeback import WriteBack, cheapest_write_back

POST = 3


Flush = tuple[float, tuple[AnyMove, ...], tuple[int, ...], WriteBack]


def cheapest_flush(
    trace: Trace, names: list[str], coef: int, metric: Metric, target: VecType, ceiling: float = float("inf")
) -> Flush | None:
    """Find the cheapest way to take coef * sums from registers of type `target`: levels, order, write-back.

    None if none is cheaper than `ceiling`.
    """
    isa = trace.isa
    whole = atoms(signature(trace, names))
    ties = counter()
    queue: list[tuple[float, int, tuple[AnyMove, ...], Trace, list[str]]] = [(0.0, next(ties), (), trace, names)]
    seen: set[Signature] = set()
    goal: Flush | None = None
    while queue:
        cost, _, levels, trace, names = heapq.heappop(queue)
        if cost >= ceiling:
            return goal
        # States with the same content are visited once, the cheapest first.
        sig = signature(trace, names)
        if sig in seen:
            continue
        seen.add(sig)
        # End here by a write-back,
        found = cheapest_write_back(trace, names, coef, metric, target)
        if found and (goal is None or cost + found[0] < goal[0]):
            goal = (cost + found[0], levels, found[2], found[1])
            ceiling = min(ceiling, goal[0])
        # or apply one more level.
        if len(levels) < POST:
            for move in all_moves(isa):
                higher = cost + sum(metric(isa[op]) for op in move.ops(len(names)))
                if higher < ceiling and move.fits(trace, names) and (step := _step(trace, names, move, whole)):
                    heapq.heappush(queue, (higher, next(ties), (*levels, move), *step))
    return goal


def _step(trace: Trace, names: Sequence[str], move: AnyMove, whole: int) -> tuple[Trace, list[str]] | None:
    extended = Trace(trace.isa, trace.domain, dict(trace.registers), list(trace.steps), dict(trace.constants))
    try:
        after = move.apply(extended, names)
        sig = signature(extended, after)
        if atoms(sig) != whole or not _progress(sig, signature(trace, names)):
            return None
    except ILLEGAL:
        return None
    return extended, after


def _progress(after: Signature, before: Signature) -> bool:
    """Whether sums were merged, or as many brought into fewer registers or wider lanes, and not merely permuted."""
    fewer, same = _held(after) < _held(before), _held(after) == _held(before)
    return fewer or (same and (len(after) < len(before) or _width(after) > _width(before)))


def _held(sig: Signature) -> int:
    """Return the number of lanes that hold something."""
    return sum(lane is not None for _, lanes in sig for lane in lanes)


def _width(sig: Signature) -> int:
    return VecType.parse(sig[0][0]).bits

"""Chooses how long a kernel's loops run: as long as the proof can show that no lane overflows.

For each loop, innermost first, the greatest number of runs is found by doubling and bisection, with the loop summaries
of `proof/accumulation.py` as the test:

    bytes acc0 that get up to 12 in a step        loop 0 runs at most 21 times: 21 * 12 <= 255
    16-bit acc4 that gets two acc0                loop 1 runs at most 130 times, and so on to the int32 tile
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import msgspec

from bitsynth.errors import Refuted
from bitsynth.isa.load import Isa
from bitsynth.kernel.program import Kernel, Pass
from bitsynth.kernel.wellformed import MAX_TRIP_COUNT
from bitsynth.proof.accumulation import LoopSummary, loop_summary, pass_summary, separate_rows, step_summary
from bitsynth.schedule.peel import peel_first_run


def maximize_flush_period(isa: Isa, kernel: Kernel) -> Kernel:
    """Return the same kernel with loops as long as the proof allows, and first runs of their own."""
    passes = (peel_first_run(isa, p, kernel.groups) for c in kernel.chains for p in max_trip_counts(isa, kernel, c))
    return msgspec.structs.replace(kernel, passes=tuple(passes))


def max_trip_counts(isa: Isa, kernel: Kernel, chain: Sequence[Pass]) -> list[Pass]:
    """Return the passes between two flushes, every loop as long as the proof allows, innermost first."""
    inner = [_maximize_inner(isa, kernel, loop, number) for number, loop in enumerate(chain)]
    inside = max(prod(nested.trip_count for nested in loop.loops[:-1]) for loop, _ in inner)

    def holds(trip_count: int) -> bool:
        return _succeeds(
            lambda: _check_flush(isa, kernel, [(_outermost(loop, trip_count), sums) for loop, sums in inner])
        )

    trip_count = _greatest(holds, MAX_TRIP_COUNT // inside)
    return [_outermost(loop, trip_count) for loop, _ in inner]


def _maximize_inner(isa: Isa, kernel: Kernel, loop: Pass, number: int) -> tuple[Pass, LoopSummary]:
    """Return the pass with all inner loops as long as the loops around them allow, and its summary."""
    sums, _ = separate_rows(kernel, step_summary(isa, kernel, loop), number)
    for level in range(len(loop.loops) - 1):

        def holds(trip_count: int, level: int = level, loop: Pass = loop, sums: LoopSummary = sums) -> bool:
            return _succeeds(lambda: loop_summary(isa, kernel, loop, level + 1, sums.after(trip_count)))

        loop = with_trip_count(loop, level, _greatest(holds, MAX_TRIP_COUNT))
        if level + 2 < len(loop.loops):
            sums = loop_summary(isa, kernel, loop, level + 1, sums.after(loop.loops[level].trip_count))
    return loop, sums


def _check_flush(isa: Isa, kernel: Kernel, chain: Sequence[tuple[Pass, LoopSummary]]) -> None:
    """Raise Refuted unless the outermost loops, and the flush, take exactly the sums of the loops inside."""
    carried: LoopSummary | None = None
    for loop, sums in chain:
        carried = pass_summary(isa, kernel, loop, sums, carried, level=max(0, len(loop.loops) - 2)).carried


def _outermost(loop: Pass, trip_count: int) -> Pass:
    return with_trip_count(loop, len(loop.loops) - 1, trip_count)


def _succeeds(run: Callable[[], object]) -> bool:
    try:
        run()
    except Refuted:
        return False
    return True


def with_trip_count(loop: Pass, level: int, trip_count: int) -> Pass:
    """Return the pass with another bound on the runs of one loop."""
    changed = msgspec.structs.replace(loop.loops[level], trip_count=trip_count)
    return msgspec.structs.replace(loop, loops=(*loop.loops[:level], changed, *loop.loops[level + 1 :]))


def with_flush_period(loop: Pass, steps: int) -> Pass:
    """Return the pass flushed after at most `steps` steps, or after fewer if it already is."""
    for level, nested in enumerate(loop.loops):
        trip_count = min(nested.trip_count, steps)
        loop, steps = with_trip_count(loop, level, trip_count), max(1, steps // trip_count)
    return loop


def _greatest(holds: Callable[[int], bool], most: int) -> int:
    """Return the greatest number up to `most` that holds, by doubling, then bisection: most loops are short."""
    if not holds(1):
        raise Refuted("a flush after every single step already overflows")
    low, high = 1, 2
    while high <= most and holds(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low

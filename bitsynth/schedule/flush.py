"""How long a kernel's loops may run: as long as their effects can be shown exact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import msgspec

from bitsynth.errors import Refuted
from bitsynth.isa.load import Isa
from bitsynth.kernel.program import Kernel, Pass
from bitsynth.kernel.wellformed import MAX_TIMES
from bitsynth.proof.accumulation import LoopSummary, loop_summary, pass_summary, step_summary


def longest_loops(isa: Isa, kernel: Kernel, chain: Sequence[Pass]) -> list[Pass]:
    """The passes between two flushes with every loop as long as the proof allows, innermost first, by bisection."""
    made = [_longest_inside(isa, kernel, loop, number) for number, loop in enumerate(chain)]
    inside = max(prod(nested.times for nested in loop.loops[:-1]) for loop, _ in made)

    def holds(times: int) -> bool:
        return _exact(lambda: _flushed(isa, kernel, [(_outermost(loop, times), sums) for loop, sums in made]))

    times = _longest(holds, MAX_TIMES // inside)
    return [_outermost(loop, times) for loop, _ in made]


def _longest_inside(isa: Isa, kernel: Kernel, loop: Pass, number: int) -> tuple[Pass, LoopSummary]:
    """The pass with all loops but the outermost as long as those around take their sums, and what these are."""
    sums = LoopSummary.of_step(step_summary(isa, kernel, loop), number)
    for level in range(len(loop.loops) - 1):

        def holds(times: int, level: int = level, loop: Pass = loop, sums: LoopSummary = sums) -> bool:
            return _exact(lambda: loop_summary(isa, kernel, loop, level + 1, sums.after(times)))

        loop = with_times(loop, level, _longest(holds, MAX_TIMES))
        if level + 2 < len(loop.loops):
            sums = loop_summary(isa, kernel, loop, level + 1, sums.after(loop.loops[level].times))
    return loop, sums


def _flushed(isa: Isa, kernel: Kernel, chain: Sequence[tuple[Pass, LoopSummary]]) -> None:
    """Refuted unless the outermost loops, and the flush, take all sums exactly: what runs of the loops inside add."""
    carried: LoopSummary | None = None
    for loop, sums in chain:
        carried = pass_summary(isa, kernel, loop, sums, carried, level=max(0, len(loop.loops) - 2)).carried


def _outermost(loop: Pass, times: int) -> Pass:
    return with_times(loop, len(loop.loops) - 1, times)


def _exact(run: Callable[[], object]) -> bool:
    try:
        run()
    except Refuted:
        return False
    return True


def with_times(loop: Pass, level: int, times: int) -> Pass:
    """The pass with another bound on the runs of one loop."""
    changed = msgspec.structs.replace(loop.loops[level], times=times)
    return msgspec.structs.replace(loop, loops=(*loop.loops[:level], changed, *loop.loops[level + 1 :]))


def flushed(loop: Pass, steps: int) -> Pass:
    """The pass flushed after at most `steps` steps, or after fewer where it already is."""
    for level, nested in enumerate(loop.loops):
        times = min(nested.times, steps)
        loop, steps = with_times(loop, level, times), max(1, steps // times)
    return loop


def _longest(holds: Callable[[int], bool], most: int) -> int:
    """The greatest number up to `most` that holds, by doubling, then bisection: most loops are short."""
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

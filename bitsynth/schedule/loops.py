"""How long a kernel's loops may run: as long as their effects can be shown exact."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from bitsynth.errors import Refuted
from bitsynth.growth import Sums, flush_effect, fold_growth, step_growth
from bitsynth.isa.load import Isa
from bitsynth.program import Kernel, Pass
from bitsynth.wellformed import MAX_TIMES


def longest_loops(isa: Isa, kernel: Kernel, loop: Pass) -> Pass:
    """The pass with every loop as long as the proof allows, innermost first, by bisection."""
    sums = Sums.of_step(step_growth(isa, kernel, loop))
    for level in range(len(loop.loops)):
        loop = with_times(loop, level, _longest(_holds(isa, kernel, loop, level, sums)))
        if level + 1 < len(loop.loops):
            sums = fold_growth(isa, kernel, loop, level + 1, sums)
    return loop


def _holds(isa: Isa, kernel: Kernel, loop: Pass, level: int, sums: Sums) -> Callable[[int], bool]:
    """Whether what follows loop `level` takes its accumulators exactly after so many runs."""

    def holds(times: int) -> bool:
        try:
            changed = with_times(loop, level, times)
            if level + 1 < len(loop.loops):
                fold_growth(isa, kernel, changed, level + 1, sums)
            else:
                flush_effect(isa, kernel, changed, sums)
        except Refuted:
            return False
        return True

    return holds


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


def _longest(holds: Callable[[int], bool]) -> int:
    low, high = 1, MAX_TIMES + 1
    if not holds(low):
        raise Refuted("a flush after every single step already overflows")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low

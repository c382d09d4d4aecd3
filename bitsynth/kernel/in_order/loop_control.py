"""The instructions that run a pipelined loop: pointers, counters, addresses and prefetches.

An iteration advances a pointer for each stream that it loads from, and counts itself. At the end of the body these
instructions took 2 of 32 cycles; among the others they are free, wherever an issue slot is idle. So `place_counters`
looks on the scoreboard for instructions behind which a slot is idle, and places each of them there:

Given (iteration k)            Result
    t = load offset                t = load offset
    u = eor t w                    u = eor t w            (one slot idle)
    v = cnt u                      offset += step
    offset += step                 v = cnt u              (one slot idle)
    --iterations                   --iterations

A pointer advances behind the last load of the iteration's own step; loads of the next step come behind that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from bitsynth.isa.load import Isa, load
from bitsynth.isa.scoreboard import InOrder, of_kind
from bitsynth.isa.step import Step
from bitsynth.isa.tables import CpuTable
from bitsynth.kernel.in_order.list_scheduling import issue, load_kind
from bitsynth.kernel.in_order.pipelining import LONG_LOOP, WARM_UP_ITERATIONS, PipelinedLoop
from bitsynth.kernel.program import Kernel

LINE_BYTES = 64
"""Bytes of a cache line."""

_MIN_PREFETCHED_BYTES = 16
"""Bytes read per iteration from which on a stream is prefetched: below, one cache line serves many iterations."""


@dataclass(frozen=True)
class CounterPlaces:
    """The indices of instructions after which the body advances pointers and counts.

    Attributes:
        pointers: For each pointer, by name; `steps_here`, the counter of a segment's steps, is among them.
        iterations: For the counter of iterations.
        segment: Behind this instruction the rows' pointers go to the next segment of memory where one ends. All loads
            of rows before it belong to the iteration's own step, all behind it to the next. None: the loop ends with
            each segment.
        left: Behind these instructions an issue slot is still idle, for prefetches.
    """

    pointers: Mapping[str, int]
    iterations: int
    segment: int | None
    left: tuple[int, ...]


@lru_cache(maxsize=1 << 10)
def place_counters(kernel: Kernel, loop: PipelinedLoop) -> CounterPlaces:
    """Place the instructions that count and advance pointers; one that finds no idle slot goes to the end."""
    idle, last = _idle_slots(kernel, loop), len(loop.body) - 1
    loads = [(k, pointer_of(step), ahead) for k, (step, ahead) in enumerate(loop.body) if not step.args]
    names = dict.fromkeys(["offset", "column", *(name for _, name, _ in loads)])
    last_own = {name: max((k for k, by, ahead in loads if by == name and not ahead), default=0) for name in names}

    def place(start: int, end: int = last) -> int:
        """Take the first idle slot from `start` on, else `end`."""
        k = next((k for k in idle if start <= k < end), end)
        if k in idle:
            idle.remove(k)
        return k

    # A segment may end where all of the step's own row loads come before all of the next step's.
    segment, pointers = None, dict[str, int]()
    own_end = max(last_own[name] for name in names if name != "column")
    next_begin = min((k for k, by, ahead in loads if by != "column" and ahead), default=last)
    if own_end < next_begin and len(loop.body) >= LONG_LOOP and loop.copies == 1:
        pointers["offset"] = place(own_end, next_begin - 1)
        segment = place(pointers["offset"] + 1, next_begin - 1)
        pointers |= {"steps_here": place(0, segment)} | ({"high": segment} if "high" in names else {})
    pointers |= {name: place(last_own[name]) for name in names if name not in pointers}
    iterations = place(0)
    return CounterPlaces(pointers, iterations, segment, tuple(k for k in idle if loop.body[k][0].args))


def _idle_slots(kernel: Kernel, loop: PipelinedLoop) -> list[int]:
    """Return the indices of instructions in whose cycle one more could be issued, once the loop is warm."""
    isa = load(kernel.isa)
    core, starts, started = InOrder(isa.rules(kernel.order)), list[int](), Counter[int]()
    address = of_kind(core.rules, "integer")
    for step in (step for _ in range(WARM_UP_ITERATIONS) for step, _ahead in loop.body):
        issued = [issue(isa, kernel.order, step, loop.becomes)]
        if has_address(isa, step):
            issued = [*issued, address] if kernel.active_scalar_pass else [address, *issued]
        for x in issued:
            core.issue(x)
            started[core.now] += core.rules.width if x.alone else 1
        starts.append(core.now)
    return [k for k, cycle in enumerate(starts[-len(loop.body) :]) if started[cycle] < core.rules.width]


def pointer_of(step: Step) -> str:
    """Return the name of the pointer that a load of a step's inputs reads by: "column", "offset" of rows, or "high".

    High halves of rows share the pointer "high". Without it compilers would keep one pointer for the high half of
    every row, and run out of registers.
    """
    return "column" if step.dst.is_column else "high" if step.dst.part.is_high else "offset"


def has_address(isa: Isa, step: Step) -> bool:
    """Return whether a load needs an instruction for its address: broadcasts of rows do, others add two registers."""
    return not step.args and not step.dst.is_column and load_kind(isa, step) == "broadcast"


def prefetch_distance(cpu: CpuTable, kernel: Kernel, size: int) -> int:
    """Return how many bytes ahead a stream is prefetched, if an iteration reads `size` bytes of it; 0: it is not.

    A load that misses the cache holds up an in-order processor; a prefetch does not (Cortex-A53 TRM, Arm DDI 0500,
    6.6.1). Planes that lie apart in memory ("outer") are not prefetched.
    """
    if not cpu.prefetch_turns or kernel.bit_axis == "outer" or size < _MIN_PREFETCHED_BYTES:
        return 0
    return max(LINE_BYTES, cpu.prefetch_turns * size)

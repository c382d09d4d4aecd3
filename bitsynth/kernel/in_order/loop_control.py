"""Where a step's loop counts: beside lines that nothing else starts with, so that it takes no cycles of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from bitsynth.isa.load import Isa, load
from bitsynth.isa.scoreboard import InOrder, of_kind
from bitsynth.isa.step import Step
from bitsynth.isa.tables import CpuTable
from bitsynth.kernel.in_order.halves import is_high
from bitsynth.kernel.in_order.list_scheduling import issue, load_kind
from bitsynth.kernel.in_order.pipelining import LONG_LOOP, WARM_UP_ITERATIONS, PipelinedLoop
from bitsynth.kernel.program import Kernel


@dataclass(frozen=True)
class CounterPlaces:
    """The numbers of the lines of a turn behind which pointers go on, by their names, and behind which it counts.

    Behind line `segment`, if there is one, rows go on to their next segment where one ends, as `steps_here` tells,
    which counts among the pointers: all loads of rows before it are of the turn's own step, those behind it of the
    next. Those `left` have room for one more instruction each.
    """

    pointers: Mapping[str, int]
    iterations: int
    segment: int | None
    left: tuple[int, ...]


@lru_cache(maxsize=1 << 10)
def place_counters(kernel: Kernel, found: PipelinedLoop) -> CounterPlaces:
    """Where a turn counts: pointers go on behind the last load of its own step; what finds no place comes last."""
    idle, last = _idle(kernel, found), len(found.body) - 1
    loads = [(k, pointer_of(step), later) for k, (step, later) in enumerate(found.body) if not step.args]
    names = dict.fromkeys(["offset", "column", *(name for _, name, _ in loads)])
    own = {name: max((k for k, by, later in loads if by == name and not later), default=0) for name in names}

    def place(least: int, most: int = last) -> int:
        k = next((k for k in idle if least <= k < most), most)
        if k in idle:
            idle.remove(k)
        return k

    segment, pointers = None, dict[str, int]()
    ends = max(own[name] for name in names if name != "column")
    begins = min((k for k, by, later in loads if by != "column" and later), default=last)
    if ends < begins and len(found.body) >= LONG_LOOP and found.copies == 1:
        pointers["offset"] = place(ends, begins - 1)
        segment = place(pointers["offset"] + 1, begins - 1)
        pointers |= {"steps_here": place(0, segment)} | ({"high": segment} if "high" in names else {})
    pointers |= {name: place(own[name]) for name in names if name not in pointers}
    turns = place(0)
    return CounterPlaces(pointers, turns, segment, tuple(k for k in idle if found.body[k][0].args))


def _idle(kernel: Kernel, found: PipelinedLoop) -> list[int]:
    """The numbers of the lines beside which one more would start, once the loop is under way."""
    isa = load(kernel.isa)
    core, starts, started = InOrder(isa.rules(kernel.order)), list[int](), Counter[int]()
    adds = of_kind(core.rules, "integer")
    for step in _turns(found):
        line = issue(isa, kernel.order, step, found.becomes)
        for x in ((line, adds) if kernel.active_scalar_pass else (adds, line)) if has_address(isa, step) else (line,):
            core.issue(x)
            started[core.now] += core.rules.width if x.alone else 1
        starts.append(core.now)
    return [k for k, at in enumerate(starts[-len(found.body) :]) if started[at] < core.rules.width]


def _turns(found: PipelinedLoop) -> Iterable[Step]:
    return (step for _ in range(WARM_UP_ITERATIONS) for step, _later in found.body)


def is_column(step: Step) -> bool:
    """Whether a load reads columns, not a row."""
    return step.dst[0] == "w"


def pointer_of(step: Step) -> str:
    """The pointer that a load of a step's inputs reads by; high halves of rows have one of their own.

    Compilers would have a pointer to the high half of each row else, and no registers for so many.
    """
    return "column" if is_column(step) else "high" if is_high(step.dst) else "offset"


def has_address(isa: Isa, step: Step) -> bool:
    """Whether a load takes an instruction for its address: broadcasts of rows do, others add two."""
    return not step.args and not is_column(step) and load_kind(isa, step) == "broadcast"


LINE_BYTES = 64
"""Of a cache."""
_LEAST_BYTES = 16
"""Of what a turn reads: of less a line holds that of many turns, and lines are few."""


def prefetch_distance(cpu: CpuTable, kernel: Kernel, size: int) -> int:
    """How many bytes behind it are asked for where turns of a step read `size` bytes a turn; 0 if none are.

    None are of planes that lie apart.
    """
    if not cpu.prefetch_turns or kernel.bit_axis == "outer" or size < _LEAST_BYTES:
        return 0
    return max(LINE_BYTES, cpu.prefetch_turns * size)

"""Where a step's loop counts: beside lines that nothing else starts with, so that it takes no cycles of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from bitsynth.isa.load import Isa, load
from bitsynth.isa.scoreboard import InOrder, of_kind
from bitsynth.isa.step import Step
from bitsynth.kernel.in_order.ahead import TURNS, Ordered
from bitsynth.kernel.in_order.halves import is_high
from bitsynth.kernel.in_order.list_scheduling import issue, load_kind
from bitsynth.kernel.program import Kernel


@dataclass(frozen=True)
class Counted:
    """The numbers of the lines of a turn behind which pointers to rows and columns go on, and behind which it counts.

    Those `left` have room for one more instruction each.
    """

    rows: int
    columns: int
    turns: int
    left: tuple[int, ...]


@lru_cache(maxsize=1 << 10)
def counted(kernel: Kernel, found: Ordered) -> Counted:
    """Where a turn counts: pointers go on behind the last load of its own step; what finds no place comes last."""
    idle, last = _idle(kernel, found), len(found.turns) - 1
    own = [(k, is_column(step)) for k, (step, later) in enumerate(found.turns) if not step.args and not later]

    def place(least: int) -> int:
        k = next((k for k in idle if k >= least), last)
        if k in idle:
            idle.remove(k)
        return k

    rows, columns = (place(max((k for k, side in own if side == want), default=0)) for want in (False, True))
    turns = place(0)
    return Counted(rows, columns, turns, tuple(k for k in idle if found.turns[k][0].args))


def is_column(step: Step) -> bool:
    """Whether a load reads columns, not a row."""
    return step.dst[0] == "w"


def _idle(kernel: Kernel, found: Ordered) -> list[int]:
    """The numbers of the lines beside which one more would start, once the loop is under way."""
    isa = load(kernel.isa)
    core, starts, started = InOrder(isa.rules(kernel.order)), list[int](), Counter[int]()
    adds = of_kind(core.rules, "integer")
    for step in _turns(found):
        line = issue(isa, kernel.order, step, found.becomes)
        for x in (adds, line) if _has_address(isa, step) else (line,):
            core.issue(x)
            started[core.now] += core.rules.width if x.alone else 1
        starts.append(core.now)
    return [k for k, at in enumerate(starts[-len(found.turns) :]) if started[at] == 1]


def _turns(found: Ordered) -> Iterable[Step]:
    return (step for _ in range(TURNS) for step, _later in found.turns)


def _has_address(isa: Isa, step: Step) -> bool:
    """Whether a load takes an instruction for its address: high halves and broadcasts of rows do, others add two."""
    row = not step.args and not is_column(step)
    return row and (is_high(step.dst) or load_kind(isa, step) == "broadcast")

"""The first turn of an ordered loop, which sets accumulators: it has neither zeros nor what adds to them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import msgspec

from bitsynth.isa.load import load
from bitsynth.isa.step import Step
from bitsynth.kernel.in_order import loop_control
from bitsynth.kernel.in_order.pipelining import PipelinedLoop, peels, write_step
from bitsynth.kernel.program import Kernel, Loop, Pass


@dataclass(frozen=True)
class FirstIteration:
    """The first turn: for each line of any turn its own, or None, and whether that is of the next step.

    `flat` has the lines of its own step, and what accumulators are behind them.
    """

    body: tuple[tuple[Step | None, bool], ...]
    flat: Loop


@lru_cache(maxsize=1 << 10)
def begin_loop(kernel: Kernel, loop: Pass, found: PipelinedLoop) -> FirstIteration | None:
    """The first turn of a loop that is entered once a block; None if it is no other, or differs in more than sums.

    Loops that go on from one segment to the next are entered once; passes that go on with others' sums begin none.
    """
    if peels(kernel) or not loop.step.first or any(p.carries for p in kernel.passes):
        return None
    if loop_control.place_counters(kernel, found).segment is None:
        return None
    isa = load(kernel.isa)
    first = _as_in_turns(*(write_step(isa, kernel, loop, step) for step in (loop.step.first_run, loop.step)))
    if first is None or not _apart(first, found):
        return None
    made = {step.dst: step for step in first.steps}
    turns = tuple((step if later else made.get(step.dst), later) for step, later in found.body)
    lines = [*found.prologue, *(line for line, later in turns if line and not later)]
    flat = msgspec.structs.replace(found.flat, program=tuple(map(str, lines)), accs=first.accs)
    return FirstIteration(turns, flat)


def _as_in_turns(first: Loop, step: Loop) -> Loop | None:
    """The first run by the names that a step has for what both make; None if more than its sums are other lines.

    A sum that is made by another line has the name of the step's.
    """
    known = {(s.op, s.imm, s.args or s.dst): s.dst for s in step.steps}
    becomes = {one.next: every.next for one, every in zip(first.accs, step.accs, strict=True)}
    names, lines = dict[str, str](), list[Step]()
    for s in first.steps:
        args = tuple(names.get(a, a) for a in s.args)
        name = known.get((s.op, s.imm, args or s.dst)) or becomes.get(s.dst)
        if name is None:
            return None
        names[s.dst] = name
        lines.append(Step(name, s.op, args, s.imm))
    accs = tuple(msgspec.structs.replace(acc, next=names[acc.next]) for acc in first.accs)
    return msgspec.structs.replace(first, program=tuple(map(str, lines)), accs=accs)


def _apart(first: Loop, found: PipelinedLoop) -> bool:
    """Whether each sum is a value of its own, which the turn makes itself: not one that the next step's replaces."""
    sums = {acc.next for acc in first.accs}
    return len(sums) == len(first.accs) and sums.isdisjoint(step.dst for step in found.prologue)

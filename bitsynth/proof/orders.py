"""The order of steps for an in-order processor: a few turns of its loop leave what the steps one by one do."""

from __future__ import annotations

from collections.abc import Iterable

from bitsynth.errors import Refuted
from bitsynth.isa.step import Step
from bitsynth.kernel import ahead
from bitsynth.kernel.order import row_by_row
from bitsynth.kernel.program import ORDERS, Kernel, Loop, Pass

_TURNS = 3
"""Turns of a loop behind which nothing new comes: a line reads what its turn or the one before made."""


def check_order(kernel: Kernel) -> None:
    """Refuted unless the steps as they are ordered make the same of every accumulator, turn for turn."""
    if kernel.order in ORDERS:
        return
    for loop in kernel.passes:
        found = ahead.ordered(kernel, loop)
        for turns in range(1, _TURNS + 1):
            known: dict[object, int] = {}
            wanted = _one_by_one(kernel, loop, turns * found.copies, known)
            if _as_ordered(kernel, loop, found, turns, known) != wanted:
                raise Refuted(f"the order for {kernel.order} changes what {turns} turns of a loop leave")


class _Values:
    """Values by their names; what is made of the same by the same has one number in `known`."""

    def __init__(self, flat: Loop, known: dict[object, int]) -> None:
        self.known = known
        self.now = {acc.name: self.of(acc.name) for acc in flat.accs}

    def of(self, what: object) -> int:
        return self.known.setdefault(what, len(self.known))

    def run(self, step: Step, at: object) -> None:
        """Run a line; a load makes what lies `at` its place. Refuted if an operand is not there."""
        absent = [a for a in step.args if a not in self.now and a[0] != "k"]
        if absent:
            raise Refuted(f"{step} reads {absent[0]} before it is made")
        args = tuple(self.now.get(a, a) for a in step.args)
        self.now[step.dst] = self.of((step.op, step.imm, args) if args else (step.op, at))

    def end(self, flat: Loop, carried: Iterable[str]) -> None:
        """End a turn: accumulators become what they are next, and what is not `carried` is gone."""
        self.now = {acc.name: self.now[acc.next] for acc in flat.accs} | {x: self.now[x] for x in carried}


def _one_by_one(kernel: Kernel, loop: Pass, steps: int, known: dict[object, int]) -> list[int]:
    flat = row_by_row(kernel, loop, loop.step)
    values = _Values(flat, known)
    for number in range(steps):
        for step in flat.steps:
            values.run(step, (step.dst, number))
        values.end(flat, ())
    return [values.now[acc.name] for acc in flat.accs]


def _as_ordered(kernel: Kernel, loop: Pass, found: ahead.Ordered, turns: int, known: dict[object, int]) -> list[int]:
    plain = row_by_row(kernel, loop, loop.step).steps
    place = {ahead.copy_of(s.dst, copy): (s.dst, copy) for s in plain for copy in range(found.copies)}

    def at(step: Step, turn: int) -> tuple[str, int]:
        name, copy = place[step.dst]
        return name, turn * found.copies + copy

    values = _Values(found.flat, known)
    for step in found.before:
        values.run(step, at(step, 0))
    for turn in range(turns - 1):
        values.now = {x: v for x, v in values.now.items() if x in found.carried or x.startswith("acc")}
        for step, later in found.turns:
            values.run(step, at(step, turn + later))
        values.end(found.flat, found.carried)
    for step in found.after:
        values.run(step, at(step, turns - 1))
    values.end(found.flat, ())
    return [values.now[acc.name] for acc in found.flat.accs]

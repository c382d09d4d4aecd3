"""The first turn of an ordered loop, which sets accumulators: it has neither zeros nor what adds to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from bitsynth.isa.step import Step
from bitsynth.kernel.in_order import counting
from bitsynth.kernel.in_order.ahead import Ordered, peels
from bitsynth.kernel.in_order.halves import half_of
from bitsynth.kernel.order import row_by_row
from bitsynth.kernel.program import Kernel, Loop, Pass


@dataclass(frozen=True)
class Beginning:
    """The first turn, as it differs from others: lines that it has `instead` of theirs, by what these make.

    None if there is no such line. `flat` has what accumulators are behind that turn.
    """

    instead: Mapping[str, Step | None]
    flat: Loop

    def line(self, step: Step) -> Step | None:
        """What the first turn has for a line of its own step."""
        return self.instead.get(step.dst, step)


def first_run(step: Loop) -> Loop:
    """The first run of a step, which sets its accumulators."""
    accs = tuple(msgspec.structs.replace(acc, next=acc.start, start="") for acc in step.accs)
    return msgspec.structs.replace(step, program=step.first, accs=accs, first=())


@lru_cache(maxsize=1 << 10)
def beginning(kernel: Kernel, loop: Pass, found: Ordered) -> Beginning | None:
    """The first turn of a loop that is entered once a block; None if it is no other, or differs in more than sums.

    Loops that go on from one segment to the next are entered once; passes that go on with others' sums begin none.
    """
    if peels(kernel) or not loop.step.first or any(p.carries for p in kernel.passes):
        return None
    if counting.counted(kernel, found).segment is None:
        return None
    first, step = row_by_row(kernel, loop, first_run(loop.step)), row_by_row(kernel, loop, loop.step)
    names, sums = _names(first, step)
    if sums is None:
        return None
    made = {*names.values(), *sums}
    instead: dict[str, Step | None] = {s.dst: None for s, _ in found.turns if half_of(s.dst)[0] not in made}
    accs = tuple(msgspec.structs.replace(acc, next=names[acc.next]) for acc in first.accs)
    return Beginning(instead | sums, msgspec.structs.replace(found.flat, accs=accs))


def _names(first: Loop, step: Loop) -> tuple[dict[str, str], dict[str, Step] | None]:
    """What the first run makes, by the names that a step has for the same; and sums that it makes of other lines.

    Of these None if other values than sums are made so.
    """
    known = {(s.op, s.imm, s.args or s.dst): s.dst for s in step.steps}
    becomes = {one.next: every.next for one, every in zip(first.accs, step.accs, strict=True)}
    names, sums = dict[str, str](), dict[str, Step]()
    for s in first.steps:
        args = tuple(names.get(a, a) for a in s.args)
        same = known.get((s.op, s.imm, args or s.dst))
        if same is None and s.dst not in becomes:
            return names, None
        names[s.dst] = same or becomes[s.dst]
        if same is None:
            sums[names[s.dst]] = Step(names[s.dst], s.op, args, s.imm)
    return names, sums

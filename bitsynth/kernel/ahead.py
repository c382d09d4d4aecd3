"""A step in the order of an in-order processor: what waits is apart from what it waits for, across steps too.

Some lines, loads first of all, are run a step ahead: the loop has them of the step that follows among those of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from bitsynth.isa.load import Isa, load
from bitsynth.isa.scoreboard import InOrder, Issued, arithmetic, of_kind
from bitsynth.isa.step import Step
from bitsynth.kernel.order import row_by_row
from bitsynth.kernel.program import ORDERS, Kernel, Loop, Pass

_WINDOW, _NEAR = 48, 24
"""Lines that are looked at for the next, of those not yet placed; and where some are of the next step."""

_LINES = 90
"""Lines that a turn of the loop has at least, for what counts and branches is beside them."""

_SPARE = 1
"""Registers that compilers have beside what is alive."""

Turn = tuple[Step, bool]
"""A line, and whether it is that of the next step."""


@dataclass(frozen=True)
class Ordered:
    """Some `copies` of a step, of all rows: the lines of the loop in order; those `ahead` are done when it begins.

    `flat` has the accumulators, and the lines as written. Values of copy 1 on have its number behind their names.
    """

    copies: int
    flat: Loop
    turns: tuple[Turn, ...]

    @property
    def before(self) -> tuple[Step, ...]:
        """What is run once before the loop: the lines of its first step that are ahead."""
        return tuple(step for step, ahead in self.turns if ahead)

    @property
    def after(self) -> tuple[Step, ...]:
        """What is run once behind the loop: the other lines of the last step."""
        return tuple(step for step, ahead in self.turns if not ahead)

    @property
    def carried(self) -> tuple[str, ...]:
        """The values that a step has from the turn before it."""
        read = {a for step in self.after for a in step.args}
        return tuple(step.dst for step in self.before if step.dst in read)


def peels(kernel: Kernel) -> bool:
    """Whether a loop's first run is apart, if it has one: where no line is ahead, as in loops that soon end."""
    return kernel.order in ORDERS or any(len(loop.loops) > 1 for loop in kernel.passes)


@lru_cache(maxsize=1 << 10)
def ordered(kernel: Kernel, loop: Pass) -> Ordered:
    """The step of a pass, several times if it is short, in the order of `kernel.order`.

    That is found by list scheduling, of two steps and then of the loop.

    Of the lines whose operands are made the one comes next that can start first, of those the first as written; one
    that takes a register only if there is one. What of a second step finds a place before the first ends is ahead.
    """
    isa, flat = load(kernel.isa), row_by_row(kernel, loop, loop.step)
    copies = 1 if peels(kernel) else min(-(-_LINES // len(flat.steps)), loop.step.trip_count)
    flat = _repeated(flat, copies)
    plain = listed(isa, kernel, flat)
    if peels(kernel) or _copies_wanted(isa, flat):
        return Ordered(copies, flat, tuple((step, False) for step in plain))
    summed = _of_accumulators(flat)
    behind = [(step, True) for step in plain if step.dst not in summed]
    both = _Scheduler(isa, kernel, flat, (), _NEAR).order([*((step, False) for step in plain), *behind])
    last = max(k for k, (_, ahead) in enumerate(both) if not ahead)
    found = [step for step, ahead in both[:last] if ahead]
    made = {step.dst for step in found}
    rest = [(step, False) for step in plain if step.dst not in made]
    turns = _Scheduler(isa, kernel, flat, found, _NEAR).order([*rest, *((step, True) for step in found)])
    known = (Ordered(copies, flat, tuple(turns)), Ordered(copies, flat, tuple((step, False) for step in plain)))
    return min(known, key=lambda x: _steady(isa, kernel, x))


def listed(isa: Isa, kernel: Kernel, flat: Loop) -> tuple[Step, ...]:
    """The lines of one run, none of them ahead."""
    return tuple(step for step, _ in _Scheduler(isa, kernel, flat, (), _WINDOW).order([(s, False) for s in flat.steps]))


def copy_of(name: str, copy: int) -> str:
    """The name of a value in a copy of the step."""
    return f"{name}_of{copy}" if copy and name[0] != "k" else name


def _repeated(flat: Loop, copies: int) -> Loop:
    """The step `copies` times, each of which goes on from the accumulators of that before it."""
    out, starts = list[Step](), {acc.name: acc.name for acc in flat.accs}
    for copy in range(copies):
        for s in flat.steps:
            args = tuple(starts.get(a, copy_of(a, copy)) for a in s.args)
            out.append(msgspec.structs.replace(s, dst=copy_of(s.dst, copy), args=args))
        starts = {acc.name: copy_of(acc.next, copy) for acc in flat.accs}
    accs = tuple(msgspec.structs.replace(acc, next=starts[acc.name]) for acc in flat.accs)
    return msgspec.structs.replace(flat, program=tuple(map(str, out)), accs=accs)


def _of_accumulators(flat: Loop) -> set[str]:
    """The values that accumulators flow into."""
    found = {acc.name for acc in flat.accs}
    for step in flat.steps:
        if found.intersection(step.args):
            found.add(step.dst)
    return found


def _copies_wanted(isa: Isa, flat: Loop) -> bool:
    """Whether an instruction overwrites what others read: it is copied, and lines ahead find no register."""
    reads = Counter(a for step in flat.steps for a in dict.fromkeys(step.args))
    tied = set[str]()
    for s in flat.steps:
        tied |= {a for a, o in zip(s.args, isa[s.op].operands, strict=False) if o.name in isa[s.op].tied}
    return any(reads[a] > 1 for a in tied if not a.startswith("acc"))


def _steady(isa: Isa, kernel: Kernel, x: Ordered) -> int:
    """The cycles of four turns of the loop."""
    core, becomes = InOrder(isa.rules(kernel.order)), {acc.next: acc.name for acc in x.flat.accs}
    for step in [*x.before, *(step for step, _ in x.turns * 4)]:
        core.issue(issue(isa, kernel, step, becomes))
    return core.now


def issue(isa: Isa, kernel: Kernel, step: Step, becomes: dict[str, str]) -> Issued:
    """What the processor does for a line; addresses are there."""
    dst = becomes.get(step.dst, step.dst)
    if step.args:
        return arithmetic(isa, kernel.order, step.op, [becomes.get(a, a) for a in step.args], dst)
    whole = isa[step.op].operands[0].type.total_bits == isa.table.vector_bits
    return of_kind(isa.rules(kernel.order), "load" if whole else "broadcast", (), [dst])


class _Scheduler:
    """The processor and its registers between two lines; `done` are the lines that are a step ahead at the start."""

    def __init__(self, isa: Isa, kernel: Kernel, flat: Loop, done: Sequence[Step], window: int) -> None:
        self.isa, self.kernel, self.window = isa, kernel, window
        self.core = InOrder(isa.rules(kernel.order))
        self.becomes = {acc.next: acc.name for acc in flat.accs}
        self.kept = {(acc.next, False) for acc in flat.accs}
        self.most = isa.table.registers - len({c.name for c in kernel.constants} & _read(flat.steps))
        self.most -= 0 if peels(kernel) else _SPARE
        self.inputs = {a for s in flat.steps for a in s.args} - {s.dst for s in flat.steps}
        self.done = done
        self.start = [(acc.name, False) for acc in flat.accs if acc.name in _read(flat.steps)]
        for step in done:
            self.core.issue(issue(isa, kernel, step, self.becomes))

    def order(self, lines: Iterable[Turn]) -> list[Turn]:
        """The lines in their order."""
        waiting, out = list(lines), list[Turn]()
        self.issued = {step: issue(self.isa, self.kernel, step, self.becomes) for step, _ in waiting}
        self.readers = Counter((a, ahead) for s, ahead in waiting for a in dict.fromkeys(s.args))
        ends = {a for s, ahead in waiting if not ahead for a in s.args}
        here = {s.dst for s, ahead in waiting if not ahead}
        if self.done:
            self.kept |= {(s.dst, True) for s in self.done if s.dst in ends}
        self.live = {*self.start, *((s.dst, False) for s in self.done if s.dst in ends and s.dst not in here)}
        while waiting:
            ready = [turn for turn in waiting[: self.window] if self._made(turn) and self._free(turn)]
            fit = [turn for turn in ready if self._fits(turn)]
            turn = min(fit, key=self._at) if fit else min(ready, key=lambda t: (t[1], self._taken(t)))
            self.core.issue(self.issued[turn[0]])
            self._run(turn)
            waiting.remove(turn)
            out.append(turn)
        return out

    def _at(self, turn: Turn) -> int:
        return self.core.start(self.issued[turn[0]])

    def _made(self, turn: Turn) -> bool:
        """Whether every operand is there."""
        return all(a in self.inputs or (a, turn[1]) in self.live for a in turn[0].args)

    def _free(self, turn: Turn) -> bool:
        """Whether nobody reads the value of the step before any more."""
        return not turn[1] or self.readers[turn[0].dst, False] == 0

    def _taken(self, turn: Turn) -> int:
        """Registers that are in use after a line and were not before it."""
        return 1 - sum(map(self._last, [(a, turn[1]) for a in dict.fromkeys(turn[0].args)]))

    def _last(self, value: tuple[str, bool]) -> bool:
        return self.readers[value] == 1 and value not in self.kept and value in self.live

    def _fits(self, turn: Turn) -> bool:
        """Whether there is a register for its result."""
        return self._taken(turn) <= 0 or len(self.live) < self.most

    def _run(self, turn: Turn) -> None:
        step, ahead = turn
        for value in [(a, ahead) for a in dict.fromkeys(step.args)]:
            self.readers[value] -= 1
            if self.readers[value] == 0 and value not in self.kept:
                self.live.discard(value)
        self.live.add((step.dst, ahead))


def _read(steps: Iterable[Step]) -> set[str]:
    return {a for step in steps for a in step.args}

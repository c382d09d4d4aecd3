"""List scheduling for an in-order processor: of the lines that can be next the one that starts first.

The scoreboard is its clock, and there are as many values at a time as registers hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bitsynth.isa.load import Isa
from bitsynth.isa.scoreboard import InOrder, Issued, arithmetic, of_kind
from bitsynth.isa.step import Step
from bitsynth.kernel.in_order.folds import in_registers
from bitsynth.kernel.in_order.halves import HALVES, half_of, is_high
from bitsynth.kernel.program import Kernel, Loop, row_free

_SPARE = 3
"""Registers that compilers have beside what is alive: with fewer, they copy and spill."""

_INTEGERS = 4
"""Integer registers for high halves."""

Turn = tuple[Step, bool]
"""A line, and whether it is that of the next step."""

StepValue = tuple[str, bool]
"""The name of a value, and whether it is that of the next step."""


def issue(isa: Isa, cpu: str, step: Step, becomes: Mapping[str, str], address: str = "") -> Issued:
    """What the processor does for a line; a load waits for its `address`, which is there if that is "".

    A join waits for the low half, as it need not: what compilers write in between then holds up less.
    """
    dst, rules = becomes.get(step.dst, step.dst), isa.rules(cpu)
    if not step.args:
        return of_kind(rules, load_kind(isa, step), [address] if address else (), [dst])
    if isa[step.op].store:
        return of_kind(rules, "store", step.args)
    if is_high(step.args[-1]):
        return of_kind(rules, "to_vector", step.args, [dst])
    return arithmetic(isa, cpu, step.op, [becomes.get(a, a) for a in step.args], dst)


def load_kind(isa: Isa, step: Step) -> str:
    """The kind of issue rules that a load is of."""
    if is_high(step.dst):
        return "load_integer"
    instr = isa[step.op]
    if instr.operands[0].type.total_bits < instr.out.total_bits:
        return "broadcast"
    return "load" if instr.out.total_bits == isa.table.vector_bits else "load_half"


@dataclass(eq=False, slots=True)
class _Line:
    """A line that waits: what it takes to ask whether it can be next.

    `reads` are the values that it reads, once each, of them those `needs` that lines make, and `whole` those in vector
    registers. Nobody may read what it `overwrites` any more. A `high` half is in an integer register; one that
    `is_half` takes half of the vector pipes.
    """

    turn: Turn
    issued: Issued
    reads: tuple[StepValue, ...]
    needs: frozenset[StepValue]
    whole: tuple[StepValue, ...]
    makes: StepValue
    overwrites: tuple[StepValue, ...]
    high: bool
    is_half: bool


class ListScheduler:
    """The processor and its registers between two lines; `done` are the lines that are a step ahead at the start."""

    def __init__(self, isa: Isa, kernel: Kernel, flat: Loop, done: Sequence[Step], window: int) -> None:
        self.isa, self.kernel, self.window = isa, kernel, window
        self.core = InOrder(isa.rules(kernel.order))
        self.becomes = flat.becomes
        self.kept = {(acc.next, False) for acc in flat.accs}
        read = {a for s in flat.steps for a in s.args}
        shared = any(row_free(loop.step.steps) for loop in kernel.passes)
        spare = 0 if in_registers(isa, kernel) else 1 if shared else _SPARE
        self.most = isa.table.registers - len({c.name for c in kernel.constants} & read) - spare
        self.inputs = read - {s.dst for s in flat.steps}
        self.done = done
        self.in_halves = any(is_high(s.dst) for s in flat.steps)
        self.start = [(name, False) for name in sorted(self.inputs) if name[0] != "k"]
        for step in done:
            self.core.issue(issue(isa, kernel.order, step, self.becomes))

    def order(self, lines: Iterable[Turn]) -> list[Turn]:
        """The lines in their order."""
        waiting, out = [self._line(turn) for turn in lines], list[Turn]()
        self.readers = Counter(value for line in waiting for value in line.reads)
        ends = {name for line in waiting for name, ahead in line.reads if not ahead}
        here = {name for name, ahead in (line.makes for line in waiting) if not ahead}
        if self.done:
            self.kept |= {(s.dst, True) for s in self.done if s.dst in ends}
        self.live = {*self.start, *((s.dst, False) for s in self.done if s.dst in ends and s.dst not in here)}
        self.held = Counter(half_of(name)[1] for name, _ in self.live)
        while waiting:
            line = self._next(waiting[: self.window])
            self.core.issue(line.issued)
            self._run(line)
            waiting.remove(line)
            out.append(line.turn)
        return out

    def _line(self, turn: Turn) -> _Line:
        step, ahead = turn
        issued = issue(self.isa, self.kernel.order, step, self.becomes)
        reads = tuple((a, ahead) for a in dict.fromkeys(step.args))
        whole, half = half_of(step.dst)
        over = ([step.dst, whole] if half == HALVES[0] else [step.dst]) if ahead else []
        return _Line(
            turn=turn,
            issued=issued,
            reads=reads,
            needs=frozenset(value for value in reads if value[0] not in self.inputs),
            whole=tuple(value for value in reads if not is_high(value[0])),
            makes=(step.dst, ahead),
            overwrites=tuple((name, False) for name in over),
            high=is_high(step.dst),
            is_half=("vector", 1) in issued.takes,
        )

    def _next(self, near: Sequence[_Line]) -> _Line:
        """Of the lines that can be next the first that starts soonest; if there is a register for none, any.

        One that takes half of the vector pipes waits for one beside it: a load for a join, and a join for a load. The
        first load is behind none.
        """
        ready, found, soonest = list[_Line](), list[_Line](), 0
        at_once, live, start_of = self.core.earliest, self.live, self.core.start
        room, high_room = self._room
        for line in near:
            if not line.needs <= live or (line.overwrites and any(self.readers[v] for v in line.overwrites)):
                continue
            ready.append(line)
            if not (high_room if line.high else room or self._taken(line) <= 0):
                continue
            start = start_of(line.issued)
            if not self.in_halves and start <= at_once:
                return line
            if not found or start < soonest:
                found, soonest = [line], start
            elif start == soonest:
                found.append(line)
        if not found:
            return min(ready, key=lambda line: (line.turn[1], self._taken(line)))
        halves = [line for line in found if line.is_half]
        if not halves or not self.core.idle("vector", soonest):
            return found[0]
        loads = [line for line in halves if not line.reads]
        if loads and (len(loads) < len(halves) or not self.held[HALVES[0]]):
            return loads[0]
        return next((line for line in found if not line.is_half), halves[0])

    def _taken(self, line: _Line) -> int:
        """Registers that are in use after a line and were not before it."""
        after = not line.high and self._wanted(line.makes)
        return after - sum(map(self._last, line.whole))

    def _last(self, value: StepValue) -> bool:
        return self.readers[value] == 1 and value not in self.kept and value in self.live

    @property
    def _room(self) -> tuple[bool, bool]:
        """Whether there is a register for one more result in vector registers, and for one more high half."""
        return self.held[""] + self.held[HALVES[0]] < self.most, self.held[HALVES[1]] < _INTEGERS

    def _run(self, line: _Line) -> None:
        for value in line.reads:
            self.readers[value] -= 1
            if self.readers[value] == 0 and value not in self.kept:
                self._hold(value, False)
        if self._wanted(line.makes):
            self._hold(line.makes, True)

    def _hold(self, value: StepValue, holds: bool) -> None:
        """Note that a register holds the value, or that it does no more."""
        if holds != (value in self.live):
            self.held[half_of(value[0])[1]] += 1 if holds else -1
            (self.live.add if holds else self.live.discard)(value)

    def _wanted(self, value: StepValue) -> bool:
        """Whether a line reads the value, or the next turn has it."""
        return self.readers[value] > 0 or value in self.kept

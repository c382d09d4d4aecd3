"""List scheduling for an in-order processor: of the lines that can be next the one that starts first.

The scoreboard is its clock, and there are as many values at a time as registers hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from bitsynth.isa.load import Isa
from bitsynth.isa.scoreboard import InOrder, Issued, arithmetic, of_kind
from bitsynth.isa.step import Step
from bitsynth.kernel.folds import in_registers
from bitsynth.kernel.halves import HALVES, half_of, is_high
from bitsynth.kernel.program import Kernel, Loop, row_free

_SPARE = 3
"""Registers that compilers have beside what is alive: with fewer, they copy and spill."""

_INTEGERS = 4
"""Integer registers for high halves."""

Turn = tuple[Step, bool]
"""A line, and whether it is that of the next step."""


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


class ListScheduler:
    """The processor and its registers between two lines; `done` are the lines that are a step ahead at the start."""

    def __init__(self, isa: Isa, kernel: Kernel, flat: Loop, done: Sequence[Step], window: int) -> None:
        self.isa, self.kernel, self.window = isa, kernel, window
        self.core = InOrder(isa.rules(kernel.order))
        self.becomes = {acc.next: acc.name for acc in flat.accs}
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
        waiting, out = list(lines), list[Turn]()
        self.issued = {step: issue(self.isa, self.kernel.order, step, self.becomes) for step, _ in waiting}
        self.readers = Counter((a, ahead) for s, ahead in waiting for a in dict.fromkeys(s.args))
        ends = {a for s, ahead in waiting if not ahead for a in s.args}
        here = {s.dst for s, ahead in waiting if not ahead}
        if self.done:
            self.kept |= {(s.dst, True) for s in self.done if s.dst in ends}
        self.live = {*self.start, *((s.dst, False) for s in self.done if s.dst in ends and s.dst not in here)}
        self.held = Counter(half_of(name)[1] for name, _ in self.live)
        while waiting:
            turn = self._next(waiting[: self.window])
            self.core.issue(self.issued[turn[0]])
            self._run(turn)
            waiting.remove(turn)
            out.append(turn)
        return out

    def _next(self, near: Sequence[Turn]) -> Turn:
        """Of the lines that can be next the first that starts soonest; if there is a register for none, any.

        One that takes half of the vector pipes waits for one beside it: a load for a join, and a join for a load. The
        first load is behind none.
        """
        ready, starts = list[Turn](), dict[Turn, int]()
        for turn in near:
            if self._made(turn) and self._free(turn):
                ready.append(turn)
                if self._fits(turn):
                    starts[turn] = self.core.start(self.issued[turn[0]])
                    if not self.in_halves and starts[turn] <= self.core.earliest:
                        return turn
        if not starts:
            return min(ready, key=lambda t: (t[1], self._taken(t)))
        soonest = min(starts.values())
        found = [turn for turn, at in starts.items() if at == soonest]
        halves = [turn for turn in found if ("vector", 1) in self.issued[turn[0]].takes]
        if not halves or not self.core.idle("vector", soonest):
            return found[0]
        loads = [turn for turn in halves if not turn[0].args]
        if loads and (len(loads) < len(halves) or not self.held[HALVES[0]]):
            return loads[0]
        return next((turn for turn in found if turn not in halves), halves[0])

    def _made(self, turn: Turn) -> bool:
        """Whether every operand is there."""
        return all(a in self.inputs or (a, turn[1]) in self.live for a in turn[0].args)

    def _free(self, turn: Turn) -> bool:
        """Whether nobody reads the value of the step before any more; a low half is loaded into its register."""
        name = turn[0].dst
        whole, half = half_of(name)
        read = [name, whole] if half == HALVES[0] else [name]
        return not turn[1] or all(self.readers[x, False] == 0 for x in read)

    def _taken(self, turn: Turn) -> int:
        """Registers that are in use after a line and were not before it."""
        step, ahead = turn
        after = self._wanted((step.dst, ahead)) and not is_high(step.dst)
        return after - sum(self._last((a, ahead)) for a in dict.fromkeys(step.args) if not is_high(a))

    def _last(self, value: tuple[str, bool]) -> bool:
        return self.readers[value] == 1 and value not in self.kept and value in self.live

    def _fits(self, turn: Turn) -> bool:
        """Whether there is a register for its result."""
        if is_high(turn[0].dst):
            return self.held[HALVES[1]] < _INTEGERS
        return self._taken(turn) <= 0 or self.held[""] + self.held[HALVES[0]] < self.most

    def _run(self, turn: Turn) -> None:
        step, ahead = turn
        for value in [(a, ahead) for a in dict.fromkeys(step.args)]:
            self.readers[value] -= 1
            if self.readers[value] == 0 and value not in self.kept:
                self._hold(value, False)
        if self._wanted((step.dst, ahead)):
            self._hold((step.dst, ahead), True)

    def _hold(self, value: tuple[str, bool], holds: bool) -> None:
        """Note that a register holds the value, or that it does no more."""
        if holds != (value in self.live):
            self.held[half_of(value[0])[1]] += 1 if holds else -1
            (self.live.add if holds else self.live.discard)(value)

    def _wanted(self, value: tuple[str, bool]) -> bool:
        """Whether a line reads the value, or the next turn has it."""
        return self.readers[value] > 0 or value in self.kept

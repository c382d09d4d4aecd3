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
from bitsynth.kernel.halves import HALVES, half_of
from bitsynth.kernel.program import Kernel, Loop, row_free

_SPARE = 3
"""Registers that compilers have beside what is alive: with fewer, they copy and spill."""

Turn = tuple[Step, bool]
"""A line, and whether it is that of the next step."""


def issue(isa: Isa, kernel: Kernel, step: Step, becomes: Mapping[str, str]) -> Issued:
    """What the processor does for a line; addresses are there."""
    dst = becomes.get(step.dst, step.dst)
    if step.args and isa[step.op].store:
        return of_kind(isa.rules(kernel.order), "store", step.args)
    if step.args:
        return arithmetic(isa, kernel.order, step.op, [becomes.get(a, a) for a in step.args], dst)
    return of_kind(isa.rules(kernel.order), load_kind(isa, step.op), (), [dst])


def load_kind(isa: Isa, op: str) -> str:
    """The kind of issue rules that the load `op` is of."""
    instr = isa[op]
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
        self.start = [(name, False) for name in sorted(self.inputs) if name[0] != "k"]
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
            turn = self._next(waiting[: self.window])
            self.core.issue(self.issued[turn[0]])
            self._run(turn)
            waiting.remove(turn)
            out.append(turn)
        return out

    def _next(self, near: Sequence[Turn]) -> Turn:
        """Of the lines that can be next the first that starts soonest; if there is a register for none, any."""
        found, soonest, ready = None, 0, list[Turn]()
        for turn in near:
            if not self._made(turn) or not self._free(turn):
                continue
            ready.append(turn)
            if self._fits(turn):
                at = self.core.start(self.issued[turn[0]])
                if found is None or at < soonest:
                    found, soonest = turn, at
                if soonest <= self.core.earliest:
                    break
        return found or min(ready, key=lambda t: (t[1], self._taken(t)))

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
        return self._wanted((step.dst, ahead)) - sum(self._last((a, ahead)) for a in dict.fromkeys(step.args))

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
        if self._wanted((step.dst, ahead)):
            self.live.add((step.dst, ahead))

    def _wanted(self, value: tuple[str, bool]) -> bool:
        """Whether a line reads the value, or the next turn has it."""
        return self.readers[value] > 0 or value in self.kept

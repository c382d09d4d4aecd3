"""List scheduling for an in-order processor: of the lines that can be next the one that starts first.

The scoreboard is its clock, and there are as many values at a time as registers hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from bitsynth.isa.load import Isa
from bitsynth.isa.scoreboard import InOrder, Issued, arithmetic, of_kind
from bitsynth.isa.step import Step
from bitsynth.kernel.in_order.folds import in_registers, outer_accs
from bitsynth.kernel.in_order.halves import HALVES, WORDS, half_of, in_word, is_join
from bitsynth.kernel.order import vector_accs
from bitsynth.kernel.program import Kernel, Loop, row_free

_SPARE = 3
"""Registers that compilers have beside what is alive: with fewer, they copy and spill.

One more in kernels of several passes, and where half of all registers are sums; one less if loops are nested, whose
turns end soon: so lookups take 3 to 7 % less. One alone where rows share values, none where registers hold the sums of
outer loops.
"""

_HIGH_HALVES, _HIGH_BESIDE = 4, 2
"""General-purpose registers for high halves, and where a last row has its own program."""

_NEAR = 12
"""Lines of that program that are looked at for the next: of more, more columns would be begun than registers hold."""

_GENERAL, _POINTERS = 31, 9
"""General-purpose registers, and those for what is counted and pointed to, beside a pointer a row."""

Turn = tuple[Step, bool]
"""A line, and whether it is that of the next step."""

StepValue = tuple[str, bool]
"""The name of a value, and whether it is that of the next step."""


def general_registers(taken: int) -> int:
    """General-purpose registers that nothing is counted in, beside so many that are taken."""
    return _GENERAL - _POINTERS - taken


def issue(isa: Isa, cpu: str, step: Step, becomes: Mapping[str, str], address: str = "") -> Issued:
    """What the processor does for a line; a load waits for its `address`, which is there if that is "".

    A join waits for the low half, as it need not: what compilers write in between then holds up less.
    """
    dst, rules = becomes.get(step.dst, step.dst), isa.rules(cpu)
    if not step.args:
        return of_kind(rules, load_kind(isa, step), [address] if address else (), [dst])
    if isa[step.op].store:
        return of_kind(rules, "store", step.args)
    if is_join(step) or (isa[step.op].operands[-1].type.in_general and not isa[step.op].out.in_general):
        return of_kind(rules, "to_vector", [becomes.get(a, a) for a in step.args], [dst])
    return arithmetic(isa, cpu, step.op, [becomes.get(a, a) for a in step.args], dst)


def load_kind(isa: Isa, step: Step) -> str:
    """The kind of issue rules that a load is of."""
    if in_word(step.dst):
        return "load_integer"
    instr = isa[step.op]
    if instr.operands[0].type.total_bits < instr.out.total_bits:
        return "broadcast"
    return "load" if instr.out.total_bits == isa.table.vector_bits else "load_half"


def _words(isa: Isa, flat: Loop) -> Iterator[str]:
    """The values of lines that are in general-purpose registers, of accumulators too."""
    for step in flat.steps:
        if step.args and not isa[step.op].store:
            pairs = zip(
                (*step.args, step.dst), (*(o.type for o in isa[step.op].operands), isa[step.op].out), strict=True
            )
            yield from (name for name, kind in pairs if kind.in_general)


def _left(isa: Isa, kernel: Kernel, flat: Loop) -> int:
    """Registers that values of lines are not in: those of outer sums beside a step's, else what compilers have."""
    if in_registers(isa, kernel):
        return max(len(outer_accs(loop)) for loop in kernel.passes) * kernel.groups if flat.accs else 0
    if any(row_free(loop.step.steps) for loop in kernel.passes):
        return 1
    if kernel.nests:
        return _SPARE - 1
    return _SPARE + (len(kernel.passes) > 1 or 2 * vector_accs(flat.accs) >= isa.table.registers)


class _Held(Enum):
    """What registers hold: of vectors, whole ones or low halves; else high halves, or words that are loaded or made."""

    WHOLE, LOW, HIGH, WORD, MADE = range(5)


_LOADED, _OWN = (_Held.HIGH, _Held.WORD), (_Held.WORD, _Held.MADE)
"""What loads bring to general-purpose registers, and what a last row's own program has there."""


@dataclass(eq=False, slots=True)
class _Line:
    """A line that waits: what it takes to ask whether it can be next.

    `reads` are the values that it reads, once each, of them those `needs` that lines make, and those `alike` that are
    in registers of the `kind` that it makes its own in. Nobody may read what it `overwrites` any more. One that
    `is_half` takes half of the vector pipes. Behind it the `address` of another load is made, if it has one.
    """

    turn: Turn
    issued: Issued
    reads: tuple[StepValue, ...]
    needs: frozenset[StepValue]
    alike: tuple[StepValue, ...]
    makes: StepValue
    overwrites: tuple[StepValue, ...]
    kind: _Held
    is_half: bool
    address: Issued | None


class ListScheduler:
    """The processor and its registers between two lines; `done` are the lines that are a step ahead at the start."""

    def __init__(self, isa: Isa, kernel: Kernel, flat: Loop, done: Sequence[Step], window: int) -> None:
        self.isa, self.kernel, self.window = isa, kernel, window
        self.core = InOrder(isa.rules(kernel.order))
        self.becomes = flat.becomes
        self.kept = {(acc.next, False) for acc in flat.accs}
        read = {a for s in flat.steps for a in s.args}
        constants = len({c.name for c in kernel.constants} & read)
        self.most = isa.table.registers - constants - _left(isa, kernel, flat)
        self.inputs = read - {s.dst for s in flat.steps}
        self.done = done
        self.general = {s.dst for s in flat.steps if in_word(s.dst)} | set(_words(isa, flat))
        self.most_general = general_registers(kernel.groups) if kernel.own_last else _HIGH_HALVES
        self.most_high = _HIGH_BESIDE if kernel.own_last else _HIGH_HALVES
        self.in_halves = any(map(is_join, flat.steps))
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
        self.held = Counter(self._kind(name) for name, _ in self.live)
        while waiting:
            line = self._next(self._near(waiting)) or self._next(waiting)
            assert line is not None, "lines wait for each other"
            self.core.issue(line.issued)
            if line.address:
                self.core.issue(line.address)
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
            alike=tuple(value for value in reads if (value[0] in self.general) == (step.dst in self.general)),
            makes=(step.dst, ahead),
            overwrites=tuple((name, False) for name in over),
            kind=self._kind(step.dst),
            is_half=("vector", 1) in issued.takes,
            address=self._address(step),
        )

    def _address(self, step: Step) -> Issued | None:
        """What makes the address of a load, if slots for that may be missing."""
        if self.kernel.own_last is None or step.args or load_kind(self.isa, step) != "broadcast":
            return None
        return of_kind(self.core.rules, "integer", (), [])

    def _near(self, waiting: Sequence[_Line]) -> Sequence[_Line]:
        """The lines that are looked at: the first, and as many of those beside the others, whose turn is any time."""
        if self.kernel.own_last is None:
            return waiting[: self.window]
        return [
            line
            for own in (False, True)
            for line in islice((x for x in waiting if (x.kind in _OWN) == own), _NEAR if own else self.window)
        ]

    def _next(self, near: Sequence[_Line]) -> _Line | None:
        """Of the lines that can be next the first that starts soonest; if there is a register for none, any.

        None if all wait for others.

        One that takes half of the vector pipes waits for one beside it: a load for a join, and a join for a load. The
        first load is behind none.
        """
        ready, found, soonest = list[_Line](), list[_Line](), 0
        at_once, live, start_of = self.core.earliest, self.live, self.core.start
        room = self._room
        for line in near:
            if not line.needs <= live or (line.overwrites and any(self.readers[v] for v in line.overwrites)):
                continue
            ready.append(line)
            if not room[line.kind] and (line.kind in _LOADED or self._taken(line) > 0):
                continue
            start = start_of(line.issued)
            if not self.in_halves and start <= at_once:
                return line
            if not found or start < soonest:
                found, soonest = [line], start
            elif start == soonest:
                found.append(line)
        if not found:
            return min(ready, key=lambda line: (line.turn[1], self._taken(line)), default=None)
        found = [line for line in found if line.kind not in _OWN] or found
        halves = [line for line in found if line.is_half]
        if not halves or not self.core.idle("vector", soonest):
            return found[0]
        loads = [line for line in halves if not line.reads]
        if loads and (len(loads) < len(halves) or not self.held[_Held.LOW]):
            return loads[0]
        return next((line for line in found if not line.is_half), halves[0])

    def _taken(self, line: _Line) -> int:
        """Registers of the kind that it makes its own in that are in use after a line and were not before it."""
        return (line.kind not in _LOADED and self._wanted(line.makes)) - sum(map(self._last, line.alike))

    def _last(self, value: StepValue) -> bool:
        return self.readers[value] == 1 and value not in self.kept and value in self.live

    @property
    def _room(self) -> dict[_Held, bool]:
        """Whether there is a register for one more value. A word that is loaded leaves one for what is made of it."""
        held = self.held
        vector = held[_Held.WHOLE] + held[_Held.LOW] < self.most
        free = self.most_general - held[_Held.HIGH] - held[_Held.WORD] - held[_Held.MADE]
        high = free > 0 and held[_Held.HIGH] < self.most_high
        of_general = {_Held.HIGH: high, _Held.WORD: free > 1, _Held.MADE: free > 0}
        return {_Held.WHOLE: vector, _Held.LOW: vector, **of_general}

    def _kind(self, name: str) -> _Held:
        """What a register holds that has the value."""
        half = half_of(name)[1]
        if name not in self.general:
            return _Held.LOW if half == HALVES[0] else _Held.WHOLE
        return _Held.HIGH if half == HALVES[1] else _Held.WORD if half in WORDS else _Held.MADE

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
            self.held[self._kind(value[0])] += 1 if holds else -1
            (self.live.add if holds else self.live.discard)(value)

    def _wanted(self, value: StepValue) -> bool:
        """Whether a line reads the value, or the next turn has it."""
        return self.readers[value] > 0 or value in self.kept

"""List scheduling for an in-order processor: the next instruction is the ready one that can start first.

An in-order processor stops at an instruction whose operands are not there yet, and everything behind it waits. So the
instructions of a step, for all rows, are put in an order in which each finds its operands. `ListScheduler` takes
one instruction after the other from a list: of those within a window that are ready (all operands computed) and that
find a register for their result it takes the one that can start first, by the scoreboard (`isa/scoreboard.py`), which
is its clock. Between equals the order of the list decides.

Given (a load takes 3 cycles)    Result
    a0 = load                        a0 = load
    t0 = eor a0 w0                   a1 = load
    a1 = load                        (t0 waits for a0 alone)
    t1 = eor a1 w0                   t0 = eor a0 w0
                                     t1 = eor a1 w0

`pipelining.py` calls it with the instructions of two steps, so that some of the second begin during the first.
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
from bitsynth.isa.value import Part, Value
from bitsynth.kernel.in_order.folds import in_registers, outer_accs
from bitsynth.kernel.in_order.halves import is_join
from bitsynth.kernel.order import vector_accs
from bitsynth.kernel.program import Kernel, Loop, row_free

_SPARE_VECTORS = 3
"""Vector registers that the schedule leaves to the compiler: with fewer, compilers copy and spill.

`_spare_vectors` has the exceptions. With one less where loops are nested, whose innermost loop soon ends, lookup
kernels take 3 to 7 % less.
"""

_MAX_HIGH_HALVES, _MAX_HIGH_HALVES_BY_SCALAR = 4, 2
"""General-purpose registers that hold high halves of vectors, at most; and if a scalar pass needs registers too."""

_SCALAR_LOOKAHEAD = 12
"""Look-ahead window for the scalar pass; a larger one would start more columns than fit in registers."""

_GENERAL_REGISTERS, _COUNTERS = 31, 9
"""General-purpose registers of the processor, and registers of counters and pointers, without the pointer of each
row."""

LoopInstruction = tuple[Step, bool]
"""An instruction of a loop's body, and whether it belongs to the next step: it is issued ahead."""

StepValue = tuple[Value, bool]
"""A value, and whether it belongs to the next step."""


def general_registers(taken: int) -> int:
    """Return how many general-purpose registers are free if `taken` hold values, besides counters and pointers."""
    return _GENERAL_REGISTERS - _COUNTERS - taken


def issue(isa: Isa, cpu: str, step: Step, becomes: Mapping[Value, Value], address: str = "") -> Issued:
    """Return how the scoreboard of `cpu` sees an instruction.

    `becomes` renames the next values of accumulators to the accumulators. A load waits for the register `address`; ""
    is an address that is always there. A join of two halves is made to wait for the low half, which it need not:
    instructions that compilers write in between then hold up less.
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
    """Return the kind of issue rules that a load falls under."""
    if step.dst.part.in_general:
        return "load_integer"
    instr = isa[step.op]
    if instr.operands[0].type.total_bits < instr.out.total_bits:
        return "broadcast"
    return "load" if instr.out.total_bits == isa.table.vector_bits else "load_half"


def _scalar_values(isa: Isa, flat: Loop) -> Iterator[Value]:
    """Yield the operands and results that are in general-purpose registers, accumulators included."""
    for step in flat.steps:
        if step.args and not isa[step.op].store:
            pairs = zip(
                (*step.args, step.dst), (*(o.type for o in isa[step.op].operands), isa[step.op].out), strict=True
            )
            yield from (name for name, kind in pairs if kind.in_general)


def _spare_vectors(isa: Isa, kernel: Kernel, flat: Loop) -> int:
    """Return how many vector registers the schedule leaves free.

    If registers hold the accumulators of outer loops, exactly these; one where rows share values; else _SPARE_VECTORS:
    one less where loops are nested, one more where there are several passes or half of all registers are accumulators.
    """
    if in_registers(isa, kernel):
        return max(len(outer_accs(loop)) for loop in kernel.passes) * kernel.groups if flat.accs else 0
    if any(row_free(loop.step.steps) for loop in kernel.passes):
        return 1
    if kernel.nests:
        return _SPARE_VECTORS - 1
    return _SPARE_VECTORS + (len(kernel.passes) > 1 or 2 * vector_accs(flat.accs) >= isa.table.registers)


class _RegisterUse(Enum):
    """The use of a register.

    Vector registers hold VECTOR, a whole value, or LOW_HALF, the half of a load that waits to be joined.
    General-purpose registers hold HIGH_HALF, the other half of such a load; WORD, a half that a scalar pass loads; or
    SCALAR, a value that it computes.
    """

    VECTOR, LOW_HALF, HIGH_HALF, WORD, SCALAR = range(5)


_LOADED_TO_GENERAL = (_RegisterUse.HIGH_HALF, _RegisterUse.WORD)
_OF_SCALAR_PASS = (_RegisterUse.WORD, _RegisterUse.SCALAR)


@dataclass(eq=False, slots=True)
class _Candidate:
    """An instruction that waits to be placed, with what the scheduler asks about it.

    Attributes:
        reads: The values that it reads, once each.
        needs: The values of `reads` that other instructions compute.
        same_class: The values of `reads` that are in the class of registers (vector, general-purpose) of its result.
        makes: Its result.
        overwrites: Values of the step before, which have the name of its result: nobody may still read them.
        use: The use of the register for its result.
        takes_half: Whether it takes half of the vector pipes.
        address: The instruction that computes the address of the next load, if issue slots for it may be missing.
    """

    instruction: LoopInstruction
    issued: Issued
    reads: tuple[StepValue, ...]
    needs: frozenset[StepValue]
    same_class: tuple[StepValue, ...]
    makes: StepValue
    overwrites: tuple[StepValue, ...]
    use: _RegisterUse
    takes_half: bool
    address: Issued | None


class ListScheduler:
    """Schedules the instructions of a step on a scoreboard, with as many values at a time as there are registers.

    `flat` has the accumulators; `issued_ahead` are the instructions of the step that run before the loop; `window` is
    the number of waiting instructions, from the first on, among which the next one is chosen.
    """

    def __init__(self, isa: Isa, kernel: Kernel, flat: Loop, issued_ahead: Sequence[Step], window: int) -> None:
        self.isa, self.kernel, self.window = isa, kernel, window
        self.core = InOrder(isa.rules(kernel.order))
        self.becomes = flat.becomes
        self.outlives = {(acc.next, False) for acc in flat.accs}
        read = {a for s in flat.steps for a in s.args}
        constants = len({c.name for c in kernel.constants} & read)
        self.max_vectors = isa.table.registers - constants - _spare_vectors(isa, kernel, flat)
        self.inputs = read - {s.dst for s in flat.steps}
        self.issued_ahead = issued_ahead
        self.scalars = {s.dst for s in flat.steps if s.dst.part.in_general} | set(_scalar_values(isa, flat))
        by_scalar = kernel.active_scalar_pass is not None
        self.max_general = general_registers(kernel.groups) if by_scalar else _MAX_HIGH_HALVES
        self.max_high_halves = _MAX_HIGH_HALVES_BY_SCALAR if by_scalar else _MAX_HIGH_HALVES
        self.loads_in_halves = any(map(is_join, flat.steps))
        self.start = [(name, False) for name in sorted(self.inputs) if not name.is_constant]
        for step in issued_ahead:
            self.core.issue(issue(isa, kernel.order, step, self.becomes))

    def order(self, instructions: Iterable[LoopInstruction]) -> list[LoopInstruction]:
        """Return the instructions in the order of their schedule."""
        waiting, out = [self._candidate(x) for x in instructions], list[LoopInstruction]()
        self.readers = Counter(value for x in waiting for value in x.reads)
        read_here = {name for x in waiting for name, ahead in x.reads if not ahead}
        made_here = {name for name, ahead in (x.makes for x in waiting) if not ahead}
        carried = [s.dst for s in self.issued_ahead if s.dst in read_here]
        self.outlives |= {(name, True) for name in carried}
        self.live = {*self.start, *((name, False) for name in carried if name not in made_here)}
        self.used = Counter(self._use(name) for name, _ in self.live)
        while waiting:
            chosen = self._next(self._in_window(waiting)) or self._next(waiting)
            assert chosen is not None, "instructions wait for each other"
            self.core.issue(chosen.issued)
            if chosen.address:
                self.core.issue(chosen.address)
            self._update_live(chosen)
            waiting.remove(chosen)
            out.append(chosen.instruction)
        return out

    def _candidate(self, instruction: LoopInstruction) -> _Candidate:
        step, ahead = instruction
        issued = issue(self.isa, self.kernel.order, step, self.becomes)
        reads = tuple((a, ahead) for a in dict.fromkeys(step.args))
        overwritten = dict.fromkeys([step.dst, step.dst.whole] if step.dst.part is Part.LOW else [step.dst])
        return _Candidate(
            instruction=instruction,
            issued=issued,
            reads=reads,
            needs=frozenset(value for value in reads if value[0] not in self.inputs),
            same_class=tuple(value for value in reads if (value[0] in self.scalars) == (step.dst in self.scalars)),
            makes=(step.dst, ahead),
            overwrites=tuple((name, False) for name in overwritten if ahead),
            use=self._use(step.dst),
            takes_half=("vector", 1) in issued.takes,
            address=self._address(step),
        )

    def _address(self, step: Step) -> Issued | None:
        """Return the instruction that computes a load's address; None unless a scalar pass competes for its slot."""
        if self.kernel.active_scalar_pass is None or step.args or load_kind(self.isa, step) != "broadcast":
            return None
        return of_kind(self.core.rules, "integer", (), [])

    def _in_window(self, waiting: Sequence[_Candidate]) -> Sequence[_Candidate]:
        """Return the first waiting instructions: `window` of them, and _SCALAR_LOOKAHEAD of a scalar pass.

        Instructions of the scalar pass have a window of their own, since they may come at any time.
        """
        if self.kernel.active_scalar_pass is None:
            return waiting[: self.window]
        return [
            x
            for scalar, size in ((False, self.window), (True, _SCALAR_LOOKAHEAD))
            for x in islice((x for x in waiting if (x.use in _OF_SCALAR_PASS) == scalar), size)
        ]

    def _next(self, window: Sequence[_Candidate]) -> _Candidate | None:
        """Return the next instruction of a window; None if all wait for operands.

        Of the instructions that find a register, the one that starts soonest; if none does, the one that needs fewest.
        """
        ready, soonest, start = list[_Candidate](), list[_Candidate](), 0
        free = self._free_registers
        for x in window:
            if not self._is_ready(x):
                continue
            ready.append(x)
            if not free[x.use] and (x.use in _LOADED_TO_GENERAL or self._pressure(x) > 0):
                continue
            at = self.core.start(x.issued)
            if at <= self.core.earliest and not self.loads_in_halves:
                return x
            if not soonest or at < start:
                soonest, start = [x], at
            elif at == start:
                soonest.append(x)
        if not soonest:
            return min(ready, key=lambda x: (x.instruction[1], self._pressure(x)), default=None)
        return self._pair_halves(_prefer_vectors(soonest), start)

    def _is_ready(self, x: _Candidate) -> bool:
        """Return whether all operands are computed, and the overwritten values have no more readers."""
        return x.needs <= self.live and not (x.overwrites and any(self.readers[v] for v in x.overwrites))

    def _pair_halves(self, soonest: Sequence[_Candidate], start: int) -> _Candidate:
        """Choose one of the instructions that can start in the cycle `start`.

        If all vector pipes are idle, two instructions that use half of them are issued together: a load of a half
        waits for a join, and a join for a load, except for the first load. Else the first is taken.
        """
        halves = [x for x in soonest if x.takes_half]
        if not halves or not self.core.idle("vector", start):
            return soonest[0]
        loads = [x for x in halves if not x.reads]
        has_join = len(loads) < len(halves)
        is_first_load = not self.used[_RegisterUse.LOW_HALF]
        if loads and (has_join or is_first_load):
            return loads[0]
        return next((x for x in soonest if not x.takes_half), halves[0])

    def _pressure(self, x: _Candidate) -> int:
        """Return how many more registers of its class are in use after the instruction than before it."""
        taken = x.use not in _LOADED_TO_GENERAL and self._is_wanted(x.makes)
        return taken - sum(map(self._is_last_read, x.same_class))

    def _is_last_read(self, value: StepValue) -> bool:
        return self.readers[value] == 1 and value not in self.outlives and value in self.live

    @property
    def _free_registers(self) -> dict[_RegisterUse, bool]:
        """Whether one more register is free, for each use. A WORD leaves one register for its result."""
        use, used = _RegisterUse, self.used
        vector = used[use.VECTOR] + used[use.LOW_HALF] < self.max_vectors
        free = self.max_general - used[use.HIGH_HALF] - used[use.WORD] - used[use.SCALAR]
        high = free > 0 and used[use.HIGH_HALF] < self.max_high_halves
        return {
            use.VECTOR: vector,
            use.LOW_HALF: vector,
            use.HIGH_HALF: high,
            use.WORD: free > 1,
            use.SCALAR: free > 0,
        }

    def _use(self, value: Value) -> _RegisterUse:
        """Return the use of the register that holds a value."""
        if value not in self.scalars:
            return _RegisterUse.LOW_HALF if value.part is Part.LOW else _RegisterUse.VECTOR
        if value.part is Part.HIGH:
            return _RegisterUse.HIGH_HALF
        return _RegisterUse.WORD if value.part.is_word else _RegisterUse.SCALAR

    def _update_live(self, x: _Candidate) -> None:
        """End the live ranges of values that `x` reads last, and begin its result's live range."""
        for value in x.reads:
            self.readers[value] -= 1
            if self.readers[value] == 0 and value not in self.outlives:
                self._set_live(value, False)
        if self._is_wanted(x.makes):
            self._set_live(x.makes, True)

    def _set_live(self, value: StepValue, live: bool) -> None:
        if live != (value in self.live):
            self.used[self._use(value[0])] += 1 if live else -1
            (self.live.add if live else self.live.discard)(value)

    def _is_wanted(self, value: StepValue) -> bool:
        """Return whether an instruction still reads the value, or the next iteration does."""
        return self.readers[value] > 0 or value in self.outlives


def _prefer_vectors(candidates: Sequence[_Candidate]) -> Sequence[_Candidate]:
    """Return the candidates that are not of the scalar pass; all, if there are only such."""
    return [x for x in candidates if x.use not in _OF_SCALAR_PASS] or candidates

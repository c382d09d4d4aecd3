"""Software pipelining for an in-order processor: some instructions of a step run during the step before it.

A step loads its inputs, computes with them, and adds to accumulators; each part waits for the one before. While one
step waits, instructions of the next can run. `pipeline_loop` moves instructions, loads first of all, one step ahead:

Given, for every step k                Result
    a = load; t = eor a w; acc += t        a(0) = load                                   prologue
                                           for every step k but the last:                body
                                               t = eor a(k) w; a(k + 1) = load; acc += t
                                           t = eor a w; acc += t                         tail

The order within the body is found by list scheduling (`list_scheduling.py`) of the instructions of two steps together;
instructions of the second step that find a place before the first step ends are issued ahead. Short steps are first
repeated until the body is long enough to hide the loop's own instructions. Several such orders are tried, and the
scoreboard counts their cycles. `proof/orders.py` proves that the chosen order computes the same as the steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from bitsynth.isa import scoreboard
from bitsynth.isa.load import Isa, load
from bitsynth.isa.scoreboard import InOrder, busy
from bitsynth.isa.step import Step
from bitsynth.isa.value import Part, Value
from bitsynth.kernel.in_order.folds import in_registers
from bitsynth.kernel.in_order.halves import is_join, split_loads
from bitsynth.kernel.in_order.list_scheduling import ListScheduler, LoopInstruction, issue
from bitsynth.kernel.order import interleave, row_by_row, vector_accs
from bitsynth.kernel.program import ORDERS, Kernel, Loop, Pass, row_free

_WINDOW = 48
"""Look-ahead window of the list scheduler for instructions of one step."""

_PIPELINED_WINDOWS = (24, 20)
"""Windows for instructions of two steps; the second is tried in long loops alone.

In short loops clang copies registers for orders that save a cycle.
"""

_TIE_FACTOR = 1.004
"""In long loops, orders whose cycles differ by less than this factor count as equally quick."""

_MAX_BUSY_CYCLES = 4
"""The cycles for which one instruction may keep pipes busy, at most."""

WARM_UP_ITERATIONS = 4
"""Iterations after which a loop takes the same number of cycles each time."""

LONG_LOOP = 90
"""Instructions in the body from which on a loop is long: its counters and tests are then hardly felt."""


@dataclass(frozen=True)
class PipelinedLoop:
    """The loop over steps, in order.

    Attributes:
        copies: Steps in one iteration. Each has its own values (`Value.of_copy`).
        flat: The instructions as written before they were ordered, with the accumulators.
        body: The instructions of an iteration in order; instructions of the next iteration are issued ahead.
    """

    copies: int
    flat: Loop
    body: tuple[LoopInstruction, ...]

    @property
    def becomes(self) -> dict[Value, Value]:
        """The accumulators by the names of their next values."""
        return self.flat.becomes

    @property
    def prologue(self) -> tuple[Step, ...]:
        """The instructions run once before the loop: the first iteration's that are issued ahead."""
        return tuple(step for step, ahead in self.body if ahead)

    @property
    def tail(self) -> tuple[Step, ...]:
        """The instructions run once behind the loop: the last iteration's that were not issued ahead."""
        return tuple(step for step, ahead in self.body if not ahead)

    @property
    def carried(self) -> tuple[Value, ...]:
        """The values that an iteration takes over from the one before it."""
        read = {a for step in self.tail for a in step.args}
        return tuple(step.dst for step in self.prologue if step.dst in read)


def peels(kernel: Kernel) -> bool:
    """Return whether the first run of a loop, if it has a program of its own, is written apart from the loop.

    So where steps are not pipelined, and in nests, whose innermost loops soon end.
    """
    return kernel.order in ORDERS or kernel.nests


@lru_cache(maxsize=1 << 10)
def pipeline_loop(kernel: Kernel, loop: Pass) -> PipelinedLoop:
    """Return the innermost loop of a pass, pipelined for the processor `kernel.order`.

    Of the quickest candidates the one with the fewest instructions issued ahead is taken: compilers copy registers
    that an iteration carries to the next.
    """
    isa = load(kernel.isa)
    flats = [row_by_row(kernel, loop, loop.step)]
    if kernel.active_scalar_pass is None and not row_free(loop.step.steps):
        flats.append(interleave(kernel, loop.step))
    copies = _copies(isa, kernel, loop, flats[0])
    candidates = [
        candidate
        for flat in flats
        for candidate in _candidates(isa, kernel, _repeat(_split_unless_full(isa, kernel, loop, flat), copies), copies)
    ]
    cycles = [_loop_cycles(isa, kernel, loop, x) for x in candidates]
    slack = _TIE_FACTOR if len(flats[0].steps) >= LONG_LOOP else 1.0
    quick = (x for x, n in zip(candidates, cycles, strict=True) if n <= slack * min(cycles))
    return min(quick, key=lambda x: len(x.prologue))


def _copies(isa: Isa, kernel: Kernel, loop: Pass, flat: Loop) -> int:
    """Return how many steps an iteration has: enough for a long loop.

    One in loops that soon end, or where a third of all registers are accumulators: compilers copy these in long loops.
    """
    full = 3 * vector_accs(flat.accs) >= isa.table.registers
    return 1 if full or peels(kernel) else min(-(-LONG_LOOP // len(flat.steps)), loop.step.trip_count)


def _candidates(isa: Isa, kernel: Kernel, flat: Loop, copies: int) -> Iterator[PipelinedLoop]:
    """Yield loops with no instruction issued ahead, with the instructions that a window finds, and with all loads."""
    in_place = list_schedule(isa, kernel, flat)
    yield PipelinedLoop(copies, flat, tuple((step, False) for step in in_place))
    if _needs_copies(isa, flat):
        return
    scalar = {step.dst for step in in_place if step.args and isa[step.op].out.in_general}
    fixed = _dependents(flat, (acc.name for acc in flat.accs)) | _dependents(flat, scalar)
    movable = [(step, True) for step in in_place if step.dst not in fixed]
    for window in _PIPELINED_WINDOWS if len(flat.steps) >= LONG_LOOP else _PIPELINED_WINDOWS[:1]:
        scheduler = ListScheduler(isa, kernel, flat, (), window)
        two_steps = scheduler.order([*((step, False) for step in in_place), *movable])
        end = max(k for k, (_, ahead) in enumerate(two_steps) if not ahead)
        issued_ahead = _without_lone_halves([step for step, ahead in two_steps[:end] if ahead])
        yield PipelinedLoop(copies, flat, _body(isa, kernel, flat, issued_ahead, window))
    loads = [step for step in flat.steps if not step.args or is_join(step)]
    yield PipelinedLoop(copies, flat, _body(isa, kernel, flat, loads, len(flat.steps)))


def _body(
    isa: Isa, kernel: Kernel, flat: Loop, issued_ahead: Sequence[Step], window: int
) -> tuple[LoopInstruction, ...]:
    """Return the body of the loop that has these instructions issued ahead.

    They are listed in the order in which the registers that they overwrite are read last.
    """
    names = {step.dst for step in issued_ahead}
    own = [(step, False) for step in flat.steps if step.dst not in names]
    last_read = {a: k for k, (step, _) in enumerate(own) for a in step.args}
    issued_ahead = sorted(issued_ahead, key=lambda step: last_read.get(step.dst.whole, 0))
    both = [*own, *((step, True) for step in issued_ahead)]
    return tuple(ListScheduler(isa, kernel, flat, issued_ahead, window).order(both))


def _without_lone_halves(issued_ahead: Sequence[Step]) -> list[Step]:
    """Return the instructions without loads of halves whose join is not issued ahead: compilers would copy them."""
    joined = {a for step in issued_ahead for a in step.args}
    return [step for step in issued_ahead if step.args or step.dst in joined or step.dst.part is Part.WHOLE]


@lru_cache(maxsize=1 << 10)
def order_fold(isa: Isa, kernel: Kernel, flat: Loop) -> tuple[Step, ...]:
    """Return the instructions of a fold or a flush in order.

    Loads are split in halves, unless whole loads are as quick. That is not tried where the pipes are busy longer than
    the order with halves takes.
    """
    split = split_loads(isa, kernel.order, flat)
    halves = list_schedule(isa, kernel, split)
    cycles = _cycles(isa, kernel, halves)
    if split == flat or _least_cycles(isa, kernel, flat) > cycles + _MAX_BUSY_CYCLES:
        return halves
    whole = list_schedule(isa, kernel, flat)
    return whole if _cycles(isa, kernel, whole) <= cycles else halves


def _least_cycles(isa: Isa, kernel: Kernel, flat: Loop) -> float:
    """Return the cycles for which the busiest pipes are needed, a lower bound of every order."""
    rules = isa.rules(kernel.order)
    return max(busy(rules, [issue(isa, kernel.order, step, {}) for step in flat.steps]).values())


def write_step(isa: Isa, kernel: Kernel, loop: Pass, step: Loop) -> Loop:
    """Return the step, or its first run, as one program of all rows with its loads."""
    return _split_unless_full(isa, kernel, loop, row_by_row(kernel, loop, step))


def _split_unless_full(isa: Isa, kernel: Kernel, loop: Pass, flat: Loop) -> Loop:
    """Return the program with loads split in halves.

    Unless registers are full of accumulators, or of values that rows share: compilers would spill.
    """
    full = in_registers(isa, kernel) or bool(row_free(loop.step.steps))
    return flat if full else split_loads(isa, kernel.order, flat)


@lru_cache(maxsize=1 << 10)
def list_schedule(isa: Isa, kernel: Kernel, flat: Loop) -> tuple[Step, ...]:
    """Return the instructions of one run in order, none issued ahead."""
    return tuple(
        step for step, _ in ListScheduler(isa, kernel, flat, (), _WINDOW).order([(s, False) for s in flat.steps])
    )


def _repeat(flat: Loop, copies: int) -> Loop:
    """Return a program of `copies` steps; each goes on from the accumulators of the one before it."""
    out, starts = list[Step](), {acc.name: acc.name for acc in flat.accs}
    for copy in range(copies):
        for s in flat.steps:
            args = tuple(starts[a] if a in starts else a.of_copy(copy) for a in s.args)
            out.append(s.replace(dst=s.dst.of_copy(copy), args=args))
        starts = {acc.name: acc.next.of_copy(copy) for acc in flat.accs}
    accs = tuple(msgspec.structs.replace(acc, next=starts[acc.name]) for acc in flat.accs)
    return msgspec.structs.replace(flat, steps=tuple(out), accs=accs)


def _dependents(flat: Loop, names: Iterable[Value]) -> set[Value]:
    """Return these values and all that depend on them."""
    out = set(names)
    for step in flat.steps:
        if out.intersection(step.args):
            out.add(step.dst)
    return out


def _needs_copies(isa: Isa, flat: Loop) -> bool:
    """Return whether an instruction overwrites a value with other readers.

    That value is copied first, which leaves no register for instructions issued ahead.
    """
    reads = Counter(a for step in flat.steps for a in dict.fromkeys(step.args))
    tied = set[Value]()
    for s in flat.steps:
        tied |= {a for a, o in zip(s.args, isa[s.op].operands, strict=False) if o.name in isa[s.op].tied}
    return any(reads[a] > 1 for a in tied if not a.is_accumulator)


def _loop_cycles(isa: Isa, kernel: Kernel, loop: Pass, x: PipelinedLoop) -> int:
    """Return the cycles of some iterations of the loop; of all, where it soon ends."""
    iterations = (loop.step.trip_count - peels(kernel)) // x.copies
    issued = {step: issue(isa, kernel.order, step, x.becomes) for step, _ in x.body}
    prologue, body, tail = ([issued[step] for step in part] for part in (x.prologue, [s for s, _ in x.body], x.tail))
    whole = iterations <= _WINDOW
    blocks = [prologue, *[body] * max(0, iterations - 1), tail] if whole else [prologue, *[body] * WARM_UP_ITERATIONS]
    return scoreboard.run_blocks(isa.rules(kernel.order), blocks)[0]


def _cycles(isa: Isa, kernel: Kernel, instructions: Iterable[Step]) -> int:
    """Return the cycles until the last of these instructions, one after the other, starts."""
    core = InOrder(isa.rules(kernel.order))
    for step in instructions:
        core.issue(issue(isa, kernel.order, step, {}))
    return core.now

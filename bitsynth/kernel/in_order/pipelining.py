"""A step in the order of an in-order processor: what waits is apart from what it waits for, across steps too.

Some lines, loads first of all, are run a step ahead: the loop has them of the step that follows among those of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from bitsynth.isa import recurrence
from bitsynth.isa.load import Isa, load
from bitsynth.isa.scoreboard import InOrder, busy
from bitsynth.isa.step import Step
from bitsynth.kernel.in_order.folds import in_registers
from bitsynth.kernel.in_order.halves import half_of, in_halves, is_half, is_join
from bitsynth.kernel.in_order.list_scheduling import ListScheduler, LoopInstruction, issue
from bitsynth.kernel.order import interleaved, row_by_row, vector_accs
from bitsynth.kernel.program import ORDERS, Kernel, Loop, Pass, row_free

_WINDOW, _NEAR = 48, (24, 20)
"""Lines that are looked at for the next, of those not yet placed; and where some are of the next step.

Of the latter each is tried if a turn is long: clang copies registers in short ones by orders that save a cycle.
"""

_EQUAL = 1.004
"""Cycles of long turns are equal up to this factor: of such orders the one that has fewest lines ahead is taken."""

_LAST = 4
"""Cycles for which one instruction may keep pipes busy, at most."""

WARM_UP_ITERATIONS = 4
"""Turns after which the loop is under way."""

LONG_LOOP = 90
"""Lines of a long turn, at least: what counts, and tests where a segment ends, is hardly felt among them."""


@dataclass(frozen=True)
class PipelinedLoop:
    """Some `copies` of a step, of all rows: the lines of the loop in order; those `ahead` are done when it begins.

    `flat` has the accumulators, and the lines as written. Values of copy 1 on have its number behind their names.
    """

    copies: int
    flat: Loop
    body: tuple[LoopInstruction, ...]

    @property
    def becomes(self) -> dict[str, str]:
        """The accumulators by what they become."""
        return self.flat.becomes

    @property
    def prologue(self) -> tuple[Step, ...]:
        """What is run once before the loop: the lines of its first step that are ahead."""
        return tuple(step for step, ahead in self.body if ahead)

    @property
    def tail(self) -> tuple[Step, ...]:
        """What is run once behind the loop: the other lines of the last step."""
        return tuple(step for step, ahead in self.body if not ahead)

    @property
    def carried(self) -> tuple[str, ...]:
        """The values that a step has from the turn before it."""
        read = {a for step in self.tail for a in step.args}
        return tuple(step.dst for step in self.prologue if step.dst in read)


def peels(kernel: Kernel) -> bool:
    """Whether a loop's first run is apart, if it has one: where steps are not ordered, and in loops that soon end."""
    return kernel.order in ORDERS or kernel.nests


@lru_cache(maxsize=1 << 10)
def pipeline_loop(kernel: Kernel, loop: Pass) -> PipelinedLoop:
    """The step of a pass, several times if it is short, in the order of `kernel.order`.

    That is found by list scheduling, of two steps and then of the loop.

    Of the lines whose operands are made the one comes next that can start first, of those the first as written; one
    that takes a register only if there is one. What of a second step finds a place before the first ends is ahead. Of
    orders that are as quick the one with fewest lines ahead is taken: compilers copy what turns carry.
    """
    isa = load(kernel.isa)
    flats = [row_by_row(kernel, loop, loop.step)]
    if kernel.active_scalar_pass is None and not row_free(loop.step.steps):
        flats.append(interleaved(kernel, loop.step))
    copies = _copies(isa, kernel, loop, flats[0])
    known = [
        x for flat in flats for x in _orders(isa, kernel, _repeated(_parted(isa, kernel, loop, flat), copies), copies)
    ]
    cycles = [_steady(isa, kernel, loop, x) for x in known]
    slack = _EQUAL if len(flats[0].steps) >= LONG_LOOP else 1.0
    quick = (x for x, n in zip(known, cycles, strict=True) if n <= slack * min(cycles))
    return min(quick, key=lambda x: len(x.prologue))


def _copies(isa: Isa, kernel: Kernel, loop: Pass, flat: Loop) -> int:
    """Steps that a turn of the loop has: one where loops soon end, or where a third of all registers are sums.

    Compilers copy such sums around longer turns.
    """
    full = 3 * vector_accs(flat.accs) >= isa.table.registers
    return 1 if full or peels(kernel) else min(-(-LONG_LOOP // len(flat.steps)), loop.step.trip_count)


def _orders(isa: Isa, kernel: Kernel, flat: Loop, copies: int) -> Iterator[PipelinedLoop]:
    """Orders of `copies` of a step: none of its lines ahead, some, and all its loads."""
    plain = list_schedule(isa, kernel, flat)
    yield PipelinedLoop(copies, flat, tuple((step, False) for step in plain))
    if _copies_wanted(isa, flat):
        return
    summed = _of_accumulators(flat)
    own = {step.dst for step in plain if step.args and isa[step.op].out.in_general}
    behind = [(step, True) for step in plain if step.dst not in summed | _flows(flat, own)]
    for near in _NEAR if len(flat.steps) >= LONG_LOOP else _NEAR[:1]:
        both = ListScheduler(isa, kernel, flat, (), near).order([*((step, False) for step in plain), *behind])
        last = max(k for k, (_, ahead) in enumerate(both) if not ahead)
        found = _whole([step for step, ahead in both[:last] if ahead])
        yield PipelinedLoop(copies, flat, _turns(isa, kernel, flat, found, near))
    loads = [step for step in flat.steps if not step.args or is_join(step)]
    yield PipelinedLoop(copies, flat, _turns(isa, kernel, flat, loads, len(flat.steps)))


def _turns(isa: Isa, kernel: Kernel, flat: Loop, found: Sequence[Step], window: int) -> tuple[LoopInstruction, ...]:
    """The lines of a loop that has those `found` a step ahead, in the order in which registers are free for them."""
    made = {step.dst for step in found}
    rest = [(step, False) for step in flat.steps if step.dst not in made]
    last_read = {a: k for k, (step, _) in enumerate(rest) for a in step.args}
    found = sorted(found, key=lambda step: last_read.get(half_of(step.dst)[0], 0))
    both = [*rest, *((step, True) for step in found)]
    return tuple(ListScheduler(isa, kernel, flat, found, window).order(both))


def _whole(found: Sequence[Step]) -> list[Step]:
    """The lines without halves of registers of which no line makes a register: compilers copy what turns carry."""
    joined = {a for step in found for a in step.args}
    return [step for step in found if step.args or step.dst in joined or not is_half(step.dst)]


@lru_cache(maxsize=1 << 10)
def order_fold(isa: Isa, kernel: Kernel, flat: Loop) -> tuple[Step, ...]:
    """The lines of a fold or a flush, whose loads are whole, or in halves where pipes alone are busy longer else."""
    apart = in_halves(isa, kernel.order, flat)
    halves = list_schedule(isa, kernel, apart)
    told = _taken(isa, kernel, halves)
    if apart == flat or _busy(isa, kernel, flat) > told + _LAST:
        return halves
    whole = list_schedule(isa, kernel, flat)
    return whole if _taken(isa, kernel, whole) <= told else halves


def _busy(isa: Isa, kernel: Kernel, flat: Loop) -> float:
    """The cycles that no order of the lines goes below, to the end of the last."""
    rules = isa.rules(kernel.order)
    return max(busy(rules, [issue(isa, kernel.order, step, {}) for step in flat.steps]).values())


def write_step(isa: Isa, kernel: Kernel, loop: Pass, step: Loop) -> Loop:
    """The step, or its first run, with its loads and all rows in one program, as the processor is to have it."""
    return _parted(isa, kernel, loop, row_by_row(kernel, loop, step))


def _parted(isa: Isa, kernel: Kernel, loop: Pass, flat: Loop) -> Loop:
    """The program with loads in halves, unless registers are full of sums, or of what rows share: compilers spill."""
    full = in_registers(isa, kernel) or bool(row_free(loop.step.steps))
    return flat if full else in_halves(isa, kernel.order, flat)


@lru_cache(maxsize=1 << 10)
def list_schedule(isa: Isa, kernel: Kernel, flat: Loop) -> tuple[Step, ...]:
    """The lines of one run, none of them ahead."""
    return tuple(
        step for step, _ in ListScheduler(isa, kernel, flat, (), _WINDOW).order([(s, False) for s in flat.steps])
    )


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
    return _flows(flat, (acc.name for acc in flat.accs))


def _flows(flat: Loop, start: Iterable[str]) -> set[str]:
    """These values, and what they flow into."""
    found = set(start)
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


def _steady(isa: Isa, kernel: Kernel, loop: Pass, x: PipelinedLoop) -> int:
    """The cycles of some turns of the loop, as many as it has if it soon ends."""
    turns = (loop.step.trip_count - peels(kernel)) // x.copies
    issued = {step: issue(isa, kernel.order, step, x.becomes) for step, _ in x.body}
    before, turn, after = ([issued[step] for step in lines] for lines in (x.prologue, [s for s, _ in x.body], x.tail))
    blocks = (
        [before, *[turn] * max(0, turns - 1), after] if turns <= _WINDOW else [before, *[turn] * WARM_UP_ITERATIONS]
    )
    return recurrence.run(isa.rules(kernel.order), blocks)[0]


def _taken(isa: Isa, kernel: Kernel, lines: Iterable[Step]) -> int:
    """The cycles of lines one after the other."""
    core = InOrder(isa.rules(kernel.order))
    for step in lines:
        core.issue(issue(isa, kernel.order, step, {}))
    return core.now

"""The scoreboard: computes the cycles that instructions take on a processor, by its issue rules.

In order, as on Cortex-A53, an instruction starts when its operands are there, its pipe is free and all before it have
started. Out of order it waits for its operands and a slot of a pipe alone, in a window of instructions in flight.
Branches are predicted and caches hit.

Blocks of instructions that repeat need not run again. Relative to the current cycle, the state of a processor recurs: a
block that meets a state again takes as many cycles as before and leaves the same state.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache

from bitsynth.isa.load import Isa
from bitsynth.isa.tables import ANY_PORT, IssueTable


@dataclass(frozen=True)
class Issued:
    """An instruction: registers it reads and writes, cycles until these are there, slots of pipes.

    What is `forwarded`, an accumulator, is read only when the sum is made. One that is `alone` starts with no other.
    Of what is `merged`, a part is left: in order it starts a cycle after what makes that, and is there no sooner.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    latency: int
    takes: tuple[tuple[str, int], ...]
    alone: bool = False
    forwarded: str = ""
    merged: str = ""


def of_kind(
    rules: IssueTable, kind: str, reads: Iterable[str] = (), writes: Iterable[str] = (), merged: str = ""
) -> Issued:
    """Return an instruction of one of the rules' kinds."""
    table = rules.kinds[kind]
    return Issued(tuple(reads), tuple(writes), table.lat, tuple(table.takes.items()), table.alone, merged=merged)


def arithmetic(isa: Isa, cpu: str, op: str, reads: Sequence[str], write: str) -> Issued:
    """Return the vector instruction form `op`, as its cost says."""
    latency, takes, sums = _costs(isa, cpu, op)
    return Issued(tuple(reads), (write,), latency, takes, forwarded=next(iter(reads[sums]), ""))


@lru_cache(maxsize=1 << 12)
def _costs(isa: Isa, cpu: str, op: str) -> tuple[int, tuple[tuple[str, int], ...], slice]:
    """Return the latency and the slots of pipes of a form, and the place of its accumulator operand, if any."""
    instr, rules = isa[op], isa.rules(cpu)
    cost = instr.cost[cpu]
    pipes = len(rules.ports[ANY_PORT]) if cost.port == ANY_PORT else 1
    port = cost.port if cost.port in rules.ports else ANY_PORT
    acc = next((k for k, o in enumerate(instr.operands) if o.name == "acc" and "acc" in instr.tied), None)
    rate = min(cost.per_cycle, rules.ports_per_cycle)
    takes = ((port, max(1, round(pipes / rate))),)
    return round(cost.latency), takes, slice(0, 0) if acc is None else slice(acc, acc + 1)


def cycles(rules: IssueTable, program: Iterable[Issued]) -> int:
    """Return the cycles from the start of the first instruction to a start after the last, with all results there."""
    core = processor(rules)
    for x in program:
        core.issue(x)
    return core.done


def processor(rules: IssueTable) -> InOrder | OutOfOrder:
    """Return a processor of these rules that has done nothing yet."""
    return InOrder(rules) if rules.in_order else OutOfOrder(rules)


def busy(rules: IssueTable, program: Iterable[Issued]) -> dict[str, float]:
    """Return the cycles that each class of pipes, and issue itself, is busy with instructions: no order takes fewer."""
    slots: dict[frozenset[str], int] = defaultdict(int)
    started = 0
    for x in program:
        started += rules.width * _lasts(rules, x) if x.alone and rules.in_order else 1
        for port, count in x.takes:
            slots[frozenset(rules.ports[port])] += count
    cycles_by_port = {"issue": started / rules.width}
    for port, pipes in rules.ports.items():
        cycles_by_port[port] = sum(count for taken, count in slots.items() if taken <= {*pipes}) / len(pipes)
    return cycles_by_port


def _lasts(rules: IssueTable, x: Issued) -> int:
    """Return the cycles for which an instruction takes pipes, as many at once as it can."""
    return max((-(-count // len(rules.ports[port])) for port, count in x.takes), default=1)


class InOrder:
    """An in-order processor at work: what has been issued, and when the next could be."""

    def __init__(self, rules: IssueTable) -> None:
        self.rules = rules
        self.now = self.started = 0
        self.ready: dict[str, int] = {}
        self.early: dict[str, int] = {}
        self.issued_at: dict[str, int] = {}
        self.free: dict[str, int] = defaultdict(int)

    @property
    def done(self) -> int:
        """The cycle in which all that was issued has started, and its results are there."""
        return max([self.now, *self.ready.values()])

    @property
    def earliest(self) -> int:
        """The first cycle in which anything could start."""
        return self.now + (self.started >= self.rules.width)

    def idle(self, port: str, at: int) -> bool:
        """Return whether all pipes of a class are free from the cycle `at` on."""
        return all(self.free[pipe] <= at for pipe in self.rules.ports[port])

    def start(self, x: Issued) -> int:
        """Return the cycle in which `x` would start."""
        at, free, ports, ready = self.now, self.free, self.rules.ports, self.ready
        for register in x.reads:
            there = ready.get(register, 0)
            if register == x.forwarded:
                there = self.early.get(register, there)
            if register == x.merged:
                there = self.issued_at.get(register, -1) + 1
            at = max(at, there)
        for port, count in x.takes:
            idle = [free[pipe] for pipe in ports[port]]
            there = max(idle) if count >= len(idle) else min(idle) if count == 1 else sorted(idle)[count - 1]
            at = max(at, there)
        return at + (at == self.now and (self.started >= self.rules.width or (x.alone and self.started > 0)))

    def issue(self, x: Issued) -> None:
        """Start `x`."""
        at, free = self.start(x), self.free
        self.started = self.started + 1 if at == self.now else 1
        self.now = at
        for port, count in x.takes:
            pipes = sorted(self.rules.ports[port], key=free.__getitem__)
            for k, pipe in enumerate(pipes[:count]):
                free[pipe] = at + (count - k + len(pipes) - 1) // len(pipes)
        if x.alone:
            self.now, self.started = at + _lasts(self.rules, x) - 1, self.rules.width
        for r in x.writes:
            self.issued_at[r], self.ready[r] = at, max(at + x.latency, self.ready.get(x.merged, 0))
            if x.forwarded:
                self.early[r] = at + _lasts(self.rules, x)
            else:
                self.early.pop(r, None)

    def settle(self) -> tuple[int, Hashable]:
        """Count cycles from this one on, and drop what is finished; return the cycles before it and the state.

        Two processors of one state take as long for whatever comes.
        """
        now, self.now = self.now, 0
        self.ready = _later(self.ready, now)
        self.early = {r: max(0, at - now) for r, at in self.early.items() if at > now or r in self.ready}
        self.issued_at = {r: at - now for r, at in self.issued_at.items() if at >= now}
        self.free = defaultdict(int, _later(self.free, now))
        return now, (self.started, *map(_sort_times, (self.ready, self.early, self.issued_at, self.free)))


class OutOfOrder:
    """The state of an out-of-order processor: instructions in flight, and when registers and pipes are free."""

    def __init__(self, rules: IssueTable) -> None:
        self.rules = rules
        self.ready: dict[str, int] = {}
        self.early: dict[str, int] = {}
        self.used: dict[str, set[int]] = defaultdict(set)
        self.entered: deque[int] = deque(maxlen=rules.width)
        self.left: deque[int] = deque(maxlen=rules.window)

    @property
    def now(self) -> int:
        """The cycle in which the last instruction came."""
        return self.entered[-1] if self.entered else 0

    @property
    def done(self) -> int:
        """The cycle in which all that was issued has left."""
        return self.left[-1] if self.left else 0

    def issue(self, x: Issued) -> None:
        """Let `x` enter the window, and start as soon as it can."""
        enter = max(
            self.entered[0] + 1 if len(self.entered) == self.rules.width else 0,
            self.left[0] if len(self.left) == self.rules.window else 0,
            self.now,
        )
        at = max([enter, *((self.early if r == x.forwarded else self.ready).get(r, 0) for r in x.reads)])
        start = at
        for port, slots in x.takes:
            for _ in range(slots):
                start = max(start, _slot(self.used, self.rules.ports[port], at))
        done = start + x.latency
        for r in x.writes:
            self.ready[r] = done
            self.early[r] = start + max((n for _, n in x.takes), default=1) if x.forwarded else done
        self.left.append(max(done, self.done))
        self.entered.append(enter)

    def settle(self) -> tuple[int, Hashable]:
        """Count cycles from this one on, as `InOrder.settle`."""
        now = self.now
        self.entered = deque((max(-1, at - now) for at in self.entered), self.entered.maxlen)
        self.left = deque((max(0, at - now) for at in self.left), self.left.maxlen)
        self.ready, self.early = _later(self.ready, now), _later(self.early, now)
        used = {pipe: {at - now for at in slots if at >= now} for pipe, slots in self.used.items()}
        self.used = defaultdict(set, used)
        slots = tuple(sorted((pipe, *sorted(taken)) for pipe, taken in used.items() if taken))
        return now, (tuple(self.entered), tuple(self.left), _sort_times(self.ready), _sort_times(self.early), slots)


def _slot(used: Mapping[str, set[int]], pipes: Sequence[str], at: int) -> int:
    """Return the first cycle from `at` on with a free slot in one of `pipes`, which is taken."""
    while True:
        for pipe in pipes:
            if at not in used[pipe]:
                used[pipe].add(at)
                return at
        at += 1


def _later(times: Mapping[str, int], now: int) -> dict[str, int]:
    return {name: at - now for name, at in times.items() if at > now}


def _sort_times(times: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(times.items()))


Block = Sequence[Issued]
"""Instructions in a row. One that runs again is the same object."""


def count_cycles_of_blocks(rules: IssueTable, blocks: Iterable[Block]) -> int:
    """Return the cycles from the start of the first instruction to a start after the last, with all results there."""
    now, core = run_blocks(rules, blocks)
    return now + core.done


def run_blocks(rules: IssueTable, blocks: Iterable[Block]) -> tuple[int, InOrder | OutOfOrder]:
    """Return the cycle in which the last instruction starts (in order) or enters, and the processor then."""
    core = processor(rules)
    states, numbers = [core], {core.settle()[1]: 0}
    memo: dict[tuple[int, int], tuple[int, int]] = {}
    blocks_by_id = dict[int, Block]()
    now = state = 0
    for block in blocks:
        step = state, id(blocks_by_id.setdefault(id(block), block))
        if step not in memo:
            after = deepcopy(states[state], {id(rules): rules})
            for x in block:
                after.issue(x)
            elapsed, key = after.settle()
            number = numbers.setdefault(key, len(states))
            if number == len(states):
                states.append(after)
            memo[step] = number, elapsed
        state, elapsed = memo[step]
        now += elapsed
    return now, states[state]

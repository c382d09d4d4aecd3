"""Predicted cycles of a kernel: what its C should compile to, on the scoreboard, before there is a compiler.

Loads, broadcasts and their addresses, loops, spilled accumulators, flushes and results are in it. Registers are named
as in the program: every value has one of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from bitsynth.isa import recurrence
from bitsynth.isa.load import Isa
from bitsynth.isa.recurrence import Block
from bitsynth.isa.scoreboard import Issued, arithmetic, of_kind
from bitsynth.isa.step import Step
from bitsynth.isa.tables import IssueTable
from bitsynth.isa.types import VecType
from bitsynth.kernel.in_order import folds, loop_control, pipelining
from bitsynth.kernel.in_order.first_iteration import FirstIteration, begin_loop
from bitsynth.kernel.in_order.list_scheduling import issue
from bitsynth.kernel.in_order.loop_control import has_address, pointer_of
from bitsynth.kernel.order import all_accs, interleaved, of_row, row_by_row
from bitsynth.kernel.program import ORDERS, Kernel, Loop, Pass, period
from bitsynth.schedule import cost

_COLUMNS = 64
"""Columns of a call that predictions are of, in as many whole tiles as they hold: the narrowest layers of ResNet-18."""


def chooses(isa: Isa, model: str) -> bool:
    """Whether predicted cycles choose tiles: on an out-of-order processor, which runs a kernel's steps as they are."""
    cpu = isa.table.cpu.get(model)
    return cpu is not None and cpu.issue is not None and not cpu.issue.in_order


def compares(isa: Isa, model: str) -> bool:
    """Whether predicted cycles compare methods: on an in-order processor bounds leave out most of what it waits for."""
    return model in isa.table.in_order


def serves(isa: Isa, method: str, model: str) -> bool:
    """Whether a method is tried by predicted cycles: on an in-order processor fip is not, which saves its search.

    On the Cortex-A53 it takes 25.9 and 27.0 cycles at A3W3 and A4W4, lookup 21.6 and multiply 24.4.
    """
    return method != "fip" or chooses(isa, model)


def tiles_of_call(kernel: Kernel) -> int:
    """The tiles of a call that predictions are of, at least one."""
    return max(1, _COLUMNS // kernel.columns)


def cycles_per_128_mac(isa: Isa, kernel: Kernel, cpu: str, depth: int = cost.AMORTISED_K) -> float:
    """The cycles of `cpu` for 128 multiply-accumulates over `depth` positions of K, in a call of so many tiles."""
    return _per_128_mac(isa, kernel, cpu, depth, tiles_of_call(kernel))


def tile_cycles_per_128_mac(isa: Isa, kernel: Kernel, cpu: str) -> float:
    """Those of a tile by itself, by which tiles are chosen.

    By how much tiles overlap in a call is less sure: chosen by calls, A1W1 on the A72 has 12 rows by 8 columns, 1.70
    cycles predicted and 1.71 compiled, for 8 by 16, 1.71 and 1.66.
    """
    return _per_128_mac(isa, kernel, cpu, cost.AMORTISED_K, 1)


def _per_128_mac(isa: Isa, kernel: Kernel, cpu: str, depth: int, tiles: int) -> float:
    return call_cycles(isa, kernel, cpu, depth, tiles) / (tiles * cost.units(kernel, depth) * kernel.rows)


@lru_cache(maxsize=1 << 12)
def call_cycles(isa: Isa, kernel: Kernel, cpu: str, depth: int = cost.AMORTISED_K, tiles: int = 1) -> int:
    """The cycles of `cpu` for tiles in a row over `depth` positions of K; SpecError if it has no issue rules."""
    return recurrence.cycles(isa.rules(cpu), list(_Tile(isa, kernel, cpu).run(-(-depth // kernel.k_step))) * tiles)


@dataclass(frozen=True)
class _Tile:
    """The instructions of a tile."""

    isa: Isa
    kernel: Kernel
    cpu: str

    @property
    def rules(self) -> IssueTable:
        return self.isa.rules(self.cpu)

    @property
    def _in_memory(self) -> bool:
        return self.kernel.order not in ORDERS and folds.in_memory(self.isa, self.kernel)

    def run(self, steps: int) -> Iterator[Block]:
        for number, chain in enumerate(self.kernel.chains):
            known = dict[tuple[int, bool], list[Block]]()
            every = period(chain)
            for done in range(0, steps, every):
                which = min(every, steps - done), number == done == 0
                if which not in known:
                    known[which] = list(self._block(chain, *which))
                yield from known[which]

    def _block(self, chain: Iterable[Pass], steps: int, first: bool) -> Iterator[Block]:
        """The passes over steps between two flushes to the tile, which the `first` starts."""
        for number, loop in enumerate(chain):
            yield from self._nest(loop, steps, carried=number > 0)
            yield list(self._flush(loop, first))

    def _nest(self, loop: Pass, steps: int, *, carried: bool) -> Iterator[Block]:
        """Runs of the innermost loop, and behind each those of the loops around it that end there."""
        around = [list(self._widen(loop, level)) for level in range(1, len(loop.loops))]
        starts = [list(self._start(nested)) for nested in loop.loops]
        if self._beginning(loop):
            starts[0] = []
        for level, start in enumerate(starts):
            if level and not (carried and level == len(starts) - 1):
                yield start
        trips, done = [nested.trip_count for nested in loop.loops], 0
        counts = list(self._counted()) if around else []
        steps_of = self._in_turn(loop) if self.kernel.order in ORDERS else self._ordered(loop)
        while done < steps:
            if not (carried and len(trips) == 1):
                yield starts[0]
            count, run = min(trips[0], steps - done), 1
            if around:
                yield counts
            yield from steps_of(count)
            done += count
            for level, widen in enumerate(around, 1):
                run *= trips[level - 1]
                if done % run == 0 or done == steps:
                    yield widen
                    if level + 1 < len(trips) and done % (run * trips[level]) == 0 and done < steps:
                        yield starts[level]

    def _counted(self) -> Iterator[Issued]:
        """What counts a run of the innermost loop of a nest: its steps of those left, of them those of a segment."""
        for steps, left in (("count", "left"), ("run", "steps_here")):
            yield of_kind(self.rules, "integer", [left], ["less"])
            yield of_kind(self.rules, "integer", ["less"], [steps])
            yield of_kind(self.rules, "integer", [left, steps], [left])
            yield of_kind(self.rules, "branch", [left])
        yield of_kind(self.rules, "integer", ["runs"], ["runs"])
        yield of_kind(self.rules, "branch", ["runs"])

    def _written(self, loop: Pass, step: Loop) -> tuple[Loop, tuple[Step, ...]]:
        """A step with all its rows, and its lines in their order."""
        if self.kernel.order in ORDERS:
            by_row = self.kernel.order == "rows"
            flat = row_by_row(self.kernel, loop, step) if by_row else interleaved(self.kernel, step)
            return flat, tuple(_once(flat))
        flat = pipelining.write_step(self.isa, self.kernel, loop, step)
        return flat, pipelining.list_schedule(self.isa, self.kernel, flat)

    def _in_turn(self, loop: Pass) -> Callable[[int], Iterator[Block]]:
        """What runs of the step are, the first with accumulators at zero."""
        written = [self._written(loop, step) for step in (loop.step, loop.step.first_run)]
        step, first = (self._lines(flat, lines) + self._counting() for flat, lines in written)

        def run(count: int) -> Iterator[Block]:
            for k in range(count):
                yield first if loop.step.first and k == 0 else step

        return run

    def _ordered(self, loop: Pass) -> Callable[[int], Iterator[Block]]:
        """What runs of the step are in the order of an in-order processor: several at once, then one by one."""
        found = pipelining.pipeline_loop(self.kernel, loop)
        before, after = (self._lines(found.flat, lines) for lines in (found.prologue, found.tail))
        turn = list(self._turn(found))
        begun, zeros = self._beginning(loop), list(self._start(loop.step))
        first_turn = list(self._turn(found, begun)) if begun else turn
        apart = [loop.step.first_run] if loop.step.first and pipelining.peels(self.kernel) else []
        first, one = (self._lines(*self._written(loop, s)) + self._counting() for s in ([*apart, loop.step] * 2)[:2])

        def run(count: int) -> Iterator[Block]:
            turns, rest = divmod(count - len(apart), found.copies)
            yield from [first] if apart else []
            if begun and turns == 1:
                yield from [before, zeros, after]
            elif turns:
                yield from [before, *[first_turn] * (turns > 1), *[turn] * (turns - 2), after]
            yield from [one] * rest

        return run

    def _beginning(self, loop: Pass) -> FirstIteration | None:
        """The first turn of the loop, if that sets its accumulators."""
        in_turn = self.kernel.order in ORDERS
        return None if in_turn else begin_loop(self.kernel, loop, pipelining.pipeline_loop(self.kernel, loop))

    def _turn(self, found: pipelining.PipelinedLoop, first: FirstIteration | None = None) -> Iterator[Issued]:
        """A turn of the ordered loop, which counts between its lines; one that is the `first` sets accumulators."""
        at = loop_control.place_counters(self.kernel, found)
        counts = {**at.pointers, "run": at.iterations}
        here = first or found
        for k, (line, _later) in enumerate(here.body):
            yield from self._line(line, here.flat.becomes) if line else ()
            yield from (of_kind(self.rules, "integer", [name], [name]) for name, place in counts.items() if place == k)
            if at.segment == k:
                yield of_kind(self.rules, "branch", ["steps_here"])
        yield of_kind(self.rules, "branch", ["run"])

    def _start(self, loop: Loop) -> Iterator[Issued]:
        """Accumulators at zero: those of outer loops in memory, if the kernel is ordered."""
        in_memory = self.kernel.order not in ORDERS and folds.starts_in_memory(self.isa, self.kernel, loop)
        if in_memory or not loop.first or not pipelining.peels(self.kernel):
            for acc in all_accs(self.kernel, loop):
                if in_memory:
                    yield of_kind(self.rules, "store", [acc.name])
                else:
                    kind = "integer" if VecType.parse(acc.type).in_general else "move"
                    yield of_kind(self.rules, kind, (), [acc.name])

    def _lines(self, flat: Loop, lines: Iterable[Step]) -> list[Issued]:
        """Lines of all rows of a step."""
        return [x for line in lines for x in self._line(line, flat.becomes)]

    def _counting(self) -> list[Issued]:
        """What counts a turn of the loop."""
        places = [of_kind(self.rules, "integer", [name], [name]) for name in ("offset", "column", "run")]
        return [*places, of_kind(self.rules, "branch", ["run"])]

    def _line(self, line: Step, becomes: dict[str, str]) -> Iterator[Issued]:
        address = "" if line.args else pointer_of(line)
        if has_address(self.isa, line) and self.kernel.active_scalar_pass:
            yield issue(self.isa, self.cpu, line, becomes, address)
            yield of_kind(self.rules, "integer", ["offset"], ["at"])
            return
        if has_address(self.isa, line):
            address = f"at_{line.dst}"
            yield of_kind(self.rules, "integer", ["offset"], [address])
        yield issue(self.isa, self.cpu, line, becomes, address)

    def _widen(self, loop: Pass, level: int) -> Iterator[Issued]:
        """The program of an outer loop for every row; accumulators that find no register lie in memory."""
        if self._in_memory:
            yield from self._fold(folds.fold(self.kernel, loop.loops[level]))
            return
        outer, spilled = loop.loops[level], self._spilled(loop, level)
        for group in range(self.kernel.groups):
            for acc in outer.accs:
                name = of_row(acc.name, group)
                if name in spilled:
                    yield of_kind(self.rules, "load", ["sp"], [name])
            yield from self._program(outer.steps, group, outer.becomes)
            for acc in outer.accs:
                name = of_row(acc.name, group)
                if name in spilled:
                    yield of_kind(self.rules, "store", [name])

    def _fold(self, flat: Loop) -> Iterator[Issued]:
        """A fold or a flush in the order of the processor, and the pointers to rows of the tile, two each."""
        yield from (of_kind(self.rules, "integer", ["row"], ["row"]) for _ in range(2 * self.kernel.rows))
        for line in pipelining.order_fold(self.isa, self.kernel, flat):
            yield issue(self.isa, self.cpu, line, {})

    def _spilled(self, loop: Pass, level: int) -> set[str]:
        names = [of_row(acc.name, group) for group in range(self.kernel.groups) for acc in loop.loops[level].accs]
        return set(names[len(names) - cost.spilled(self.isa, self.kernel, loop, level) :])

    def _program(self, program: Iterable[Step], group: int, becomes: dict[str, str]) -> Iterator[Issued]:
        for s in program:
            args = [becomes.get(a, a) for a in s.args]
            names = [a if a[0] == "k" else of_row(a, group) for a in args]
            yield arithmetic(self.isa, self.cpu, s.op, names, of_row(becomes.get(s.dst, s.dst), group))

    def _flush(self, loop: Pass, first: bool) -> Iterator[Issued]:
        """The flush of a pass: in the order of a processor the `first` has one start for all rows, if they are few."""
        memory, registers = self.kernel.memory, self.kernel.tile_registers(self.isa.table.vector_bits)
        if self.kernel.order not in ORDERS:
            if not loop.carries:
                shared = first and folds.shares_starts(self.isa, self.kernel)
                row_terms = self.kernel.has_row_terms
                yield from self._fold(folds.flush(self.isa, self.kernel, loop, row_terms=row_terms, shared=shared))
            elif self._in_memory:
                yield from self._fold(folds.fold(self.kernel, loop.carried))
            else:
                yield from (
                    x for group in range(self.kernel.groups) for x in self._program(loop.flush_steps, group, {})
                )
            return
        for group in range(self.kernel.groups):
            members = range(self.kernel.together) if not loop.carries else ()
            for member in members:
                yield of_kind(self.rules, "integer", ["start"], ["start"])
                if self.kernel.has_row_terms:
                    yield of_kind(self.rules, "broadcast", ["start"], ["more"])
                for r in range(registers):
                    name = of_row(f"c{member * registers + r}", group)
                    yield of_kind(self.rules, "load", ["start"], [name])
                    if self.kernel.has_row_terms:
                        yield arithmetic(self.isa, self.cpu, memory.add_tile, [name, "more"], name)
            yield from self._program(loop.flush_steps, group, {})
            for member in members:
                yield of_kind(self.rules, "integer", ["end"], ["end"])
                own = loop.tile[member * registers : (member + 1) * registers]
                yield from (of_kind(self.rules, "store", [of_row(t, group), "end"]) for t in own)


def _once(flat: Loop) -> Iterator[Step]:
    """The lines of a step but for those that make what one before has made: compilers leave these out.

    The paper's kernels have such, sums of a row that they take for each column.
    """
    made = dict[tuple[str, tuple[str, ...], int], str]()
    same = dict[str, str]()
    for line in flat.steps:
        args = tuple(same.get(a, a) for a in line.args)
        key = line.op, args, line.imm
        if args and key in made and line.dst not in flat.becomes:
            same[line.dst] = made[key]
        else:
            made[key] = line.dst
            yield Step(line.dst, *key)

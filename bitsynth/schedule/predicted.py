"""Predicts a kernel's cycles: runs the instructions that its C should compile to through the scoreboard.

No compiler is needed. `_Tile` walks the loops of a kernel as `emit/` writes them in C, and yields the instructions in
blocks: the program's own, and all that is around them, such as loads, broadcasts with their addresses, loop counters,
spills, folds, flushes to the tile. Every value has a register of its own, named as in the program, so that
dependences are exact; copies and spills that a compiler adds by itself are not predicted.

Given: a tile of two steps of K, one accumulator
Result: zero acc | load w, broadcast a, multiply-add, count, branch | the same again | load c, add acc, store c
        (blocks; the scoreboard adds up their cycles, and it skips blocks that repeat)

`tests/unit/test_predicted_text.py` compares the instructions with the emitted C, `benchmarks/arm_predictions.py` with
instructions of compilers. A change of the loops in `emit/` needs the same change here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from bitsynth.isa import scoreboard
from bitsynth.isa.load import Isa
from bitsynth.isa.scoreboard import Block, Issued, arithmetic, of_kind
from bitsynth.isa.step import Step
from bitsynth.isa.tables import IssueTable
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.in_order import folds, loop_control, pipelining
from bitsynth.kernel.in_order.first_iteration import FirstIteration, begin_loop
from bitsynth.kernel.in_order.list_scheduling import issue
from bitsynth.kernel.in_order.loop_control import has_address, pointer_of
from bitsynth.kernel.order import all_accs, in_row, interleave, row_by_row
from bitsynth.kernel.program import ORDERS, Kernel, Loop, Pass, period
from bitsynth.schedule import cost

_CALL_COLUMNS = 64
"""Columns of the call that is predicted, in as many whole tiles as fit: as in the narrowest layers of ResNet-18."""


def chooses(isa: Isa, model: str) -> bool:
    """Return whether predicted cycles choose tiles: on out-of-order processors, which run steps as written."""
    cpu = isa.table.cpu.get(model)
    return cpu is not None and cpu.issue is not None and not cpu.issue.in_order


def compares(isa: Isa, model: str) -> bool:
    """Return whether predicted cycles compare methods: on in-order processors, whose stalls bounds leave out."""
    return model in isa.table.in_order


def serves(isa: Isa, method: str, model: str) -> bool:
    """Return whether a method is worth trying. "fip" is not on an in-order processor; that saves its search.

    On the Cortex-A53 "fip" takes 25.9 and 27.0 cycles at A3W3 and A4W4; "lookup" takes 21.6, "multiply" 24.4. "matrix"
    is for sets with matrix registers.
    """
    if method == "matrix" and isa.table.matrices is None:
        return False
    return method != "fip" or chooses(isa, model)


def tiles_of_call(kernel: Kernel) -> int:
    """Return how many tiles the predicted call has, at least one."""
    return max(1, _CALL_COLUMNS // kernel.columns)


def cycles_per_128_mac(isa: Isa, kernel: Kernel, cpu: str, depth: int = cost.AMORTISED_K) -> float:
    """Return the cycles of `cpu` for 128 multiply-accumulates over `depth` positions of K, in the predicted call."""
    return _per_128_mac(isa, kernel, cpu, depth, tiles_of_call(kernel))


def tile_cycles_per_128_mac(isa: Isa, kernel: Kernel, cpu: str) -> float:
    """Return the cycles of `cpu` for 128 multiply-accumulates in a single tile, by which tile shapes are chosen.

    The overlap of successive tiles is less certain. For A1W1 on the A72 the cycles of calls choose 12 rows by 8 columns
    (1.70 cycles predicted, 1.71 compiled), the cycles of single tiles 8 by 16 (1.71 predicted, 1.66 compiled).
    """
    return _per_128_mac(isa, kernel, cpu, cost.AMORTISED_K, 1)


def _per_128_mac(isa: Isa, kernel: Kernel, cpu: str, depth: int, tiles: int) -> float:
    return call_cycles(isa, kernel, cpu, depth, tiles) / (tiles * cost.units(kernel, depth) * kernel.rows)


@lru_cache(maxsize=1 << 12)
def call_cycles(isa: Isa, kernel: Kernel, cpu: str, depth: int = cost.AMORTISED_K, tiles: int = 1) -> int:
    """Return the cycles of `cpu` for `tiles` one after the other, each over `depth` positions of K.

    SpecError if `cpu` has no issue rules.
    """
    return scoreboard.count_cycles_of_blocks(
        isa.rules(cpu), list(_Tile(isa, kernel, cpu).blocks(-(-depth // kernel.k_step))) * tiles
    )


@dataclass(frozen=True)
class _Tile:
    """The instructions of a tile, for a processor."""

    isa: Isa
    kernel: Kernel
    cpu: str

    @property
    def rules(self) -> IssueTable:
        return self.isa.rules(self.cpu)

    @property
    def _spills_folds(self) -> bool:
        """Whether an in-order kernel keeps the accumulators of outer loops in memory."""
        return self.kernel.order not in ORDERS and folds.in_memory(self.isa, self.kernel)

    def blocks(self, steps: int) -> Iterator[Block]:
        """Yield the instructions of a tile over `steps` steps of K. Blocks that repeat are the same objects."""
        for number, chain in enumerate(self.kernel.chains):
            memo = dict[tuple[int, bool], list[Block]]()
            steps_per_flush = period(chain)
            for done in range(0, steps, steps_per_flush):
                case = min(steps_per_flush, steps - done), number == done == 0
                if case not in memo:
                    memo[case] = list(self._until_flush(chain, *case))
                yield from memo[case]

    def _until_flush(self, chain: Iterable[Pass], steps: int, first: bool) -> Iterator[Block]:
        """Yield the passes of a chain over the steps between two flushes; `first`: nothing is in the tile yet."""
        for number, loop in enumerate(chain):
            yield from self._nest(loop, steps, carried=number > 0)
            yield list(self._flush(loop, first))

    def _nest(self, loop: Pass, steps: int, *, carried: bool) -> Iterator[Block]:
        """Yield the runs of the innermost loop, each followed by the programs of the outer loops that end there."""
        folds_of = [list(self._outer(loop, level)) for level in range(1, len(loop.loops))]
        starts = [list(self._zeros(nested)) for nested in loop.loops]
        if self._first_iteration(loop):
            starts[0] = []
        for level, start in enumerate(starts):
            if level and not (carried and level == len(starts) - 1):
                yield start
        trips, done = [nested.trip_count for nested in loop.loops], 0
        counts = list(self._run_counters()) if folds_of else []
        run_steps = self._plain_steps(loop) if self.kernel.order in ORDERS else self._pipeline_steps(loop)
        while done < steps:
            if not (carried and len(trips) == 1):
                yield starts[0]
            count, run = min(trips[0], steps - done), 1
            if folds_of:
                yield counts
            yield from run_steps(count)
            done += count
            for level, fold in enumerate(folds_of, 1):
                run *= trips[level - 1]
                if done % run == 0 or done == steps:
                    yield fold
                    if level + 1 < len(trips) and done % (run * trips[level]) == 0 and done < steps:
                        yield starts[level]

    def _run_counters(self) -> Iterator[Issued]:
        """Yield the instructions that bound a run of a nest's innermost loop by the steps left and by a segment's
        steps."""
        for steps, left in (("count", "left"), ("run", "steps_here")):
            yield of_kind(self.rules, "integer", [left], ["less"])
            yield of_kind(self.rules, "integer", ["less"], [steps])
            yield of_kind(self.rules, "integer", [left, steps], [left])
            yield of_kind(self.rules, "branch", [left])
        yield of_kind(self.rules, "integer", ["runs"], ["runs"])
        yield of_kind(self.rules, "branch", ["runs"])

    def _write_step(self, loop: Pass, step: Loop) -> tuple[Loop, tuple[Step, ...]]:
        """Return a step with all its rows, and its instructions in order."""
        if self.kernel.order in ORDERS:
            by_row = self.kernel.order == "rows"
            flat = row_by_row(self.kernel, loop, step) if by_row else interleave(self.kernel, step)
            return flat, tuple(_without_repeats(flat))
        flat = pipelining.write_step(self.isa, self.kernel, loop, step)
        return flat, pipelining.list_schedule(self.isa, self.kernel, flat)

    def _plain_steps(self, loop: Pass) -> Callable[[int], Iterator[Block]]:
        """Return a function of a number of steps that yields them one by one, the first run first if there is one."""
        programs = (loop.step, loop.step.first_run if loop.step.first else loop.step)
        step, first = (self._issue_all(*self._write_step(loop, x)) + self._step_counters() for x in programs)

        def run(count: int) -> Iterator[Block]:
            for k in range(count):
                yield step if k else first

        return run

    def _pipeline_steps(self, loop: Pass) -> Callable[[int], Iterator[Block]]:
        """Return a function of a number of steps that yields the pipelined loop over them, then the rest one by one."""
        pipelined = pipelining.pipeline_loop(self.kernel, loop)
        prologue, tail = (self._issue_all(pipelined.flat, part) for part in (pipelined.prologue, pipelined.tail))
        body = list(self._iteration(pipelined))
        first, zeros = self._first_iteration(loop), list(self._zeros(loop.step))
        first_body = list(self._iteration(pipelined, first)) if first else body
        peeled = [loop.step.first_run] if loop.step.first and pipelining.peels(self.kernel) else []
        first_step, one_step = (
            self._issue_all(*self._write_step(loop, s)) + self._step_counters() for s in ([*peeled, loop.step] * 2)[:2]
        )

        def run(count: int) -> Iterator[Block]:
            iterations, left_over = divmod(count - len(peeled), pipelined.copies)
            yield from [first_step] if peeled else []
            if first and iterations == 1:
                yield from [prologue, zeros, tail]
            elif iterations:
                yield from [prologue, *[first_body] * (iterations > 1), *[body] * (iterations - 2), tail]
            yield from [one_step] * left_over

        return run

    def _first_iteration(self, loop: Pass) -> FirstIteration | None:
        """Return the first iteration of the pipelined loop, if that sets its accumulators."""
        if self.kernel.order in ORDERS:
            return None
        return begin_loop(self.kernel, loop, pipelining.pipeline_loop(self.kernel, loop))

    def _iteration(self, pipelined: pipelining.PipelinedLoop, first: FirstIteration | None = None) -> Iterator[Issued]:
        """Yield an iteration of the pipelined loop with its counters, or the `first` one."""
        at = loop_control.place_counters(self.kernel, pipelined)
        counts = {**at.pointers, "run": at.iterations}
        here = first or pipelined
        for k, (step, _ahead) in enumerate(here.body):
            yield from self._issue(step, here.flat.becomes) if step else ()
            yield from (of_kind(self.rules, "integer", [name], [name]) for name, place in counts.items() if place == k)
            if at.segment == k:
                yield of_kind(self.rules, "branch", ["steps_here"])
        yield of_kind(self.rules, "branch", ["run"])

    def _zeros(self, loop: Loop) -> Iterator[Issued]:
        """Yield the instructions that set accumulators to zero: in memory if they are an outer loop's and spilled."""
        in_memory = self.kernel.order not in ORDERS and folds.starts_in_memory(self.isa, self.kernel, loop)
        if in_memory or not loop.first or not pipelining.peels(self.kernel):
            for acc in all_accs(self.kernel, loop):
                if in_memory:
                    yield of_kind(self.rules, "store", [acc.name])
                else:
                    kind = "integer" if VecType.parse(acc.type).in_general else "move"
                    yield of_kind(self.rules, kind, (), [acc.name])

    def _issue_all(self, flat: Loop, program: Iterable[Step]) -> list[Issued]:
        return [x for step in program for x in self._issue(step, flat.becomes)]

    def _step_counters(self) -> list[Issued]:
        """Return what advances pointers and counts a step that is not pipelined."""
        places = [of_kind(self.rules, "integer", [name], [name]) for name in ("offset", "column", "run")]
        return [*places, of_kind(self.rules, "branch", ["run"])]

    def _issue(self, step: Step, becomes: dict[Value, Value]) -> Iterator[Issued]:
        """Yield an instruction, and the one for its address; with a scalar pass the next load's address comes after
        it."""
        address = "" if step.args else pointer_of(step)
        if has_address(self.isa, step) and self.kernel.active_scalar_pass:
            yield issue(self.isa, self.cpu, step, becomes, address)
            yield of_kind(self.rules, "integer", ["offset"], ["at"])
            return
        if has_address(self.isa, step):
            address = f"at_{step.dst}"
            yield of_kind(self.rules, "integer", ["offset"], [address])
        yield issue(self.isa, self.cpu, step, becomes, address)

    def _outer(self, loop: Pass, level: int) -> Iterator[Issued]:
        """Yield the program of an outer loop for every row; accumulators without a register are loaded and stored."""
        if self._spills_folds:
            yield from self._fold(folds.fold(self.kernel, loop.loops[level]))
            return
        outer, spilled = loop.loops[level], self._find_spilled(loop, level)
        for group in range(self.kernel.groups):
            for acc in outer.accs:
                name = acc.name.of_row(group)
                if name in spilled:
                    yield of_kind(self.rules, "load", ["sp"], [name])
            yield from self._program(outer.steps, group, outer.becomes)
            for acc in outer.accs:
                name = acc.name.of_row(group)
                if name in spilled:
                    yield of_kind(self.rules, "store", [name])

    def _fold(self, flat: Loop) -> Iterator[Issued]:
        """Yield a fold or a flush for an in-order processor, and the pointers to rows of the tile, two for each."""
        yield from (of_kind(self.rules, "integer", ["row"], ["row"]) for _ in range(2 * self.kernel.rows))
        for step in pipelining.order_fold(self.isa, self.kernel, flat):
            yield issue(self.isa, self.cpu, step, {})

    def _find_spilled(self, loop: Pass, level: int) -> set[Value]:
        """Return the accumulators of a loop that find no register: the last ones."""
        names = [acc.name.of_row(group) for group in range(self.kernel.groups) for acc in loop.loops[level].accs]
        return set(names[len(names) - cost.count_spilled(self.isa, self.kernel, loop, level) :])

    def _program(self, program: Iterable[Step], group: int, becomes: dict[Value, Value]) -> Iterator[Issued]:
        """Yield a program of arithmetic for a group of rows."""
        for step in program:
            own = in_row(step.rename(lambda value: becomes.get(value, value)), group)
            yield arithmetic(self.isa, self.cpu, own.op, own.args, own.dst)

    def _flush(self, loop: Pass, first: bool) -> Iterator[Issued]:
        """Yield the flush of a pass; `first`: nothing is in the tile yet."""
        if self.kernel.order in ORDERS:
            yield from self._plain_flush(loop)
        elif not loop.carries:
            shared = first and folds.shares_starts(self.isa, self.kernel)
            row_terms = self.kernel.has_row_terms
            yield from self._fold(folds.flush(self.isa, self.kernel, loop, row_terms=row_terms, shared=shared))
        elif self._spills_folds:
            yield from self._fold(folds.fold(self.kernel, loop.carried))
        else:
            yield from (x for group in range(self.kernel.groups) for x in self._program(loop.flush, group, {}))

    def _plain_flush(self, loop: Pass) -> Iterator[Issued]:
        """Yield a flush row by row: load the tile, add, store; only the additions if the pass carries."""
        memory, registers = self.kernel.memory, self.kernel.tile_registers(self.isa.table.vector_bits)
        for group in range(self.kernel.groups):
            members = range(self.kernel.together) if not loop.carries else ()
            for member in members:
                yield of_kind(self.rules, "integer", ["start"], ["start"])
                if self.kernel.has_row_terms:
                    yield of_kind(self.rules, "broadcast", ["start"], ["more"])
                for r in range(registers):
                    name = Value.of(Role.TILE, member * registers + r, row=group)
                    yield of_kind(self.rules, "load", ["start"], [name])
                    if self.kernel.has_row_terms:
                        yield arithmetic(self.isa, self.cpu, memory.add_tile, [name, "more"], name)
            yield from self._program(loop.flush, group, {})
            for member in members:
                yield of_kind(self.rules, "integer", ["end"], ["end"])
                own = loop.tile[member * registers : (member + 1) * registers]
                yield from (of_kind(self.rules, "store", [t.of_row(group), "end"]) for t in own)


def _without_repeats(flat: Loop) -> Iterator[Step]:
    """Yield the instructions of a step, except repeated computations of a value, which compilers eliminate.

    The paper's kernels have some: they sum up a row once for each column.
    """
    computed = dict[tuple[str, tuple[Value, ...], int], Value]()
    same = dict[Value, Value]()
    for step in flat.steps:
        args = tuple(same.get(a, a) for a in step.args)
        key = step.op, args, step.imm
        if args and key in computed and step.dst not in flat.becomes:
            same[step.dst] = computed[key]
        else:
            computed[key] = step.dst
            yield Step(step.dst, *key)

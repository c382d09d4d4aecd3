"""C of a step with its instructions ordered for an in-order processor.

The loop is software-pipelined: an iteration loads inputs of the next step while it computes the current one, so that
the first iteration (the prologue) is written apart.

Some values of a step may overwrite the register of an accumulator before the step ends; they are found here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from bitsynth.emit.kernel_inputs import InputPlaces
from bitsynth.emit.render import block, declare
from bitsynth.emit.statements import Scope
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.isa.types import WORD, VecType
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.in_order import loop_control, pipelining
from bitsynth.kernel.in_order.first_iteration import FirstIteration, begin_loop
from bitsynth.kernel.in_order.folds import in_registers
from bitsynth.kernel.in_order.loop_control import has_address, pointer_of
from bitsynth.kernel.program import ORDERS, Acc, Kernel, Loop, Pass


def in_place(isa: Isa, flat: Loop, program: Sequence[Step]) -> dict[Value, Acc]:
    """Return the values of a program of all rows that overwrite their accumulator, intermediate values included."""
    early = early_values(isa, flat, program)
    return early | values_before(isa, flat, early)


def early_values(isa: Isa, loop: Loop, program: Sequence[Step]) -> dict[Value, Acc]:
    """Return the values that can overwrite their accumulator: no later instruction reads the old value."""
    last = {name: k for k, step in enumerate(program) for name in step.args}
    place = {step.dst: k for k, step in enumerate(program)}
    out: dict[Value, Acc] = {}
    for acc in loop.accs:
        k = place.get(acc.next)
        same = k is not None and isa[program[k].op].out.in_c_as(VecType.parse(acc.type))
        if k is not None and same and acc.next not in out and last.get(acc.name, -1) <= k:
            out[acc.next] = acc
    return out


def values_before(isa: Isa, loop: Loop, early: Mapping[Value, Acc]) -> dict[Value, Acc]:
    """Return intermediate values of an accumulator's update whose instructions overwrite their operand."""
    writer, out = {step.dst: step for step in loop.steps}, dict[Value, Acc]()
    reads = Counter(a for step in loop.steps for a in step.args)
    for last, acc in early.items():
        value, between = _overwritten(isa, writer[last]), list[Value]()
        while (
            value is not None
            and value in writer
            and reads[value] == reads[acc.name] == 1
            and str(isa[writer[value].op].out) == acc.type
        ):
            between.append(value)
            value = _overwritten(isa, writer[value])
        out |= dict.fromkeys(between, acc) if value == acc.name else {}
    return out


def _overwritten(isa: Isa, step: Step) -> Value | None:
    """Return the operand that the step's result overwrites; None if there is none."""
    pairs = zip(step.args, isa[step.op].operands, strict=True)
    return next((a for a, o in pairs if o.name in isa[step.op].tied), None)


PlacedInstruction = tuple[Step | None, str | None]
"""An instruction, and the address it reads if it is a load."""


@dataclass(frozen=True)
class OrderedSteps:
    """The statements of the steps of a pass."""

    isa: Isa
    kernel: Kernel
    loop: Pass

    @property
    def _found(self) -> pipelining.PipelinedLoop:
        return pipelining.pipeline_loop(self.kernel, self.loop)

    @property
    def _beginning(self) -> FirstIteration | None:
        return begin_loop(self.kernel, self.loop, self._found)

    @property
    def crosses(self) -> bool:
        """Whether the loop runs across segments of rows."""
        return (
            self.kernel.order not in ORDERS
            and loop_control.place_counters(self.kernel, self._found).segment is not None
        )

    @property
    def begins(self) -> bool:
        """Whether the first iteration of the loop sets its accumulators."""
        return self.crosses and self._beginning is not None

    def across(self, scope: Scope, next_segment: Sequence[str]) -> list[str]:
        """Return statements that take all `count` steps, of one segment after the other."""
        return ["size_t iterations = count;", *self._several(scope, next_segment), "--steps_here;"]

    def runs(self, scope: Scope, advance: list[str]) -> list[str]:
        """Return statements that take all `run` steps: several at once while there are as many, then one by one."""
        copies, pipelined = self._found.copies, block("if (iterations > 0)", self._several(scope))
        if copies == 1:
            return ["size_t iterations = run;", "run = 0;", *pipelined]
        out = [f"size_t iterations = run / {copies};", f"run -= iterations * {copies};", *pipelined]
        return out + block("for (; run > 0; --run)", [*self.alone(self.loop.step, scope), *advance])

    def _several(self, scope: Scope, next_segment: Sequence[str] = ()) -> list[str]:
        """Return statements that take as many steps as `iterations` have."""
        loop, outer = self._found, scope.inner()
        step = InputPlaces(self.isa, self.kernel, self.loop)
        carried = list(self._declare_carried(loop, outer))
        before = self._instructions(loop.flat, loop.prologue, outer, loop.carried, step.of_copies(loop.copies))
        after = self._instructions(loop.flat, loop.tail, outer, loop.carried, step.of_copies(loop.copies))
        after = [*scope.settle("offset"), *after]
        high, advance = self._high((line for line, _ in loop.body), outer), step.advance(loop.copies)
        iteration = block("for (; iterations > 0;)", self._iteration(loop, outer, advance, next_segment))
        start = self._start(outer, advance, next_segment) if self.begins else []
        body = [*carried, *high, *block("", before), "--iterations;", *start, *iteration, *block("", after)]
        return [*body, advance["offset"], advance["column"]]

    def _start(self, scope: Scope, advance: Mapping[str, str], next_segment: Sequence[str]) -> list[str]:
        """Return the first iteration, which sets accumulators; they start at zero if it is the only one."""
        accs = ((acc.name, VecType.parse(acc.type)) for acc in self._found.flat.accs)
        zeros = [f"{name} = {scope.zero(self.kernel.memory.load, kind)};" for name, kind in accs]
        assert self._beginning is not None
        first = self._iteration(self._beginning, scope, advance, next_segment)
        return [*block("if (iterations > 0)", first), *block("else", zeros)]

    def alone(self, step: Loop, scope: Scope) -> list[str]:
        """Return statements of one run of the step, or of its first."""
        flat = pipelining.write_step(self.isa, self.kernel, self.loop, step)
        lines = pipelining.list_schedule(self.isa, self.kernel, flat)
        places = InputPlaces(self.isa, self.kernel, self.loop).of_copies(1)
        return [*self._high(lines, scope), *self._instructions(flat, lines, scope, (), places)]

    def _high(self, lines: Iterable[Step], scope: Scope) -> list[str]:
        """Return the declaration of `high`, if instructions address by it."""
        if all(line.args or pointer_of(line) != "high" for line in lines):
            return []
        return [f"size_t {self._set_high}", *scope.settle("high")]

    @property
    def _set_high(self) -> str:
        return f"high = offset + {self.isa.word.lanes // 2};"

    def _iteration(
        self,
        iteration: pipelining.PipelinedLoop | FirstIteration,
        scope: Scope,
        advance: Mapping[str, str],
        next_segment: Sequence[str],
    ) -> list[str]:
        """Return an iteration, the first or a later one. Once pointers have advanced, loads are of the next step."""
        loop, inputs = self._found, InputPlaces(self.isa, self.kernel, self.loop)
        counted = loop_control.place_counters(self.kernel, loop)
        here, following = (inputs.of_copies(loop.copies, ahead) for ahead in (0, 1))
        where = list[PlacedInstruction]()
        for k, (line, later) in enumerate(iteration.body):
            moved = line and not line.args and k > counted.pointers[pointer_of(line)]
            where.append((line, _place(line, following if later and not moved else here)))
        counts, moves = (
            defaultdict[int, list[str]](list),
            {**advance, "iterations": "--iterations;", "steps_here": "--steps_here;"},
        )
        for name, k in (*counted.pointers.items(), ("iterations", counted.iterations)):
            if name != "high" or not next_segment:
                counts[k] += [moves[name], *scope.settle(name)]
        if counted.segment is not None:
            counts[counted.segment] += [*next_segment, *scope.settle("offset")]
            if "high" in counted.pointers:
                counts[counted.segment] += [self._set_high, *scope.settle("high")]
        for k, lines in self._fetches(loop.copies, counted.left, scope):
            counts[k] += lines
        own, inside = [line for line, later in iteration.body if line and not later], scope.inner()
        first = self._point(where, counted, counts, inside) if self.kernel.active_scalar_pass else []
        return [*first, *self._statements(iteration.flat, own, where, inside, loop.carried, counts)]

    def _point(
        self,
        where: list[PlacedInstruction],
        counted: loop_control.CounterPlaces,
        counts: dict[int, list[str]],
        scope: Scope,
    ) -> list[str]:
        """Place the computation of row addresses after an earlier broadcast, noted in `counts`; return the first's.

        An address computed where it is needed costs a cycle if no instruction is left to issue with it.
        """
        moves = [k for k in (counted.pointers["offset"], counted.segment) if k is not None]
        first, before = list[str](), -1
        for k, (line, place) in enumerate(where):
            if line is None or place is None or not has_address(self.isa, line):
                continue
            behind = max([before, *(m for m in moves if m < k)])
            name = f"at_{line.dst}"
            statements = [f"const uint8_t *{name} = {place};", *scope.settle(name)]
            (first if behind < 0 else counts[behind]).extend(statements)
            where[k], before = (line, name), k
        return first

    def _fetches(self, copies: int, left: Sequence[int], scope: Scope) -> Iterator[tuple[int, list[str]]]:
        """Yield prefetch statements, each with the number of the instruction that it follows."""
        inputs = InputPlaces(self.isa, self.kernel, self.loop)
        if left and (asked := inputs.get_prefetch_distance(Role.ROW, copies)):
            yield left[0], [f"size_t ahead = offset + {asked};", *scope.settle("ahead")]
            left = left[1:]
        places = inputs.list_prefetches(copies)[: len(left)]
        for number, place in enumerate(places):
            yield left[number * len(left) // len(places)], scope.prefetch(place)

    def _instructions(
        self, flat: Loop, lines: Iterable[Step], scope: Scope, carried: Iterable[Value], places: Mapping[Value, str]
    ) -> list[str]:
        lines = list(lines)
        own = [s for s in lines if any(s.dst == acc.next for acc in flat.accs)] and lines
        return list(self._statements(flat, own, [(s, _place(s, places)) for s in lines], scope.inner(), carried))

    def _statements(
        self,
        flat: Loop,
        own: Iterable[Step],
        lines: Iterable[PlacedInstruction],
        scope: Scope,
        carried: Iterable[Value],
        behind: Mapping[int, Sequence[str]] = MappingProxyType({}),
    ) -> Iterator[str]:
        """Yield a statement for each instruction, and what pins it to its place; `own` set accumulators.

        Statements in `behind` follow the instruction of that number; None among the instructions gives no statement.
        """
        own = list(own)
        early = in_place(self.isa, flat, own)

        def rename(value: Value) -> Value:
            return early[value].name if value in early else value

        declared_before = {*early, *carried}
        for k, (step, place) in enumerate(lines):
            if step:
                yield from self._statement(step, place, scope, rename, declares=step.dst not in declared_before)
            yield from behind.get(k, ())
        for acc in flat.accs:
            if own and acc.next not in early:
                yield f"{acc.name} = {scope.view(acc.next, VecType.parse(acc.type))};"

    def _statement(
        self, step: Step, place: str | None, scope: Scope, named: Callable[[Value], Value], *, declares: bool
    ) -> Iterator[str]:
        """Yield the statement of an instruction, and what pins it to its place; it `declares` its result."""
        name = named(step.dst)
        if name.part.in_general and place is not None:
            yield from scope.half(name, place, declares=declares)
            return
        value = scope.value(step, named) if place is None else self._load(step, place, scope)
        yield scope.declare(name, self.isa[step.op].out, value) if declares else f"{name} = {value};"
        yield from scope.hold(name) if step.args or in_registers(self.isa, self.kernel) else scope.pin(name)

    def _load(self, step: Step, place: str, scope: Scope) -> str:
        repeats = step.op == self.kernel.memory.broadcast != self.kernel.memory.load
        return scope.call(self.isa[step.op], [scope.address(place) if repeats and " " in place else place])

    def _declare_carried(self, loop: pipelining.PipelinedLoop, scope: Scope) -> Iterator[str]:
        """Yield declarations of the values that a step takes from the iteration before."""
        types = {step.dst: WORD if step.dst.part.in_general else self.isa[step.op].out for step in loop.prologue}
        for kind in dict.fromkeys(types[name] for name in loop.carried):
            names = [name for name in loop.carried if types[name] == kind]
            scope.types |= dict.fromkeys(names, kind)
            yield from declare(scope.ctype(kind), names)


def _place(step: Step | None, places: Mapping[Value, str]) -> str | None:
    """Return the address that a load reads; None for other instructions."""
    return None if step is None or step.args else places[step.dst]

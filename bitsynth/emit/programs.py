"""C statements of a kernel's programs: starts, steps and outer loops, with all rows unrolled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from bitsynth.emit.flushes import Flushes
from bitsynth.emit.in_order import OrderedSteps, early_values, in_place
from bitsynth.emit.kernel_inputs import InputPlaces
from bitsynth.emit.matrix_steps import MatrixSteps
from bitsynth.emit.render import declare
from bitsynth.emit.statements import Scope, enclose, names_of_row
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Value
from bitsynth.kernel.in_order import folds, pipelining
from bitsynth.kernel.order import all_accs, interleave
from bitsynth.kernel.program import ORDERS, Kernel, Loop, Pass, row_free


@dataclass(frozen=True)
class Programs:
    """The statements of one kernel. Callers pass the scope, as visible variables depend on the loop nest."""

    isa: Isa
    kernel: Kernel
    flushes: Flushes

    @property
    def in_order(self) -> bool:
        """Whether steps are ordered for an in-order processor."""
        return self.kernel.order not in ORDERS

    @property
    def matrices(self) -> MatrixSteps | None:
        """The statements of steps on matrix registers; None if steps are on others."""
        return MatrixSteps(self.isa, self.kernel) if self.kernel.in_matrices else None

    @property
    def uses_zero(self) -> bool:
        """Whether statements read a register of zeros."""
        if self.kernel.in_matrices:
            return self.flushes.row_terms
        return (
            self.flushes.row_terms
            or not pipelining.peels(self.kernel)
            or not all(n.first for p in self.kernel.passes for n in p.loops)
        )

    def memory(self) -> list[str]:
        """Return declarations of memory: for accumulators that are not in registers, and for rows of matrices."""
        if self.matrices:
            return self.matrices.memory()
        return self.flushes.folds.declare_sums() if self.in_order else []

    def start(self, loop: Loop, scope: Scope, *, begun: bool = False) -> list[str]:
        """Return the loop's accumulators at zero, unless its first run, or if `begun` first iteration, sets them."""
        if self.in_order and folds.starts_in_memory(self.isa, self.kernel, loop):
            return self.flushes.folds.zeros(loop, scope)
        kinds: dict[str, VecType] = {acc.name: VecType.parse(acc.type) for acc in all_accs(self.kernel, loop)}
        scope.types |= kinds
        if not begun and (not loop.first or not pipelining.peels(self.kernel)):
            load = self.kernel.memory.load
            return [scope.declare(name, kind, scope.zero(load, kind)) for name, kind in kinds.items()]
        by_type = groupby(kinds, lambda name: scope.ctype(kinds[name]))
        return [line for ctype, names in by_type for line in declare(ctype, list(names))]

    def first(self, loop: Pass, scope: Scope) -> list[str]:
        """Return the first run of the step, if it sets accumulators; pipelined loops set them in an iteration."""
        if not loop.step.first or not pipelining.peels(self.kernel):
            return []
        run = loop.step.first_run
        return (
            OrderedSteps(self.isa, self.kernel, loop).alone(run, scope)
            if self.in_order
            else self.step(loop, run, scope)
        )

    def step(self, loop: Pass, step: Loop, scope: Scope) -> list[str]:
        """Yield the statements of a step: loads of columns and values of these alone, then the program of each row."""
        if self.kernel.order == "steps":
            return self._interleave(loop, step, scope.inner())
        scope, program, free = scope.inner(), step.steps, row_free(step.steps)
        out = list(self._columns(loop, program, scope))
        out += scope.steps([s for s in program if s.dst in free])
        for group in range(self.kernel.groups):
            inner = scope.inner()
            lines = list(self._row_inputs(loop, group, program, inner))
            lines += self._row(group, step, [s for s in program if s.dst not in free], inner)
            out += enclose(self.kernel, group, lines)
        return out

    def _interleave(self, loop: Pass, step: Loop, scope: Scope) -> list[str]:
        """Return the step as one program of all rows: pins keep loads and new accumulators in their places."""
        flat, places, out = interleave(self.kernel, step), InputPlaces(self.isa, self.kernel, loop).all(), list[str]()
        soon = in_place(self.isa, flat, flat.steps)

        def rename(value: Value) -> Value:
            return soon[value].name if value in soon else value

        for line in flat.steps:
            if line.dst in places:
                out += [scope.load(line.op, line.dst, places[line.dst]), *scope.pin(line.dst)]
            elif line.dst in soon:
                out += [
                    f"{rename(line.dst)} = {scope.value(line, rename)};",
                    *scope.pin(rename(line.dst)),
                ]
            else:
                out.append(scope.step(line, rename))
        late = (acc for acc in flat.accs if acc.next not in soon)
        return out + [f"{acc.name} = {scope.view(acc.next, VecType.parse(acc.type))};" for acc in late]

    def _columns(self, loop: Pass, program: Sequence[Step], scope: Scope) -> Iterator[str]:
        for name, place in InputPlaces(self.isa, self.kernel, loop).columns():
            yield scope.load(self.kernel.memory.load, name, place)
            yield from _pin(scope, name, program, self.kernel.groups)

    def _row_inputs(self, loop: Pass, group: int, program: Sequence[Step], scope: Scope) -> Iterator[str]:
        for name, place in InputPlaces(self.isa, self.kernel, loop).group(group):
            yield scope.load(self.kernel.memory.broadcast, name, place)
            yield from _pin(scope, name, program, 1)

    def widen(self, loop: Loop, scope: Scope) -> list[str]:
        """Return the program of an outer loop, once a row; accumulators of both loops go by their row."""
        if self.in_order and folds.in_memory(self.isa, self.kernel):
            return self.flushes.folds.fold(loop, scope)
        rows = (
            enclose(self.kernel, group, self._row(group, loop, loop.steps, scope.inner()))
            for group in range(self.kernel.groups)
        )
        return [line for lines in rows for line in lines]

    def _row(self, group: int, loop: Loop, program: Sequence[Step], scope: Scope) -> list[str]:
        """Return the program of one row; an accumulator is overwritten right after the last read of its old value.

        Until then both would take a register, and moves at the end of the step.
        """
        rename, soon = names_of_row(group), early_values(self.isa, loop, program)
        place = {dst: rename(acc.name) for dst, acc in soon.items()}
        pinned = self.isa.table.pin_peeled or not loop.first

        def name_place(value: Value) -> str:
            return place.get(value, rename(value))

        def becomes(name: str, value: str) -> list[str]:
            return [f"{name} = {value};", *(scope.pin(name) if pinned else [])]

        lines: list[str] = []
        for step in program:
            if step.dst in soon:
                lines += becomes(name_place(step.dst), scope.value(step, name_place))
            else:
                lines.append(scope.step(step, name_place))
        for acc in loop.accs:
            if acc.next not in soon:
                lines += becomes(rename(acc.name), scope.view(name_place(acc.next), VecType.parse(acc.type)))
        return lines


def _pin(scope: Scope, name: Value, program: Sequence[Step], times: int) -> list[str]:
    """Return statements that keep a register that is read more than once from being loaded more than once."""
    reads = sum(s.args.count(name) for s in program)
    return scope.pin(name) if reads * times > 1 else []

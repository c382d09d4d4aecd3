"""The C statements of a kernel's programs: starts, steps, outer loops and flushes, all rows written out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import msgspec

from bitsynth.emit.lines import block, declared, indented
from bitsynth.emit.ordered import OrderedSteps
from bitsynth.emit.ordered_folds import OrderedFolds
from bitsynth.emit.overwriting import early_values, in_place
from bitsynth.emit.places import InputPlaces
from bitsynth.emit.statements import Rename, Scope
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.isa.types import VecType
from bitsynth.kernel import ahead
from bitsynth.kernel.order import interleaved
from bitsynth.kernel.program import ORDERS, Kernel, Loop, Pass, row_free


@dataclass(frozen=True)
class Programs:
    """The statements of one kernel; scopes come from outside, as what is in sight depends on the nest of loops.

    Sums start from terms of rows too if there are `row_terms`. What a flush adds, with those, is doubled `doublings`
    times, and sums are shifted right by `shift` bits when they are stored for the last time.
    """

    isa: Isa
    kernel: Kernel
    row_terms: bool
    shift: int
    doublings: int

    @property
    def _tile_registers(self) -> int:
        return self.kernel.tile_registers(self.isa.table.vector_bits)

    @property
    def in_order(self) -> bool:
        """Whether steps are ordered for an in-order processor."""
        return self.kernel.order not in ORDERS

    @property
    def uses_zero(self) -> bool:
        """Whether statements read a register of zeros."""
        return (
            self.row_terms
            or self.doublings > 0
            or not ahead.peels(self.kernel)
            or not all(n.first for p in self.kernel.passes for n in p.loops)
        )

    @property
    def _folds(self) -> OrderedFolds:
        return OrderedFolds(self.isa, self.kernel, self.row_terms)

    def sums(self) -> list[str]:
        """Declarations of memory for accumulators that are not in registers."""
        return self._folds.declared() if self.in_order else []

    def start(self, loop: Loop, scope: Scope) -> list[str]:
        """Declarations of the loop's accumulators, at zero unless its first run sets them."""
        if self.in_order and self._folds.in_memory and all(loop != p.step for p in self.kernel.passes):
            return self._folds.zeros(loop, scope)
        accs = [(f"{acc.name}_{row}", acc) for row in range(self.kernel.rows) for acc in loop.accs]
        kinds = {name: VecType.parse(acc.type) for name, acc in accs}
        scope.types |= kinds
        if not loop.first or not ahead.peels(self.kernel):
            return [scope.load(self.kernel.memory.load, name, "zero", view=kind) for name, kind in kinds.items()]
        by_type = groupby(kinds, lambda name: scope.ctype(kinds[name]))
        return [line for ctype, names in by_type for line in declared(ctype, list(names))]

    def first(self, loop: Pass, scope: Scope) -> list[str]:
        """The first run of the step, if it sets the accumulators; they start at zero where lines are ahead."""
        if not ahead.peels(self.kernel):
            return []
        accs = tuple(msgspec.structs.replace(acc, next=acc.start) for acc in loop.step.accs)
        run = msgspec.structs.replace(loop.step, program=loop.step.first, accs=accs, first=())
        if not loop.step.first:
            return []
        return (
            OrderedSteps(self.isa, self.kernel, loop).alone(run, scope)
            if self.in_order
            else self.step(loop, run, scope)
        )

    def step(self, loop: Pass, step: Loop, scope: Scope) -> list[str]:
        """Loads of columns and what depends on nothing else, then the row program once a row."""
        if self.kernel.order == "steps":
            return self._interleaved(loop, step, scope.inner())
        scope, program, free = scope.inner(), step.steps, row_free(step.steps)
        out = list(self._columns(loop, program, scope))
        out += scope.steps([s for s in program if s.dst in free])
        for row in range(self.kernel.rows):
            inner = scope.inner()
            lines = list(self._row_inputs(loop, row, program, inner))
            lines += self._row(row, step, [s for s in program if s.dst not in free], inner)
            out += self._braced(row, lines)
        return out

    def _interleaved(self, loop: Pass, step: Loop, scope: Scope) -> list[str]:
        """All rows of the step in one program: pins keep what is loaded, and what accumulators become, in its place."""
        flat, places, out = interleaved(self.kernel, step), InputPlaces(self.isa, self.kernel, loop).all(), list[str]()
        soon = in_place(self.isa, flat, flat.steps)

        def named(name: str) -> str:
            return soon[name].name if name in soon else name

        for line in flat.steps:
            if line.dst in places:
                out += [scope.load(line.op, line.dst, places[line.dst]), *scope.pin(line.dst)]
            elif line.dst in soon:
                out += [f"{named(line.dst)} = {scope.value(line, named)};", *scope.pin(named(line.dst))]
            else:
                out.append(scope.step(line, named))
        late = (acc for acc in flat.accs if acc.next not in soon)
        return out + [f"{acc.name} = {scope.viewed(acc.next, VecType.parse(acc.type))};" for acc in late]

    def _columns(self, loop: Pass, program: Sequence[Step], scope: Scope) -> Iterator[str]:
        for name, place in InputPlaces(self.isa, self.kernel, loop).columns():
            yield scope.load(self.kernel.memory.load, name, place)
            yield from _pinned(scope, name, program, self.kernel.rows)

    def _row_inputs(self, loop: Pass, row: int, program: Sequence[Step], scope: Scope) -> Iterator[str]:
        for name, place in InputPlaces(self.isa, self.kernel, loop).row(row):
            yield scope.load(self.kernel.memory.broadcast, name, place)
            yield from _pinned(scope, name, program, 1)

    def widen(self, loop: Loop, scope: Scope) -> list[str]:
        """The program of an outer loop, once a row; accumulators of both loops go by their row."""
        if self.in_order and self._folds.in_memory:
            return self._folds.fold(loop, scope)
        rows = (self._braced(row, self._row(row, loop, loop.steps, scope.inner())) for row in range(self.kernel.rows))
        return [line for lines in rows for line in lines]

    def without_steps(self, scope: Scope) -> list[str]:
        """The tile if K is 0: every row starts at g, plus h of the row."""
        kernel, scope = self.kernel, scope.inner()
        lines = [scope.load(kernel.memory.load_tile, "start", "g + column")]
        if self.row_terms:
            lines.append(scope.load(kernel.memory.broadcast_tile, "more", "h + row"))
            instr = self.isa[kernel.memory.add_tile]
            args = [scope.viewed(x, o.type) for x, o in zip(("start", "more"), instr.operands, strict=True)]
            lines.append(scope.declare("both", instr.out, scope.call(instr, args)))
        last = "both" if self.row_terms else "start"
        lines += self._shifted([last], scope)
        lines.append(scope.store(kernel.memory.store_tile, last, "c + row * ldc + column"))
        inner = block(f"for (size_t column = 0; column < COLUMNS; column += {self.isa.tile.lanes})", lines)
        return ["for (size_t row = 0; row < ROWS; ++row)", *indented(inner)]

    def flush(self, loop: Pass, scope: Scope) -> list[str]:
        """Statements that add every row's sums to its tile."""
        last = self.shift > 0 and loop is self.kernel.chains[-1][-1]
        if self.in_order:
            plain = self._folds.flush(loop, scope)
            if not last:
                return block("", plain)
            shifted = self._folds.flush(loop, scope, self._shifted)
            return block("if (steps_left == block)", shifted) + block("if (steps_left != block)", plain)
        out, store = [], self.kernel.memory.store_tile
        for row in range(self.kernel.rows):
            inner = scope.inner()
            lines = self._sums(row, loop, inner)
            if last:
                lines += block("if (steps_left == block)", self._shifted(loop.tile, inner))
            lines.append("/* Write back. */")
            places = (_plus(_row_of("c", "ldc", row), r * self.isa.tile.lanes) for r in range(self._tile_registers))
            lines += [inner.store(store, name, place) for name, place in zip(loop.tile, places, strict=True)]
            out += self._braced(row, lines)
        return out

    def _sums(self, row: int, loop: Pass, scope: Scope) -> list[str]:
        """The row's tile registers after a flush: `loop.tile`."""
        flush = partial(scope.steps, loop.flush_steps, _of_row(row))
        if not self.doublings:
            return [*self._row_terms(row, scope), *self._tile(row, scope, "c", self.row_terms), *flush()]
        lines, kind = self._row_terms(row, scope), self.isa[self.kernel.memory.load_tile].out
        for r in range(self._tile_registers):
            if self.row_terms:
                lines.append(scope.declare(f"c{r}", kind, scope.viewed("more", kind)))
            else:
                lines.append(scope.load(self.kernel.memory.load_tile, f"c{r}", "zero"))
        lines += flush()
        lines += [self._added(name, name, scope) for name in loop.tile for _ in range(self.doublings)]
        lines += self._tile(row, scope, "before")
        return lines + [self._added(name, f"before{r}", scope) for r, name in enumerate(loop.tile)]

    def _added(self, name: str, other: str, scope: Scope) -> str:
        """The statement that adds a tile register to another one."""
        add = self.isa[self.kernel.memory.add_tile]
        args = [scope.viewed(x, o.type) for x, o in zip((name, other), add.operands, strict=True)]
        return f"{name} = {scope.cast(scope.call(add, args), add.out, scope.types[name])};"

    def _row_terms(self, row: int, scope: Scope) -> list[str]:
        """The row's terms before a flush, in all lanes of `more`: 0 but at the first."""
        place = _row_of("row_start", "row_start_ld", row)
        return [scope.load(self.kernel.memory.broadcast_tile, "more", place)] if self.row_terms else []

    def _tile(self, row: int, scope: Scope, prefix: str, with_terms: bool = False) -> list[str]:
        """The row's tile before a flush, in registers of that prefix: where it starts at the first, or what was stored.

        Terms of the row are added if it is to be `with_terms`.
        """
        lines = []
        for r in range(self._tile_registers):
            place = _plus(_row_of("start", "start_ld", row), r * self.isa.tile.lanes)
            lines.append(scope.load(self.kernel.memory.load_tile, f"{prefix}{r}", place))
            if with_terms:
                lines.append(self._added(f"{prefix}{r}", "more", scope))
        return lines

    def _shifted(self, names: Sequence[str], scope: Scope) -> list[str]:
        """Statements that shift tile registers to the right, copies of the sign moving in."""
        if not self.shift:
            return []
        shift = _sign_shift(self.isa)
        calls = [scope.call(shift, [scope.viewed(name, shift.operands[0].type)], self.shift) for name in names]
        return [
            f"{name} = {scope.cast(value, shift.out, scope.types[name])};"
            for name, value in zip(names, calls, strict=True)
        ]

    def _row(self, row: int, loop: Loop, program: Sequence[Step], scope: Scope) -> list[str]:
        """The program of one row; an accumulator gets its new value as soon as the old one is read for the last time.

        Until then both would take a register, and moves at the end of the step.
        """
        rename, soon = _of_row(row), early_values(self.isa, loop, program)
        place = {dst: rename(acc.name) for dst, acc in soon.items()}
        pinned = self.isa.table.pin_peeled or not loop.first

        def named(name: str) -> str:
            return place.get(name, rename(name))

        def becomes(name: str, value: str) -> list[str]:
            return [f"{name} = {value};", *(scope.pin(name) if pinned else [])]

        lines: list[str] = []
        for step in program:
            if step.dst in soon:
                lines += becomes(named(step.dst), scope.value(step, named))
            else:
                lines.append(scope.step(step, named))
        for acc in loop.accs:
            if acc.next not in soon:
                lines += becomes(rename(acc.name), scope.viewed(named(acc.next), VecType.parse(acc.type)))
        return lines

    def _braced(self, row: int, lines: Sequence[str]) -> list[str]:
        """The statements of a row, which is named if there are several."""
        first, *rest = block("", lines)
        return [f"{first} /* row {row} */" if self.kernel.rows > 1 else first, *rest]


def _sign_shift(isa: Isa) -> Instr:
    """The instruction that shifts lanes of the tile right, copies of the sign moving in."""
    lanes = VecType("s", 32, isa.tile.lanes)
    return next(isa[name] for op in ("sra", "sshr") if (name := f"{op}.{lanes!s}") in isa.instrs)


def _pinned(scope: Scope, name: str, program: Sequence[Step], times: int) -> list[str]:
    """Statements that keep a register that is read more than once from being loaded more than once."""
    reads = sum(s.args.count(name) for s in program)
    return scope.pin(name) if reads * times > 1 else []


def _of_row(row: int) -> Rename:
    """C names of one row: its accumulators carry its number."""
    return lambda name: f"{name}_{row}" if name.startswith("acc") else name


def _row_of(base: str, stride: str, row: int) -> str:
    """The start of row `row` of an array whose rows are `stride` apart."""
    return f"{base} + {stride}" if row == 1 else f"{base} + {row} * {stride}" if row else base


def _plus(place: str, distance: int) -> str:
    return f"{place} + {distance}" if distance else place

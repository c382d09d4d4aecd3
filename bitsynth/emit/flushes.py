"""C statements of flushes: add accumulators to the rows of the tile, and convert them to values at the last store.

For an in-order processor, folds and flushes have its order; accumulators of outer loops are spilled between folds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bitsynth.emit.matrix_steps import MatrixSteps
from bitsynth.emit.render import block, indent_lines
from bitsynth.emit.statements import Scope, enclose, names_of_row
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.isa.value import Part, Role, Value
from bitsynth.kernel.in_order import folds, pipelining
from bitsynth.kernel.program import ORDERS, Kernel, Loop, Pass
from bitsynth.kernel.straight_line import sign_shift


@dataclass(frozen=True)
class Pointer:
    """A pointer to 32-bit elements: `sum` to spilled accumulators, or one of STARTS to the tile of a row."""

    base: str
    row: int | None = None

    def __str__(self) -> str:
        return self.base if self.row is None else f"{self.base}_{self.row}"


Addresses = dict[Value, tuple[Pointer, int]]
"""Addresses of loads and stores, by the value that is moved: a pointer, and an offset in elements."""

Shift = Callable[[Sequence[Value], Scope], list[str]]
"""A function to statements that shift tile registers."""

_SUMS = "uint32_t *sum = sums;"


@dataclass(frozen=True)
class OrderedFolds:
    """The statements of folds and flushes of a kernel.

    With `row_terms`, accumulators start from the terms of rows too, doubled `doublings` times.
    """

    isa: Isa
    kernel: Kernel
    row_terms: bool
    doublings: int

    @property
    def _in_memory(self) -> bool:
        """Whether accumulators of outer loops are spilled to memory."""
        return folds.in_memory(self.isa, self.kernel)

    def declare_sums(self) -> list[str]:
        """Return the memory that sums of outer loops lie in."""
        size = len(self._sums()) * self.isa.tile.lanes
        return [f"uint32_t sums[{size}];"] if size and self._in_memory else []

    def zeros(self, loop: Loop, scope: Scope) -> list[str]:
        """Return statements that set the sums of an outer loop to zero."""
        scope, store = scope.inner(), self.kernel.memory.store_tile
        names = [acc.name.of_row(group) for group in range(self.kernel.groups) for acc in loop.accs]
        lines = [_SUMS, *scope.settle("sum"), scope.load(self.kernel.memory.load, "empty", "zero")]
        return block("", [*lines, *(scope.store(store, "empty", _at(self._sums()[name])) for name in names)])

    def fold(self, outer: Loop, scope: Scope) -> list[str]:
        """Return statements that add the sums of a loop to the sums of the loop around it."""
        scope = scope.inner()
        lines = pipelining.order_fold(self.isa, self.kernel, folds.fold(self.kernel, outer))
        return block("", [_SUMS, *scope.settle("sum"), *self._instructions(lines, self._sums(), scope)])

    def flush(self, loop: Pass, scope: Scope, shift: Shift | None = None) -> list[str]:
        """Return statements that add every row's sums to its tile, and `shift` them before they are stored."""
        lines = self._flush(loop, scope, shift, shared=False)
        if not folds.shares_starts(self.isa, self.kernel):
            return lines
        return block("if (start_ld == 0)", self._flush(loop, scope, shift, shared=True)) + block("else", lines)

    def _flush(self, loop: Pass, scope: Scope, shift: Shift | None, *, shared: bool) -> list[str]:
        scope = scope.inner()
        flat = folds.flush(
            self.isa, self.kernel, loop, row_terms=self.row_terms, doublings=self.doublings, shared=shared
        )
        sums = [_SUMS, *scope.settle("sum")] if folds.outer_accs(loop) and self._in_memory else []
        lines = self._instructions(
            pipelining.order_fold(self.isa, self.kernel, flat), self._sums() | self._tiles(), scope, shift
        )
        return [*sums, *lines]

    @property
    def _tile(self) -> int:
        return self.kernel.tile_registers(self.isa.table.vector_bits)

    def _sums(self) -> Addresses:
        accs = dict.fromkeys(acc.name for p in self.kernel.passes for acc in folds.outer_accs(p))
        values = [acc.of_row(group) for group in range(self.kernel.groups) for acc in accs]
        return {value: (Pointer("sum"), k * self.isa.tile.lanes) for k, value in enumerate(values)}

    def _tiles(self) -> Addresses:
        out: Addresses = {}
        for row in range(self.kernel.rows):
            out[Value.of(Role.TERM, row=row)] = Pointer("terms", row), 0
            group, member = divmod(row, self.kernel.together)
            for r in range(self._tile):
                register = Value.of(Role.TILE, member * self._tile + r, row=group)
                out[register] = Pointer("from", row), r * self.isa.tile.lanes
                out[register.place] = Pointer("to", row), r * self.isa.tile.lanes
        return out

    def _instructions(
        self, lines: Iterable[Step], places: Addresses, scope: Scope, shift: Shift | None = None
    ) -> Iterator[str]:
        """Yield the lines; pointers to a row's tile come from those to the row before, where they are first wanted."""
        declared = dict[str, int]()
        for step in lines:
            name = step.dst
            if step.args and not self.isa[step.op].store:
                yield scope.step(step, str)
                yield from scope.hold(name)
                continue
            pointer, behind = places.get(name.whole) or places[name.whole.stored]
            yield from declare_pointers(pointer, declared, scope)
            place = _at((pointer, behind + name.part.is_high * self.isa.tile.lanes // 2))
            if step.args:
                yield from shift(step.args, scope) if shift else ()
                yield scope.store(step.op, step.args[0], place)
            elif name.part is Part.HIGH:
                yield from scope.half(name, place)
            else:
                yield scope.load(step.op, name, place)
                yield from scope.pin(name)


STARTS = {"from": ("start", "start_ld"), "to": ("c", "ldc"), "terms": ("row_start", "row_start_ld")}
"""Pointers to the tile, by role: the pointer of the first row, and the distance of rows."""


def declare_pointers(pointer: Pointer, declared: dict[str, int], scope: Scope) -> Iterator[str]:
    """Yield declarations of the pointer, and of those it comes from, unless they are `declared`."""
    if pointer.row is None:
        return
    first, distance = STARTS[pointer.base]
    kind = "int32_t *" if pointer.base == "to" else "const int32_t *"
    for row in range(declared.get(pointer.base, -1) + 1, pointer.row + 1):
        own, before = Pointer(pointer.base, row), Pointer(pointer.base, row - 1)
        yield f"{kind}{own} = {f'{before} + {distance}' if row else first};"
        yield from scope.settle(str(own))
        declared[pointer.base] = row


def _at(place: tuple[Pointer, int]) -> str:
    return f"{place[0]} + {place[1]}" if place[1] else str(place[0])


@dataclass(frozen=True)
class Flushes:
    """The statements of a kernel's flushes, all rows written out.

    With `row_terms`, accumulators start from the terms of their row too. Terms are doubled `doublings` times, as the
    products are. The last store shifts accumulators right by `shift` bits.
    """

    isa: Isa
    kernel: Kernel
    row_terms: bool
    shift: int
    doublings: int

    @property
    def folds(self) -> OrderedFolds:
        """Folds and flushes in the order of an in-order processor."""
        return OrderedFolds(self.isa, self.kernel, self.row_terms, self.doublings)

    def without_steps(self, scope: Scope) -> list[str]:
        """Return statements that fill the tile where K is 0: each row is g, plus h of the row."""
        kernel, scope = self.kernel, scope.inner()
        lines = [scope.load(kernel.memory.load_tile, "start", "g + column")]
        if self.row_terms:
            lines.append(scope.load(kernel.memory.broadcast_tile, "more", "h + row"))
            instr = self.isa[kernel.memory.add_tile]
            args = [scope.view(x, o.type) for x, o in zip(("start", "more"), instr.operands, strict=True)]
            lines.append(scope.declare("both", instr.out, scope.call(instr, args)))
        last = "both" if self.row_terms else "start"
        lines += self._shift([last], scope)
        lines.append(scope.store(kernel.memory.store_tile, last, "c + row * ldc + column"))
        inner = block(f"for (size_t column = 0; column < COLUMNS; column += {self.isa.tile.lanes})", lines)
        return ["for (size_t row = 0; row < ROWS; ++row)", *indent_lines(inner)]

    def flush(self, loop: Pass, scope: Scope) -> list[str]:
        """Return statements that add the accumulators of every row to its tile."""
        last = self.shift > 0 and loop is self.kernel.chains[-1][-1]
        if self.kernel.order not in ORDERS:
            plain = self.folds.flush(loop, scope)
            if not last:
                return block("", plain)
            shifted = self.folds.flush(loop, scope, self._shift)
            return block("if (steps_left == block)", shifted) + block("if (steps_left != block)", plain)
        out, store, declared = list[str](), self.kernel.memory.store_tile, dict[str, int]()
        for group in range(self.kernel.groups):
            inner, rows = scope.inner(), self.kernel.rows_of(group)
            places = [self._place("to", row, r) for row in rows for r in range(self._tile_registers)]
            stores = dict(zip(loop.tile, places, strict=True))
            if self.kernel.together > 1 and not last:
                lines = list(self._register_by_register(group, loop, stores, inner))
            else:
                sums = (
                    MatrixSteps(self.isa, self.kernel).load_sums(group, loop, inner) if self.kernel.in_matrices else []
                )
                lines = [*sums, *self._flush_group(group, loop, inner)]
                if last:
                    lines += block("if (steps_left == block)", self._shift(loop.tile, inner))
                lines.append("/* Write back. */")
                lines += [inner.store(store, name, place) for name, place in stores.items()]
            out += [line for row in rows for line in self._pointers(row, declared, inner)]
            out += enclose(self.kernel, group, lines)
        return block("", out) if declared else out

    def _pointers(self, row: int, declared: dict[str, int], scope: Scope) -> list[str]:
        """Return pointers to the row's tile, if the instruction set wants them computed where they are used.

        Otherwise compilers compute the pointers of all rows before the loops, and spill them.
        """
        bases = ["from", "to", *(["terms"] if self.row_terms else [])] if self.isa.table.address else []
        return [line for base in bases for line in declare_pointers(Pointer(base, row), declared, scope)]

    def _place(self, base: str, row: int, register: int = 0) -> str:
        """Return the address where a tile register of the row is loaded "from", or stored "to", or of the "terms"."""
        start = str(Pointer(base, row)) if self.isa.table.address else _row_of(*STARTS[base], row)
        return _plus(start, register * self.isa.tile.lanes)

    def _flush_group(self, group: int, loop: Pass, scope: Scope) -> list[str]:
        """Return statements that compute the tile registers of a group of rows after a flush: `loop.tile`."""
        lines = [line for row in self.kernel.rows_of(group) for line in self._before(row, scope)]
        return lines + scope.steps(loop.flush, names_of_row(group))

    def _register_by_register(self, group: int, loop: Pass, stores: Mapping[Value, str], scope: Scope) -> Iterator[str]:
        """Load, compute and store a group's tile register by register: all of it does not fit in registers."""
        rows, steps, written = self.kernel.rows_of(group), {s.dst: s for s in loop.flush}, set[Value]()
        starts = {
            Value.of(Role.TILE, n): divmod(n, self._tile_registers) for n in range(len(rows) * self._tile_registers)
        }

        def write(name: Value) -> Iterator[str]:
            if name in written or name not in {*starts, *steps}:
                return
            written.add(name)
            if name in starts:
                member, register = starts[name]
                yield from self._start(rows[member], register, scope)
                return
            for arg in steps[name].args:
                yield from write(arg)
            yield scope.step(steps[name], names_of_row(group))

        for row in rows:
            yield from self._terms(row, scope)
        for name, place in stores.items():
            yield from write(name)
            yield scope.store(self.kernel.memory.store_tile, name, place)

    def _before(self, row: int, scope: Scope) -> list[str]:
        """Load the row's tile before a flush: its start and terms at the first flush, later the stored accumulators."""
        starts = (line for r in range(self._tile_registers) for line in self._start(row, r, scope))
        return [*self._terms(row, scope), *starts]

    def _more(self, row: int) -> Value:
        """Return the register with the row's terms."""
        return Value.of(Role.TERM, row=None if self.kernel.together == 1 else row)

    def _terms(self, row: int, scope: Scope) -> Iterator[str]:
        """Return statements that load the row's terms, if it has any, and double them."""
        if self.row_terms:
            more = self._more(row)
            yield scope.load(self.kernel.memory.broadcast_tile, more, self._place("terms", row))
            yield from [self._add(more, more, scope)] * self.doublings

    def _start(self, row: int, register: int, scope: Scope) -> Iterator[str]:
        """Return statements that load a register of the row's tile before a flush and add the row's terms."""
        name = Value.of(Role.TILE, row % self.kernel.together * self._tile_registers + register)
        yield scope.load(self.kernel.memory.load_tile, name, self._place("from", row, register))
        if self.row_terms:
            yield self._add(name, self._more(row), scope)

    def _add(self, name: str, more: str, scope: Scope) -> str:
        """Return the statement that adds the row's terms, `more`, to a register."""
        add = self.isa[self.kernel.memory.add_tile]
        args = [scope.view(x, o.type) for x, o in zip((name, more), add.operands, strict=True)]
        return f"{name} = {scope.cast(scope.call(add, args), add.out, scope.types[name])};"

    def _shift(self, names: Sequence[str], scope: Scope) -> list[str]:
        """Return statements that shift tile registers right arithmetically."""
        if not self.shift:
            return []
        shift = sign_shift(self.isa)
        calls = [scope.call(shift, [scope.view(name, shift.operands[0].type)], self.shift) for name in names]
        return [
            f"{name} = {scope.cast(value, shift.out, scope.types[name])};"
            for name, value in zip(names, calls, strict=True)
        ]

    @property
    def _tile_registers(self) -> int:
        return self.kernel.tile_registers(self.isa.table.vector_bits)


def _row_of(base: str, stride: str, row: int) -> str:
    """Return the C expression of row `row` of an array whose rows are `stride` apart."""
    return f"{base} + {stride}" if row == 1 else f"{base} + {row} * {stride}" if row else base


def _plus(place: str, distance: int) -> str:
    return f"{place} + {distance}" if distance else place

"""C of folds and flushes ordered for an in-order processor; accumulators of outer loops are spilled between folds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from bitsynth.emit.lines import block
from bitsynth.emit.statements import Scope
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.isa.value import Part, Role, Value
from bitsynth.kernel.in_order import folds, pipelining
from bitsynth.kernel.in_order.halves import inserts
from bitsynth.kernel.program import Kernel, Loop, Pass


@dataclass(frozen=True)
class Pointer:
    """A pointer to 32-bit elements: `sum` to spilled accumulators, or one of STARTS to the tile of a row."""

    base: str
    row: int | None = None

    def __str__(self) -> str:
        return self.base if self.row is None else f"{self.base}_{self.row}"


Addresses = dict[Value, tuple[Pointer, int]]
"""Addresses of loads and stores, by what they move: a pointer, and an offset in elements."""

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

    def declared(self) -> list[str]:
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
        """Return statements that add the sums of a loop to those of the loop around it."""
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
                value = scope.joined(step) if inserts(self.isa, step) else scope.value(step, str)
                yield scope.declare(name, self.isa[step.op].out, value)
                yield from scope.hold(name)
                continue
            pointer, behind = places.get(name.whole) or places[name.whole.stored]
            yield from pointed(pointer, declared, scope)
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


def pointed(pointer: Pointer, declared: dict[str, int], scope: Scope) -> Iterator[str]:
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

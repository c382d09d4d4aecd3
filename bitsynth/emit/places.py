"""C expressions of the addresses of a step's inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from bitsynth.emit.inputs import side_bytes
from bitsynth.isa.load import Isa
from bitsynth.kernel.in_order import loop_control
from bitsynth.kernel.in_order.halves import PARTS, is_high
from bitsynth.kernel.in_order.pipelining import copy_of
from bitsynth.kernel.order import of_row
from bitsynth.kernel.program import Kernel, Pass


@dataclass(frozen=True)
class InputPlaces:
    """Addresses of the inputs of a pass. `column`, `row0 + offset`, `row1 + offset` ... are those of the step.

    `high` is `offset` plus half a register, `ahead` is `offset` plus the prefetch distance of rows.
    """

    isa: Isa
    kernel: Kernel
    loop: Pass

    def columns(self) -> Iterator[tuple[str, str]]:
        """Yield the inputs of columns and their addresses."""
        registers, size = self.kernel.column_registers(self.isa.table.vector_bits), self.isa.word.lanes
        for i, g in product(range(len(self.loop.columns)), range(registers)):
            yield f"w{g}_{i}", self._behind("column", "all_steps", i * registers * size, g * size)

    def group(self, group: int, offset: str = "offset") -> Iterator[tuple[str, str]]:
        """Yield the inputs of a group of rows and their addresses."""
        for i in range(len(self.loop.rows)):
            yield f"a{i}", self._behind(f"row{group} + {offset}", "steps", side_bytes(self.kernel, self.loop.rows[:i]))

    def all(self, offset: str = "offset") -> dict[str, str]:
        """Return the addresses of all inputs of a step; inputs of rows have their names in a program of all rows."""
        rows = {of_row(name, group): p for group in range(self.kernel.groups) for name, p in self.group(group, offset)}
        return dict(self.columns()) | rows

    def of_copies(self, copies: int, iteration: int = 0) -> dict[str, str]:
        """Return the addresses of inputs of `copies` successive steps, `iteration` iterations of the loop later."""
        out, half = dict[str, str](), self.isa.word.lanes // 2
        highs = self.all("high") | {name: _plus(place, half) for name, place in self.columns()}
        for copy in range(copies):
            steps = copy + iteration * copies
            for name, place in self.all().items():
                here, high = (_plus(x, self._size(name) * steps) for x in (place, highs[name]))
                names = (name + part for part in ("", *PARTS))
                out |= {copy_of(part, copy): high if is_high(part) else here for part in names}
        return out

    def fetched(self, copies: int) -> list[str]:
        """Return an address in each cache line that an iteration of `copies` steps prefetches."""
        rows = (f"row{group} + ahead" for group in range(self.kernel.groups))
        bases = (_plus("column", self.asked("w", copies)), "w"), *((row, "a") for row in rows)
        return [
            _plus(base, line)
            for base, name in bases
            if self.asked(name, copies)
            for line in range(0, copies * self._size(name), loop_control.LINE_BYTES)
        ]

    def asked(self, name: str, copies: int) -> int:
        """Return the prefetch distance of an input, in bytes, for iterations of `copies` steps; 0 without prefetch."""
        return loop_control.prefetch_distance(
            self.isa.table.cpu[self.kernel.order], self.kernel, copies * self._size(name)
        )

    def _size(self, name: str) -> int:
        """Return the bytes from an input of a step to the same input of the next."""
        if self.kernel.bit_axis == "outer":
            return self.kernel.slot_bytes * (self.kernel.columns if name[0] == "w" else 1)
        whole = self.kernel.columns * side_bytes(self.kernel, self.loop.columns)
        return whole if name[0] == "w" else self.kernel.row_bytes

    def advance(self, steps: int) -> dict[str, str]:
        """Return the statements that advance by `steps`, by the names of pointers."""
        row, column = (steps * self._size(side) for side in "aw")
        return {"offset": f"offset += {row};", "high": f"high += {row};", "column": f"column += {column};"}

    def _behind(self, base: str, steps: str, others: int, own: int = 0) -> str:
        """Return the address `own` bytes into the input behind `others` bytes of a step, or of all `steps`."""
        if self.kernel.bit_axis == "outer" and others:
            return _plus(f"{base} + {others} * {steps}", own)
        return _plus(base, others + own)


def _plus(place: str, distance: int) -> str:
    return f"{place} + {distance}" if distance else place

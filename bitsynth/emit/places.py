"""The places in memory of a step's inputs, as C has them."""

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
    """Where the inputs of a pass lie: `column` and `row0 + offset` and so on are those of the step.

    Behind `offset` is `high` by half a register, and `ahead` by as much as rows are asked for.
    """

    isa: Isa
    kernel: Kernel
    loop: Pass

    def columns(self) -> Iterator[tuple[str, str]]:
        """The columns' inputs, and where each lies."""
        registers, size = self.kernel.column_registers(self.isa.table.vector_bits), self.isa.word.lanes
        for i, g in product(range(len(self.loop.columns)), range(registers)):
            yield f"w{g}_{i}", self._behind("column", "all_steps", i * registers * size, g * size)

    def group(self, group: int, offset: str = "offset") -> Iterator[tuple[str, str]]:
        """The inputs of a group of rows, and where each lies."""
        for i in range(len(self.loop.rows)):
            yield f"a{i}", self._behind(f"row{group} + {offset}", "steps", side_bytes(self.kernel, self.loop.rows[:i]))

    def all(self, offset: str = "offset") -> dict[str, str]:
        """All inputs of a step, those of rows by the names they have where all rows are in one program."""
        rows = {of_row(name, group): p for group in range(self.kernel.groups) for name, p in self.group(group, offset)}
        return dict(self.columns()) | rows

    def of_copies(self, copies: int, turn: int = 0) -> dict[str, str]:
        """The inputs of `copies` steps one after the other, `turn` times as many steps on."""
        out, half = dict[str, str](), self.isa.word.lanes // 2
        highs = self.all("high") | {name: _plus(place, half) for name, place in self.columns()}
        for copy in range(copies):
            steps = copy + turn * copies
            for name, place in self.all().items():
                here, high = (_plus(x, self._size(name) * steps) for x in (place, highs[name]))
                names = (name + part for part in ("", *PARTS))
                out |= {copy_of(part, copy): high if is_high(part) else here for part in names}
        return out

    def fetched(self, copies: int) -> list[str]:
        """The lines of caches that turns of `copies` steps ask for, a place in each."""
        rows = (f"row{group} + ahead" for group in range(self.kernel.groups))
        bases = (_plus("column", self.asked("w", copies)), "w"), *((row, "a") for row in rows)
        return [
            _plus(base, line)
            for base, name in bases
            if self.asked(name, copies)
            for line in range(0, copies * self._size(name), loop_control.LINE_BYTES)
        ]

    def asked(self, name: str, copies: int) -> int:
        """How many bytes ahead turns of `copies` steps ask for what they read of an input; 0 if they do not."""
        return loop_control.prefetch_distance(
            self.isa.table.cpu[self.kernel.order], self.kernel, copies * self._size(name)
        )

    def _size(self, name: str) -> int:
        """Bytes from an input of a step to that of the next."""
        if self.kernel.bit_axis == "outer":
            return self.kernel.slot_bytes * (self.kernel.columns if name[0] == "w" else 1)
        whole = self.kernel.columns * side_bytes(self.kernel, self.loop.columns)
        return whole if name[0] == "w" else self.kernel.row_bytes

    def advance(self, steps: int) -> dict[str, str]:
        """Statements that go `steps` on, by the names of pointers."""
        row, column = (steps * self._size(side) for side in "aw")
        return {"offset": f"offset += {row};", "high": f"high += {row};", "column": f"column += {column};"}

    def _behind(self, base: str, steps: str, others: int, own: int = 0) -> str:
        """The place of an input behind `others` bytes a step, of one step or of all `steps`; `own` bytes into it."""
        if self.kernel.bit_axis == "outer" and others:
            return _plus(f"{base} + {others} * {steps}", own)
        return _plus(base, others + own)


def _plus(place: str, distance: int) -> str:
    return f"{place} + {distance}" if distance else place

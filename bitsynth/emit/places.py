"""The places in memory of a step's inputs, as C has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from bitsynth.emit.inputs import side_bytes
from bitsynth.isa.load import Isa
from bitsynth.kernel.in_order import prefetch
from bitsynth.kernel.in_order.ahead import copy_of
from bitsynth.kernel.in_order.halves import HALVES
from bitsynth.kernel.order import of_row
from bitsynth.kernel.program import Kernel, Pass


@dataclass(frozen=True)
class InputPlaces:
    """Where the inputs of a pass lie: `column` and `row0 + offset` and so on are those of the step."""

    isa: Isa
    kernel: Kernel
    loop: Pass

    def columns(self) -> Iterator[tuple[str, str]]:
        """The columns' inputs, and where each lies."""
        registers, size = self.kernel.column_registers(self.isa.table.vector_bits), self.isa.word.lanes
        for i, g in product(range(len(self.loop.columns)), range(registers)):
            yield f"w{g}_{i}", self._behind("column", "all_steps", i * registers * size, g * size)

    def group(self, group: int) -> Iterator[tuple[str, str]]:
        """The inputs of a group of rows, and where each lies."""
        for i in range(len(self.loop.rows)):
            yield f"a{i}", self._behind(f"row{group} + offset", "steps", side_bytes(self.kernel, self.loop.rows[:i]))

    def all(self) -> dict[str, str]:
        """All inputs of a step, those of rows by the names they have where all rows are in one program."""
        rows = {of_row(name, group): p for group in range(self.kernel.groups) for name, p in self.group(group)}
        return dict(self.columns()) | rows

    def of_copies(self, copies: int, turn: int = 0) -> dict[str, str]:
        """The inputs of `copies` steps one after the other, `turn` times as many steps on."""
        out = dict[str, str]()
        for copy in range(copies):
            steps = copy + turn * copies
            for name, place in self.all().items():
                here = _plus(place, self._size(name) * steps)
                out[copy_of(name, copy)] = here
                low, high = (copy_of(name + half, copy) for half in HALVES)
                out |= {low: here, high: _plus(here, self.isa.word.lanes // 2)}
        return out

    def fetched(self, copies: int) -> list[str]:
        """The lines of caches that turns of `copies` steps ask for, a place in each."""
        cpu, out = self.isa.table.cpu[self.kernel.order], list[str]()
        for base, name in (("column", "w"), *((f"row{group} + offset", "a") for group in range(self.kernel.groups))):
            size = copies * self._size(name)
            if distance := prefetch.distance(cpu, self.kernel, size):
                out += (_plus(base, distance + line) for line in range(0, size, prefetch.LINE_BYTES))
        return out

    def _size(self, name: str) -> int:
        """Bytes from an input of a step to that of the next."""
        if self.kernel.bit_axis == "outer":
            return self.kernel.slot_bytes * (self.kernel.columns if name[0] == "w" else 1)
        whole = self.kernel.columns * side_bytes(self.kernel, self.loop.columns)
        return whole if name[0] == "w" else self.kernel.row_bytes

    def advance(self, steps: int) -> list[str]:
        """Statements that go `steps` on."""
        return [f"offset += {steps * self._size('a')};", f"column += {steps * self._size('w')};"]

    def _behind(self, base: str, steps: str, others: int, own: int = 0) -> str:
        """The place of an input behind `others` bytes a step, of one step or of all `steps`; `own` bytes into it."""
        if self.kernel.bit_axis == "outer" and others:
            return _plus(f"{base} + {others} * {steps}", own)
        return _plus(base, others + own)


def _plus(place: str, distance: int) -> str:
    return f"{place} + {distance}" if distance else place

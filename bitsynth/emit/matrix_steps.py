"""C statements of steps on matrix registers (`kernel/matrices.py`), and of what is around them.

A matrix register is loaded from rows at one distance, and rows of the kernel lie anywhere. So a step copies its rows to
`staged` first. Sums go through `sums` to the registers that a flush reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bitsynth.emit.statements import Scope
from bitsynth.isa.load import Isa
from bitsynth.isa.types import VecType
from bitsynth.kernel.matrices import MatrixGrid, matrix_grid
from bitsynth.kernel.program import Kernel, Pass

CONFIGURATION = "matrix_registers"


@dataclass(frozen=True)
class MatrixSteps:
    """The statements of a kernel whose steps run on matrix registers."""

    isa: Isa
    kernel: Kernel

    @property
    def _grid(self) -> MatrixGrid:
        return matrix_grid(self.kernel)

    @property
    def _row_bytes(self) -> int:
        return self.isa.matrices.row_bytes

    def declare_configuration(self) -> tuple[str, list[str]]:
        """Return the declaration of the configuration, and its bytes."""
        numbers = self._grid.configuration
        return f"static const uint8_t {CONFIGURATION}[{len(numbers)}]", list(map(str, numbers))

    def configure(self) -> list[str]:
        """Return the statement that configures matrix registers, before the first step of a call."""
        return [self.isa.matrices.configure.format(x=CONFIGURATION)]

    def release(self) -> list[str]:
        """Return the statement that leaves matrix registers as they were before they were configured."""
        return [self.isa.matrices.release.format()]

    def memory(self) -> list[str]:
        """Return declarations of memory: for the rows of a step, and for the sums of a flush."""
        aligned = f"__attribute__((aligned({self._row_bytes})))"
        return [
            f"uint8_t staged[ROWS * {self._row_bytes}] {aligned};",
            f"int32_t sums[ROWS * COLUMNS] {aligned};",
        ]

    def start(self) -> list[str]:
        """Return statements that set all accumulators to zero."""
        grid, zero = self._grid, self.isa.matrices.zero
        return [zero.format(t=grid.accumulator(group, g)) for group in grid.groups for g in grid.columns]

    def step(self, scope: Scope) -> list[str]:
        """Return the statements of a step: copies of rows, loads of matrices, products."""
        grid, matrices = self._grid, self.isa.matrices
        lines = [*self._copies(scope)]
        for group in grid.groups:
            place = _plus("staged", grid.rows_of(group).start * self._row_bytes)
            lines.append(matrices.load.format(t=grid.row_matrix(group), p=place, stride=self._row_bytes))
        for g in grid.columns:
            place, stride = _plus("column", g * self._row_bytes), grid.registers * self._row_bytes
            lines.append(matrices.load.format(t=grid.column_matrix, p=place, stride=stride))
            for group in grid.groups:
                lines.append(
                    matrices.multiply.format(
                        acc=grid.accumulator(group, g), a=grid.row_matrix(group), b=grid.column_matrix
                    )
                )
        return lines

    def _copies(self, scope: Scope) -> Iterator[str]:
        """Yield statements that copy the rows of a step next to each other."""
        memory = self.kernel.memory
        load, store = self.isa[memory.load], self.isa[memory.store_tile]
        for row in range(self.kernel.rows):
            value = scope.cast(scope.call(load, [f"row{row} + offset"]), load.out, store.operands[0].type)
            yield scope.call(store, [value], to=_plus("staged", row * self._row_bytes)) + ";"

    def end(self) -> list[str]:
        """Return statements that store all accumulators, row by row."""
        grid, lane_bytes = self._grid, self.isa.tile.bits // 8
        lines = []
        for group in grid.groups:
            for g in grid.columns:
                place = _plus("sums", grid.rows_of(group).start * self.kernel.columns + g * self.isa.tile.lanes)
                stride = self.kernel.columns * lane_bytes
                lines.append(self.isa.matrices.store.format(t=grid.accumulator(group, g), p=place, stride=stride))
        return lines

    def load_sums(self, row: int, loop: Pass, scope: Scope) -> list[str]:
        """Return statements that load the accumulators of a row after `end`."""
        lines = []
        for g, acc in enumerate(loop.step.accs):
            place = _plus("sums", row * self.kernel.columns + g * self.isa.tile.lanes)
            kind = VecType.parse(acc.type)
            lines.append(scope.load(self.kernel.memory.load_tile, acc.name.of_row(row), place, kind))
        return lines


def _plus(place: str, distance: int) -> str:
    return f"{place} + {distance}" if distance else place

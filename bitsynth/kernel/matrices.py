"""Steps on matrix registers: 16 rows of the tile at once, by instructions that repeat the step's own.

The program of a step says what happens to one row, as in every kernel. A matrix register holds 16 rows of 64 bytes, and
one instruction on matrices does for each of 16 rows what 16 instructions of the step do (`isa.tables.MatrixTable`):

    program of a row                              on matrices, for rows 0 to 15
        acc0 = dpbusd acc0 a0 w0_0
        acc0 = dpbusd acc0 a1 w0_1
        ...
        acc0 = dpbusd acc0 a15 w0_15                  acc = tdpbusd acc a w

Row m of matrix `a` is the 64 bytes that row m of the kernel takes in a step: its inputs a0, a1 and so on, of 4 bytes
each, one after the other. Row k of matrix `w` is input k of a column register, as it lies in memory. Inputs of all
column registers alternate there, so the distance of rows of `w` is the length of all of them.

`check_matrices` shows, name by name, that a step has these instructions and no others, so that steps on matrices add
exactly what the proved program adds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bitsynth.errors import SpecError
from bitsynth.isa.load import Isa, load
from bitsynth.isa.step import Step
from bitsynth.isa.tables import MatrixTable
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.inputs import Planes
from bitsynth.kernel.program import Kernel

_OPERANDS = ("acc", "a", "b")
"""The operands of the repeated instruction, in order: accumulator, row, columns."""


@dataclass(frozen=True)
class MatrixGrid:
    """The matrix registers of a kernel: accumulators first, then one for each group of rows, then one for columns.

    A group is as many rows as a matrix register has; the last may have fewer.
    """

    table: MatrixTable
    rows: int
    registers: int

    @property
    def groups(self) -> range:
        """The numbers of groups of rows."""
        return range(-(-self.rows // self.table.rows))

    @property
    def columns(self) -> range:
        """The numbers of column registers."""
        return range(self.registers)

    def rows_of(self, group: int) -> range:
        """Return the rows of a group."""
        return range(group * self.table.rows, min(self.rows, (group + 1) * self.table.rows))

    def accumulator(self, group: int, column: int) -> int:
        """Return the number of the matrix register that holds the sums of a group of rows and a column register."""
        return group * self.registers + column

    def row_matrix(self, group: int) -> int:
        """Return the number of the matrix register that holds the inputs of a group of rows."""
        return len(self.groups) * self.registers + group

    @property
    def column_matrix(self) -> int:
        """The number of the matrix register that holds the inputs of a column register, one after the other."""
        return self.row_matrix(len(self.groups))

    @property
    def taken(self) -> int:
        """The matrix registers that are used."""
        return self.column_matrix + 1

    @property
    def products(self) -> int:
        """The products of matrices in a step."""
        return len(self.groups) * self.registers

    @property
    def configuration(self) -> bytes:
        """The 64 bytes that configure matrix registers: palette 1, then bytes of a row, then rows, of each register."""
        sizes = {self.column_matrix: self.table.rows}
        for group in self.groups:
            mine = (self.row_matrix(group), *(self.accumulator(group, column) for column in self.columns))
            sizes |= dict.fromkeys(mine, len(self.rows_of(group)))
        widths, heights = bytearray(32), bytearray(16)
        for register, rows in sizes.items():
            widths[2 * register : 2 * register + 2] = self.table.row_bytes.to_bytes(2, "little")
            heights[register] = rows
        return bytes([1, *bytes(15), *widths, *heights])


def matrix_grid(kernel: Kernel) -> MatrixGrid:
    """Return the matrix registers of a kernel; SpecError if its set has none."""
    isa = load(kernel.isa)
    return MatrixGrid(isa.matrices, kernel.rows, kernel.column_registers(isa.table.vector_bits))


def matrix_steps(isa: Isa, registers: int) -> Iterator[Step]:
    """Yield the step of a row that one product of matrices for each column register repeats, input by input.

    Results are named t0, t1 and so on; the last one of a register is its next accumulator.
    """
    op, inputs = isa.matrices.repeats, inputs_of_matrix(isa)
    for k in range(inputs):
        for g in range(registers):
            number = k * registers + g
            before = Value.of(Role.TEMPORARY, number - registers) if k else Value.of(Role.ACCUMULATOR, g)
            operands = before, Value.of(Role.ROW, k), Value.of(Role.COLUMN, k, register=g)
            yield Step(Value.of(Role.TEMPORARY, number), op, operands)


def inputs_of_matrix(isa: Isa) -> int:
    """Return how many inputs of a row fill a row of a matrix register: as many as a row of columns has."""
    return isa.matrices.row_bytes // (isa[isa.matrices.repeats].out.bits // 8)


def check_matrices(isa: Isa, kernel: Kernel) -> None:
    """Raise SpecError unless steps on matrix registers do what the step's program does, for each row."""
    if isa.table.matrices is None:
        raise SpecError(f"malformed kernel: its steps run on matrix registers, which {isa.name} lacks")
    matrices, repeated = isa.matrices, isa[isa.matrices.repeats]
    lane_bytes = repeated.out.bits // 8
    loop, registers = kernel.passes[0], kernel.column_registers(isa.table.vector_bits)
    inputs = inputs_of_matrix(isa)
    steps = tuple(matrix_steps(isa, registers))
    nexts = {Value.of(Role.ACCUMULATOR, g): steps[len(steps) - registers + g].dst for g in range(registers)}
    sides = (*loop.rows, *loop.columns)
    conditions = {
        "one pass of one loop": len(kernel.passes) == len(loop.loops) == 1 and not loop.carries,
        "no first run of its own": not loop.step.first,
        "rows one by one, without tables": kernel.together == 1 and kernel.build is None and not kernel.scalar_pass,
        "the bits of a step side by side": kernel.bit_axis == "inner",
        "the operands of the repeated instruction": tuple(o.name for o in repeated.operands) == _OPERANDS,
        "lanes of 32 bits": lane_bytes == kernel.slot_bytes == 4 and kernel.code_bytes == 1,
        "rows of matrices that fill registers": matrices.row_bytes * 8
        == isa.table.vector_bits
        == repeated.out.total_bits,
        "as many rows of a matrix of columns as inputs": matrices.rows == inputs == len(loop.rows) == len(loop.columns),
        "inputs of one slot": all(isinstance(x, Planes) and x.slots == 1 for x in sides),
        "a step that is repeated by the product of matrices": loop.step.steps == steps,
        "accumulators that repeat it": {acc.name: acc.next for acc in loop.step.accs} == nexts,
        "enough matrix registers": MatrixGrid(matrices, kernel.rows, registers).taken <= matrices.registers,
    }
    if wrong := [what for what, holds in conditions.items() if not holds]:
        raise SpecError(f"malformed kernel: steps on matrix registers want {', '.join(wrong)}")

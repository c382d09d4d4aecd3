"""The contents of a step's registers: functions of codes, as payloads of the linear domain.

The proof runs a kernel's step on these instead of on numbers, once for all inputs.

Given:   rows of 1-bit activations, 8 codes a byte, as planes with a stride of 8
Result:  lane b of the register of row input 0 is a bit field: bit q of it is the code at position 8 * b + q
"""

from __future__ import annotations

from collections.abc import Sequence

from bitsynth.isa.domains.forms import BitField, LinearForm, Payload, TableEntry, WideTable, side_by_side, total
from bitsynth.isa.domains.sums import product as multiply
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.inputs import Planes, Table
from bitsynth.kernel.packing import bit_table, bit_tables
from bitsynth.kernel.program import Kernel, Pass

WIDE = 1 << 12
"""Rows of truth tables from which on they are hashed once."""


def bind_inputs(trace: Trace, kernel: Kernel, loop: Pass) -> None:
    """Bind constants, inputs of a row, or of rows that share bytes, and columns' in `trace`; lanes are as codes lie."""
    word, codes = _lanes_of_codes(trace.isa.word, kernel.code_bytes), kernel.slot_bytes // kernel.code_bytes
    trace.bind_constants(kernel.constants)
    of_column = _Operand(kernel, False)
    of_rows = [_Operand(kernel, True, member) for member in range(kernel.together)]
    for i, given in enumerate(loop.rows):
        if isinstance(given, Table):
            parts, share = [of_row.parts(given) for of_row in of_rows], word.bits // kernel.together
            entries = [[(TableEntry(p, e), share) for p in parts] for e in range(given.entries)]
            lanes = [side_by_side(entries[b % given.entries]) for b in range(word.lanes)]
        else:
            repeated = kernel.input_bytes(given) // kernel.code_bytes
            lanes = [of_rows[0].byte(given, b % repeated, None) for b in range(word.lanes)]
        trace.bind(Value.of(Role.ROW, i), Register(word, tuple(lanes)))
    each = word.lanes // codes
    for i, planes in enumerate(loop.columns):
        for g in range(len(kernel.slots) // each):
            columns = kernel.slots[g * each : (g + 1) * each]
            lanes = [of_column.byte(planes, b % codes, columns[b // codes]) for b in range(word.lanes)]
            trace.bind(Value.of(Role.COLUMN, i, register=g), Register(word, tuple(lanes)))


def cross_terms(kernel: Kernel, column: int) -> LinearForm:
    """Return the sums that products of neighbours of a row, and of a column, add in a step to a tile's start."""
    sides = (_Operand(kernel, True).codes(None), _Operand(kernel, False).codes(column))
    neighbours = (codes[k : k + 2] for codes in sides for k in range(0, kernel.k_step, 2))
    return total(multiply(x, y).scale(kernel.cross_terms) for x, y in neighbours)


def _lanes_of_codes(word: VecType, code_bytes: int) -> VecType:
    """Return the type of a register of codes of that many bytes each."""
    return VecType(word.sign, 8 * code_bytes, word.lanes // code_bytes)


class _Operand:
    """Functions of one operand's code as tables over act + (wgt << act_bits), and the code of a second row above."""

    def __init__(self, kernel: Kernel, of_rows: bool, member: int = 0) -> None:
        self.bits = kernel.row_bits if of_rows else kernel.column_bits
        self.low = kernel.first_bit(of_rows, member)
        self.code_bytes, self.positions = kernel.code_bytes, kernel.k_step
        self.times = 1 << kernel.code_bits - self.low - self.bits
        self.expanded: dict[int, int] = {}

    def __getitem__(self, table: int) -> int:
        if table not in self.expanded:
            functions = self._expand(table)
            self.expanded[table] = WideTable(functions) if functions.bit_length() > WIDE else functions
        return self.expanded[table]

    def _expand(self, table: int) -> int:
        each = 1 << self.low
        once = sum(((1 << each) - 1) << (code * each) for code in range(1 << self.bits) if table >> code & 1)
        return sum(once << (n << self.low + self.bits) for n in range(self.times))

    def byte(self, planes: Planes, byte: int, column: int | None) -> Payload:
        """Return the payload of byte `byte` of a row or column, or of that number where they are wider."""
        positions, width, size = planes.positions(byte), len(planes.tables), 8 * self.code_bytes
        if width == 1 and planes.apart == 1:
            return BitField(self[planes.tables[0]], column, positions.start, (1 << planes.per_byte) - 1)
        codes = [(self._number(planes.tables, p, column, planes.signed), width) for p in positions]
        return side_by_side([*codes, (0, size - width * planes.per_byte)] if width * planes.per_byte < size else codes)

    def _number(self, tables: Sequence[int], position: int, column: int | None, signed: bool = False) -> LinearForm:
        """Return sum(2**j * tables[j]) at one position; the last table counts below 0 if the number is `signed`."""
        weights = [1 << j for j in range(len(tables))]
        if signed:
            weights[-1] = -weights[-1]
        # Bits with one table are one atom. A sign fills its byte: of 4 bits, it counts 8 + 16 + 32 + 64 - 128 = -8.
        of_table: dict[int, int] = {}
        for table, weight in zip(tables, weights, strict=True):
            of_table[table] = of_table.get(table, 0) + weight
        return total(
            LinearForm(0, {(self[table], column): {weight: 1 << position}}, min(0, weight), max(0, weight))
            for table, weight in of_table.items()
        )

    def codes(self, column: int | None) -> list[LinearForm]:
        """Return the codes of a row or column at all positions of a step."""
        return [self._number(bit_tables(self.bits), p, column) for p in range(self.positions)]

    def parts(self, table: Table) -> tuple[LinearForm, ...]:
        """Return the forms that each bit of an index adds to an entry of the table."""
        most = max(table.values)
        tables = [bit_table(table.values, j) for j in range(most.bit_length())]
        forms = (self._number(tables, table.first + n, None) for n in range(table.bits))
        return tuple(LinearForm(0, f.atoms, 0, most) for f in forms)

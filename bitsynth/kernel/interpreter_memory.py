"""Registers and memory for the interpreter, and the bytes that the steps of a kernel read.

Lanes are arrays, with an element for each product computed at once: many rows and tiles of columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import SpecError
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.load import Isa, load
from bitsynth.isa.step import Constant, Step
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.inputs import Input, Table
from bitsynth.kernel.packing import Codes, pack, sharing
from bitsynth.kernel.program import Acc, Kernel, Loop, Pass

Registers = Mapping[Value, Register]
_DOMAIN = ConcreteDomain()


@dataclass(frozen=True)
class ConcreteMachine:
    """The machine's meaning of a kernel's loads, stores and programs."""

    kernel: Kernel

    @cached_property
    def isa(self) -> Isa:
        """The kernel's instruction set."""
        return load(self.kernel.isa)

    def trace(self, registers: Registers | None = None, constants: Sequence[Constant] | None = None) -> Trace:
        """Return a trace with these registers and constants, by default the kernel's."""
        trace = Trace(self.isa, _DOMAIN)
        trace.bind_constants(self.kernel.constants if constants is None else constants)
        trace.registers.update(registers or {})
        return trace

    def run(self, program: Iterable[Step], registers: Registers) -> Trace:
        """Return the trace of a program that starts from `registers`."""
        trace = self.trace(registers)
        for step in program:
            trace.run(step)
        return trace

    def load(self, op: str, memory: Sequence[Any], bits: int) -> Register:
        """Return the register that `op` loads from `memory`, cells of `bits` bits; beyond its end are zeros."""
        instr = self.isa[op]
        if not instr.is_load:
            raise SpecError(f"{op} loads nothing from memory")
        kind = instr.operands[0].type
        cells = VecType("u", bits, -(-kind.total_bits // bits))
        lanes = Register(cells, tuple((*memory, *[np.uint64(0)] * cells.lanes)[: cells.lanes]))
        return Register(instr.out, tuple(instr(_DOMAIN, [lanes.view_as(_DOMAIN, kind).lanes])))

    def store(self, op: str, register: Register, cells: VecType) -> tuple[Any, ...]:
        """Return the cells that are in memory after a store."""
        instr = self.isa[op]
        if not instr.store:
            raise SpecError(f"{instr.name} stores nothing to memory")
        lanes = instr(_DOMAIN, [register.view_as(_DOMAIN, instr.operands[0].type).lanes])
        return Register(instr.out, tuple(lanes)).view_as(_DOMAIN, cells).lanes

    def zeros(self, loop: Loop, shape: tuple[int, ...]) -> dict[Value, Register]:
        """Return the loop's accumulators at zero."""
        kinds = {acc.name: VecType.parse(acc.type) for acc in loop.accs}
        zero = np.zeros(shape, np.uint64)
        return {name: Register(kind, (zero,) * kind.lanes) for name, kind in kinds.items()}

    def after(self, loop: Loop, trace: Trace) -> dict[Value, Register]:
        """Return the loop's accumulators after a run of its program."""
        return {acc.name: self.accumulator(acc, acc.next, trace) for acc in loop.accs}

    def accumulator(self, acc: Acc, value: Value, trace: Trace) -> Register:
        """Return a value of the trace as the accumulator it becomes."""
        return trace.registers[value].view_as(_DOMAIN, VecType.parse(acc.type))


@dataclass(frozen=True)
class Runs:
    """Stretches of `length` steps, done side by side."""

    starts: NDArray[np.int64]
    length: int


@dataclass(frozen=True)
class Inputs:
    """The bytes of a pass: of rows (steps, R, 1, bytes), of columns (steps, 1, tiles, slots x bytes), an input each."""

    machine: ConcreteMachine
    rows: Sequence[Any]
    columns: Sequence[Any]

    def registers(self, runs: Runs, times: range) -> dict[Value, Register]:
        """Return the loaded registers of each of `times` of every run: lanes (times, runs, R, tiles)."""
        rows, columns = ([_span(x, runs, times) for x in side] for side in (self.rows, self.columns))
        return {**self._of_rows(rows), **self._of_columns(columns)}

    def _of_rows(self, rows: Sequence[Any]) -> dict[Value, Register]:
        """Lay inputs one behind the other, so that a load may read beyond its own."""
        op, cells, at, out = self.machine.kernel.memory.broadcast, _cells(rows), 0, {}
        for i, x in enumerate(rows):
            out[Value.of(Role.ROW, i)] = self.machine.load(op, cells[at:], 8)
            at += x.shape[-1]
        return out

    def _of_columns(self, columns: Sequence[Any]) -> dict[Value, Register]:
        op, cells, lanes, out = self.machine.kernel.memory.load, _cells(columns), self.machine.isa.word.lanes, {}
        for i, x in enumerate(columns):
            for g in range(x.shape[-1] // lanes):
                out[Value.of(Role.COLUMN, i, register=g)] = self.machine.load(
                    op, cells[i * x.shape[-1] + g * lanes :], 8
                )
        return out


@dataclass(frozen=True)
class Operands:
    """Codes of `rows` (R, K) and `columns` (C, K) as a kernel's passes read them."""

    machine: ConcreteMachine
    rows: Codes
    columns: Codes

    @property
    def kernel(self) -> Kernel:
        """The kernel that reads them."""
        return self.machine.kernel

    @cached_property
    def steps(self) -> int:
        """Steps of K; the last may have positions beyond it, whose codes are 0."""
        return int(-(-self.rows.shape[1] // self.kernel.k_step))

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Groups of rows, and tiles of columns."""
        return -(-len(self.rows) // self.kernel.together), int(-(-len(self.columns) // self.kernel.columns))

    def inputs(self, loop: Pass) -> Inputs:
        """Return the bytes one pass reads."""
        return Inputs(self.machine, self._row_bytes(loop), self._column_bytes(loop))

    def _row_bytes(self, loop: Pass) -> list[Any]:
        codes, together = self._by_step(self.rows, self.shape[0] * self.kernel.together), self.kernel.together
        row_inputs = ([self._row_input(x, codes[member::together]) for member in range(together)] for x in loop.rows)
        return [np.moveaxis(sharing(x), 1, 0)[:, :, None] for x in row_inputs]

    def _row_input(self, x: Input, codes: Codes) -> Any:
        """Return the bytes of one input of rows."""
        kernel = self.kernel
        if isinstance(x, Table):
            return self._table(x, codes)
        return pack(x, codes, kernel.row_bits, kernel.input_bytes(x), kernel.code_bytes)

    def _column_bytes(self, loop: Pass) -> list[Any]:
        (_, tiles), columns, size = self.shape, self.kernel.columns, self.kernel.slot_bytes
        codes = self._by_step(self.columns, tiles * columns)
        out = []
        for x in loop.columns:
            tiled = pack(x, codes, self.kernel.column_bits, size, self.kernel.code_bytes)
            tiled = tiled.reshape(tiles, columns, self.steps, size)[:, list(self.kernel.slots)]
            out.append(np.moveaxis(tiled, 2, 0).reshape(self.steps, 1, tiles, -1))
        return out

    def _by_step(self, codes: Codes, count: int) -> Codes:
        """Return (count, steps, k_step) codes, 0 where there are none."""
        out = np.zeros((count, self.steps * self.kernel.k_step), np.uint8)
        out[: len(codes), : codes.shape[1]] = codes
        return out.reshape(count, self.steps, self.kernel.k_step)

    def _table(self, table: Table, codes: Codes) -> Any:
        """Return (R, steps, entries) bytes, by the kernel's own table program."""
        build, machine = self.kernel.build, self.machine
        assert build is not None
        staged = np.array(table.values, np.uint64)[codes[..., table.first : table.first + table.bits]]
        cells = [staged[..., n] if 0 <= n < table.bits else np.uint64(0) for n in build.stage]
        trace = machine.trace({Value.of(Role.STAGED, 0): machine.load(build.load, cells, 8)}, build.constants)
        for step in build.steps:
            trace.run(step)
        stored = machine.store(build.store, trace.registers[build.table], machine.isa.word)
        return np.stack([np.broadcast_to(x, codes.shape[:2]) for x in stored[: table.entries]], axis=-1)


def _cells(inputs: Sequence[Any]) -> list[Any]:
    return [x[..., b] for x in inputs for b in range(x.shape[-1])]


def _span(x: Any, runs: Runs, times: range) -> Any:
    """Return the bytes read in each of `times` of every run: (times, runs, ...)."""
    return x[runs.starts + np.arange(times.start, times.stop)[:, None]].astype(np.uint64)

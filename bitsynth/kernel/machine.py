"""Registers and memory for the interpreter: lanes are arrays, with an element for each product computed at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.load import Isa, load
from bitsynth.isa.step import Constant, Step
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Value
from bitsynth.kernel.program import Acc, Kernel, Loop

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
        return Register(instr.out, tuple(instr(_DOMAIN, [lanes.viewed_as(_DOMAIN, kind).lanes])))

    def store(self, op: str, register: Register, cells: VecType) -> tuple[Any, ...]:
        """Return the cells that are in memory after a store."""
        instr = self.isa[op]
        if not instr.store:
            raise SpecError(f"{instr.name} stores nothing to memory")
        lanes = instr(_DOMAIN, [register.viewed_as(_DOMAIN, instr.operands[0].type).lanes])
        return Register(instr.out, tuple(lanes)).viewed_as(_DOMAIN, cells).lanes

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
        return trace.registers[value].viewed_as(_DOMAIN, VecType.parse(acc.type))

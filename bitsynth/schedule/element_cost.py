"""The cost of an elementwise program, by the tables of its instruction set."""

from __future__ import annotations

from collections import defaultdict

from bitsynth.isa.load import load
from bitsynth.isa.step import Step
from bitsynth.kernel.elementwise.program import ElementwiseProgram

_ROW_REGISTERS = 6
"""Registers that are left for the values of one row."""


def cycles(program: ElementwiseProgram, cpu: str) -> float:
    """Return cycles of `cpu` for a unit: the busiest port class, or all instructions over all vector ports.

    Constants of channels are loaded once for many rows if registers hold them, else anew for every row.
    """
    isa = load(program.isa)
    busy: dict[str, float] = defaultdict(float)
    used = [isa[s.op] for s in (*program.steps, *_all_iterations(program))]
    moved = [isa[program.store]] * len(program.results)
    for input_, op in zip(program.spec.inputs, program.loads, strict=True):
        if input_.per == "element" or (input_.per == "channel" and not _fits_registers(program)):
            moved += [isa[op]] * (program.registers(input_)[1] * input_.values)
    for instr in (*used, *moved):
        busy[instr.cost[cpu].port] += 1 / instr.cost[cpu].per_cycle
    every = sum(i.instructions for i in used) / isa.table.cpu[cpu].vector_per_cycle
    load_cycles = sum(1 / i.cost[cpu].per_cycle for i in moved) if isa.table.cpu[cpu].loads_block else 0.0
    return round(max(every, *busy.values()) + load_cycles, 4)


def _all_iterations(program: ElementwiseProgram) -> list[Step]:
    """Return the steps of all iterations of the loop."""
    if program.loop is None:
        return []
    return [*program.loop.steps] * program.spec.inputs[-1].count


def _fits_registers(program: ElementwiseProgram) -> bool:
    """Return whether registers hold all constants together with the values of a row."""
    isa, spec = load(program.isa), program.spec
    held_registers = sum(program.registers(x)[1] * x.values for x in spec.inputs if x.per != "element")
    return held_registers + len(program.constants) + _ROW_REGISTERS <= isa.table.registers


def latency(program: ElementwiseProgram, cpu: str) -> float:
    """Return cycles from inputs to the last result."""
    isa, ready = load(program.isa), dict[str, float]()
    for step in program.steps:
        ready[step.dst] = max(ready.get(a, 0.0) for a in step.args) + isa[step.op].cost[cpu].latency
    return max(ready.get(name, 0.0) for name in program.results) + float(len(_all_iterations(program)))

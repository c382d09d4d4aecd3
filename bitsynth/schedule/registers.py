"""The registers that a pass needs, and whether the register file holds them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.isa.value import Value
from bitsynth.kernel.order import interleaved
from bitsynth.kernel.program import Kernel, Pass, held_for_rows, row_program
from bitsynth.schedule import cost

ROWS = (1, 2, 3, 4, 6, 8, 12)
"""Rows of a tile that are tried."""


def fits_registers(isa: Isa, kernel: Kernel, loop: Pass) -> bool:
    """Return whether one step of all rows lives in registers.

    Inputs are loaded at their first use. If rows come one after the other and there are more than one,
    columns' are held for the others, as compilers do.
    """
    if kernel.order == "steps":
        step = interleaved(kernel, loop.step)
        held = {c.name for c in kernel.constants} & {a for s in step.steps for a in s.args}
        return live_registers(step.steps, [acc.next for acc in step.accs], held) <= isa.table.registers
    program = [*cost.shared_program(loop), *row_program(loop)]
    constants = {c.name for c in kernel.constants} & {a for s in program for a in s.args}
    held = set(held_for_rows(loop)) if kernel.groups > 1 else set()
    other_rows = len(loop.step.accs) * (kernel.groups - 1)
    outputs = [*(acc.next for acc in loop.step.accs), *sorted(held)]
    return live_registers(program, outputs, constants) + other_rows <= isa.table.registers


def live_registers(program: Sequence[Step], outputs: Sequence[Value], always: set[Value]) -> int:
    """Return the most values alive at once; planes come alive at their first use, accumulators before."""
    last: dict[Value, int] = {name: len(program) for name in outputs}
    first: dict[Value, int] = {}
    for k, step in enumerate(program):
        for name in step.args:
            last[name] = max(k, last.get(name, k))
            first.setdefault(name, -1 if name.is_accumulator else k)
        first[step.dst] = k
    spans = [(first[n], last[n]) for n in last if n in first and n not in always]
    change = [0] * (len(program) + 1)
    for a, b in spans:
        if a <= b:
            change[max(a, 0)] += 1
            change[min(b + 1, len(program))] -= 1
    return max(accumulate(change)) + len(always)

"""Finds the quickest form of a kernel for a processor: fewer rows, and pipelined loops if it is an in-order one.

It counts the registers that a pass needs, which must fit the register file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import ceil

import msgspec

from bitsynth.isa.load import Isa, load
from bitsynth.isa.step import Step
from bitsynth.isa.value import Value
from bitsynth.kernel.in_order.list_scheduling import general_registers
from bitsynth.kernel.matrices import matrix_grid
from bitsynth.kernel.order import interleave
from bitsynth.kernel.program import Kernel, Pass, find_held_for_rows, row_program
from bitsynth.schedule import cost
from bitsynth.schedule.predicted import cycles_per_128_mac, tile_cycles_per_128_mac

ROWS = (1, 2, 3, 4, 6, 8, 12)
"""Rows of a tile that are tried."""


def fits_registers(isa: Isa, kernel: Kernel, loop: Pass) -> bool:
    """Return whether one step of all rows lives in registers.

    Inputs are loaded at their first use. If rows come one after the other and there are more than one,
    columns' are held for the others, as compilers do.
    """
    if kernel.in_matrices:
        return matrix_grid(kernel).taken <= isa.matrices.registers
    if kernel.order == "steps":
        step = interleave(kernel, loop.step)
        held = {c.name for c in kernel.constants} & {a for s in step.steps for a in s.args}
        return live_registers(step.steps, [acc.next for acc in step.accs], held) <= isa.table.registers
    program = [*cost.shared_program(loop), *row_program(loop)]
    constants = {c.name for c in kernel.constants} & {a for s in program for a in s.args}
    held = set(find_held_for_rows(loop)) if kernel.groups > 1 else set()
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


_ROWS = sorted({*ROWS, 5, 10, 16, 20}, reverse=True)
"""Numbers of rows that are tried after the full number, greatest first; none below a third, which only costs time."""

_TIE_FACTOR = 1.015
"""Predicted cycles are equal up to this factor.

With 2 % A4W4's popcount had four rows, 53.3 cycles for 52.4 of three, and gcc 12.2 wrote 59.0 for 55.0.
"""

_MAX_ACCUMULATOR_SHARE = 3 / 4
"""Accumulators fill less than this share of the registers in a pipelined loop.

Compilers copy registers around ordered steps where they do: A4W4 by six rows of 32 columns takes 2.6 times as long as
by five, in which 20 of 32 registers are sums (gcc 12.2).
"""

_SCALAR_TEMPORARIES = 8
"""General-purpose registers that a scalar pass needs at least, besides its accumulators."""


def quickest(kernel: Kernel, cpu: str) -> Kernel:
    """Return the kernel for `cpu`: itself, or pipelined for an in-order processor, with the quickest number of rows.

    Fewer rows read columns more often: they are taken only if they gain more than _TIE_FACTOR.
    """
    reordered = pipeline_for(kernel, cpu)
    if reordered is kernel:
        return kernel
    fewer = (n for n in _ROWS if kernel.rows <= 3 * n < 3 * kernel.rows and n % kernel.together == 0)
    tried = dict.fromkeys(_with_room(msgspec.structs.replace(reordered, rows=n)) for n in (kernel.rows, *fewer))
    cycles_of = {form: tile_cycles_per_128_mac(load(kernel.isa), form, cpu) for form in tried}
    most = _TIE_FACTOR * min(cycles_of.values())
    return next(form for form, cycles in cycles_of.items() if cycles <= most)


def pipeline_for(kernel: Kernel, cpu: str) -> Kernel:
    """Return the kernel with its loops pipelined for `cpu`; itself, unless that is an in-order processor."""
    return msgspec.structs.replace(kernel, order=cpu) if cpu in load(kernel.isa).table.in_order else kernel


def _with_room(kernel: Kernel) -> Kernel:
    """Return the kernel with at most as many rows as leave registers besides accumulators."""
    most = _MAX_ACCUMULATOR_SHARE * load(kernel.isa).table.registers
    accs = max(len(loop.step.accs) for loop in kernel.passes)
    groups = max(1, ceil(most / accs) - 1)
    if kernel.scalar_pass:
        groups = max(1, min(groups + 1, general_registers(_SCALAR_TEMPORARIES + len(kernel.scalar_pass.step.accs))))
    return msgspec.structs.replace(kernel, rows=min(kernel.groups, groups) * kernel.together)


def scoreboard(kernel: Kernel, cpus: Iterable[str]) -> dict[str, float]:
    """Return the predicted cycles per 128 multiply-accumulates, in the quickest form, for `cpus` with issue rules."""
    isa = load(kernel.isa)
    able = (cpu for cpu in cpus if isa.table.cpu[cpu].issue)
    return {cpu: round(cycles_per_128_mac(isa, quickest(kernel, cpu), cpu), 4) for cpu in able}

"""The form of a kernel that is quickest on a processor: its rows, and its steps in order if that is an in-order one."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from bitsynth.isa.load import load
from bitsynth.kernel.program import Kernel
from bitsynth.schedule.predicted import cycles_per_128_mac
from bitsynth.schedule.registers import ROWS

_EQUAL = 1.02
"""Predicted cycles are equal up to this factor."""


def quickest(kernel: Kernel, cpu: str) -> Kernel:
    """The kernel on `cpu`: itself, or in that processor's order as many of its rows as are quickest in it.

    Fewer rows read columns more often: as long as they gain more than predictions and compilers differ by.
    """
    found = ordered(kernel, cpu)
    if found is kernel:
        return kernel
    told = _cycles(found, cpu)
    for rows in sorted((n for n in ROWS if n < kernel.rows and n % kernel.together == 0), reverse=True):
        fewer = msgspec.structs.replace(found, rows=rows)
        cycles = _cycles(fewer, cpu)
        if cycles * _EQUAL > told:
            break
        found, told = fewer, cycles
    return found


def ordered(kernel: Kernel, cpu: str) -> Kernel:
    """The kernel with its steps as `cpu` wants them: itself, unless that is an in-order processor."""
    return msgspec.structs.replace(kernel, order=cpu) if cpu in load(kernel.isa).table.in_order else kernel


def scoreboard(kernel: Kernel, cpus: Iterable[str]) -> dict[str, float]:
    """Predicted cycles for 128 multiply-accumulates on those of `cpus` that have issue rules, as `quickest` there."""
    known = load(kernel.isa).table.cpu
    return {cpu: round(_cycles(quickest(kernel, cpu), cpu), 4) for cpu in cpus if known[cpu].issue}


def _cycles(kernel: Kernel, cpu: str) -> float:
    return cycles_per_128_mac(load(kernel.isa), kernel, cpu)

"""How far ahead steps ask for what they read.

A load that misses holds up an in-order processor; asking for a line does not (Cortex-A53 TRM, Arm DDI 0500, 6.6.1).
"""

from __future__ import annotations

from bitsynth.isa.tables import CpuTable
from bitsynth.kernel.program import Kernel

LINE_BYTES = 64
"""Of a cache."""
_LEAST_BYTES = 16
"""Of what a turn reads: of less a line holds that of many turns, and lines are few."""


def distance(cpu: CpuTable, kernel: Kernel, size: int) -> int:
    """How many bytes behind it are asked for where turns of a step read `size` bytes a turn; 0 if none are.

    None are of planes that lie apart.
    """
    if not cpu.prefetch_turns or kernel.bit_axis == "outer" or size < _LEAST_BYTES:
        return 0
    return max(LINE_BYTES, cpu.prefetch_turns * size)

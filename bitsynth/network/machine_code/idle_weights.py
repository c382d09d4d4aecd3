"""Whether weights of 0 make a microkernel ignore what a row has there, be it a code or not.

The runtime lets rows end inside of a step where weights behind are 0: the row then has bytes that nobody wrote. A proof
of a kernel speaks of codes. Here a step of the proved program runs on unknown accumulators, weights and rows; with the
weights of one position at 0, no accumulator depends on the row's bytes at this position. So by induction over the steps
no result does.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from bitsynth.emit.packing import packing
from bitsynth.isa.domains.terms import TermPayload, atoms_of
from bitsynth.isa.types import VecType
from bitsynth.kernel.packing import tiles
from bitsynth.kernel.program import Kernel, Pass
from bitsynth.layers.constants import idle_code
from bitsynth.matmul import MatmulKernel
from bitsynth.objects.reference import ProgramRun, RegisterContents, StepPlace
from bitsynth.objects.values import Byte, Contents

_ROW, _WEIGHTS, _ACCUMULATOR = "row", "w", "accumulator"


@lru_cache(maxsize=64)
def ignores_rows_of_idle_weights(kernel: MatmulKernel) -> bool:
    """Return whether it is shown, for every position of a step, that a row counts nothing where weights are 0.

    It may be if packed rows are codes, and each position has bytes of its own.
    """
    core = kernel.entry.kernel
    if not packing(core).is_of_codes:
        return False
    idle = _bytes_of_positions(core)
    offsets = [offset for position in idle for offset in position]
    if len(set(offsets)) < len(offsets):
        return False
    run = ProgramRun.of(kernel, Contents())
    order = packing(core).order
    return not any(
        _depends(run, loop, group, code, idle[position])
        for loop in core.passes
        for group in range(core.groups)
        for position, code in enumerate(order)
    )


def _bytes_of_positions(core: Kernel) -> list[dict[int, int]]:
    """Return for each position of a step the offsets of its bytes in a tile, and these bytes' values for weights of
    0."""
    idle = idle_code(core)
    nothing = np.full((core.columns, 1, core.k_step), idle, np.uint8)
    empty = tiles(core, nothing)[0]
    out: list[dict[int, int]] = []
    for position in range(core.k_step):
        offsets: set[int] = set()
        for code in range(1 << core.column_bits):
            codes = nothing.copy()
            codes[..., position] = code
            offsets |= set(np.flatnonzero(tiles(core, codes)[0] != empty).tolist())
        out.append({offset: int(empty[offset]) for offset in offsets})
    return out


def _depends(run: ProgramRun, loop: Pass, group: int, code: int, idle: dict[int, int]) -> bool:
    """Return whether accumulators after a step may depend on a row's bytes of one code, with those weights idle."""
    size = run.kernel.code_bytes
    own = range(code * size, (code + 1) * size)
    values = run.values

    def name_unknown(of: Byte) -> TermPayload:
        assert isinstance(of, tuple)
        return idle[of[1]] if of[0] == _WEIGHTS and of[1] in idle else values.domain.atom(of, 8)

    for accumulators in (None, _unknown_accumulators(run, loop)):
        place = StepPlace(1, 1, 0, 0, 0, lambda row: (_ROW, row))
        for content in run.after_step(run.kernel.of_group(loop, group), group, place, accumulators).values():
            operations = values.operations_of(content, content)
            if operations is None:
                return True
            (terms,) = values.evaluate([content], operations, name_unknown)
            if any(of[0][0] == _ROW and of[1] in own for term in terms for of in atoms_of(term)):
                return True
    return False


def _unknown_accumulators(run: ProgramRun, loop: Pass) -> RegisterContents:
    sizes = {acc.name: VecType.parse(acc.type).total_bits // 8 for acc in loop.step.accs}
    return {name: run.values.memory((_ACCUMULATOR, str(name)), 0, size) for name, size in sizes.items()}

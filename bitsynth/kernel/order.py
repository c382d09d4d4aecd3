"""The order in which a step's loads and instructions are written, all rows of the tile in it.

A line is a `Step` on names of its own row, `acc0_2` for accumulator 0 of row 2; a load is one without operands.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from bitsynth.isa.step import Step
from bitsynth.kernel.program import Acc, Kernel, Loop, row_free


def of_row(name: str, row: int) -> str:
    """The name of what a row has for itself."""
    return f"{name}_{row}"


def interleaved(kernel: Kernel, loop: Loop) -> Loop:
    """The step with all its loads and all rows in one program: each instruction for every row before the next.

    Inputs are loaded at their first use.
    """
    accs = tuple(
        Acc(of_row(acc.name, row), acc.type, of_row(acc.next, row)) for row in range(kernel.rows) for acc in loop.accs
    )
    return msgspec.structs.replace(loop, program=tuple(map(str, _lines(kernel, loop))), accs=accs, first=())


def _lines(kernel: Kernel, loop: Loop) -> Iterator[Step]:
    free, loaded = row_free(loop.steps), set[str]()
    for step in loop.steps:
        for row in (None,) if step.dst in free else range(kernel.rows):
            names = [a if row is None or a in free or a[0] in "wk" else of_row(a, row) for a in step.args]
            for arg in names:
                if arg[0] in "aw" and not arg.startswith("acc") and arg not in loaded:
                    loaded.add(arg)
                    yield Step(arg, kernel.memory.load if arg[0] == "w" else kernel.memory.broadcast, ())
            yield Step(step.dst if row is None else of_row(step.dst, row), step.op, tuple(names), step.imm)

"""Writes a step for all rows of the tile, in one of two orders: row by row, or interleaved.

    program of one row       row by row, two rows                interleaved
        t0 = eor a0 w0_0         w0_0 = load; a0_0 = load            a0_0 = load; w0_0 = load; t0_0 = eor a0_0 w0_0
        t1 = cnt t0              t0_0 = eor a0_0 w0_0                a0_1 = load; t0_1 = eor a0_1 w0_0
                                 t1_0 = cnt t0_0                     t1_0 = cnt t0_0
                                 a0_1 = load                         t1_1 = cnt t0_1
                                 t0_1 = eor a0_1 w0_0 ...

An instruction is a `Step` on values of its own row: `acc0_2` is accumulator 0 of row 2, or of group 2 if groups of rows
share one program. A load is a `Step` without operands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from bitsynth.isa.step import Step
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.program import Acc, Kernel, Loop, Pass, row_free


def all_accs(kernel: Kernel, loop: Loop) -> tuple[Acc, ...]:
    """Return the accumulators of all rows for a loop; for a last row with a scalar pass the scalar accumulators."""
    own, last = kernel.active_scalar_pass, kernel.groups - 1
    return tuple(
        acc for group in range(kernel.groups) for acc in _accs_of(own.step if own and group == last else loop, group)
    )


def vector_accs(accs: Iterable[Acc]) -> int:
    """Return how many accumulators are in vector registers; accumulators of a scalar pass may not be."""
    return sum(not VecType.parse(acc.type).in_general for acc in accs)


def row_by_row(kernel: Kernel, loop: Pass, step: Loop) -> Loop:
    """Return the step with its loads: first columns and what depends on columns alone, then row after row.

    `step` is the step of the pass `loop`, or its first run.
    """
    free = row_free(step.steps)
    columns = dict.fromkeys(a for s in step.steps for a in s.args if a.is_column)
    lines = [Step(value, kernel.memory.load, ()) for value in columns]
    lines += [s for s in step.steps if s.dst in free]
    for group in range(kernel.groups):
        inputs = (Value.of(Role.ROW, i, row=group) for i in range(len(loop.rows)))
        lines += [Step(value, kernel.memory.broadcast, ()) for value in inputs]
        own = _own(kernel, loop, step, group)
        shared = free if own is step else frozenset()
        lines += [in_row(s, group, shared) for s in own.steps if s.dst not in shared]
    accs = tuple(acc for group in range(kernel.groups) for acc in _accs_of(_own(kernel, loop, step, group), group))
    return msgspec.structs.replace(step, steps=tuple(lines), accs=accs, first=())


def _own(kernel: Kernel, loop: Pass, step: Loop, group: int) -> Loop:
    """Return what a group of rows runs in the place of `step`: the same in its own pass, if it has one."""
    own = kernel.of_group(loop, group)
    if own is loop:
        return step
    return own.step if step == loop.step else own.step.first_run


def interleave(kernel: Kernel, loop: Loop) -> Loop:
    """Return the step with each instruction for every row before the next; inputs are loaded at their first use."""
    return msgspec.structs.replace(
        loop,
        steps=tuple(_interleave(kernel, loop)),
        accs=tuple(acc for group in range(kernel.groups) for acc in _accs_of(loop, group)),
        first=(),
    )


def _accs_of(loop: Loop, group: int) -> Iterator[Acc]:
    return (Acc(acc.name.of_row(group), acc.type, acc.next.of_row(group)) for acc in loop.accs)


def in_row(step: Step, row: int, shared: frozenset[Value] = frozenset()) -> Step:
    """Return the step for a row, or a group of rows; all rows share columns, constants and the values in `shared`."""
    return step.rename(lambda value: value if value in shared else value.of_row(row))


def _interleave(kernel: Kernel, loop: Loop) -> Iterator[Step]:
    free, loaded = row_free(loop.steps), set[Value]()
    for step in loop.steps:
        for own in [step] if step.dst in free else [in_row(step, group, free) for group in range(kernel.groups)]:
            for value in own.args:
                if value.is_input and value not in loaded:
                    loaded.add(value)
                    yield Step(value, kernel.memory.load if value.is_column else kernel.memory.broadcast, ())
            yield own

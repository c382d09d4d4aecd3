"""The order in which a step's loads and instructions are written, all rows of the tile in it.

A line is a `Step` on names of its own row, `acc0_2` for accumulator 0 of row 2, or of group 2 if rows have one program
together; a load is one without operands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from bitsynth.isa.step import Step
from bitsynth.isa.types import VecType
from bitsynth.kernel.program import Acc, Kernel, Loop, Pass, row_free


def of_row(name: str, row: int) -> str:
    """The name of what a row, or a group of rows, has for itself."""
    return f"{name}_{row}"


def all_accs(kernel: Kernel, loop: Loop) -> tuple[Acc, ...]:
    """The accumulators of all rows for a loop, the last row's own if it has its own program."""
    own, last = kernel.active_scalar_pass, kernel.groups - 1
    return tuple(
        acc for group in range(kernel.groups) for acc in _accs_of(own.step if own and group == last else loop, group)
    )


def vector_accs(accs: Iterable[Acc]) -> int:
    """How many accumulators lie in vector registers: a last row's own may not."""
    return sum(not VecType.parse(acc.type).in_general for acc in accs)


def row_by_row(kernel: Kernel, loop: Pass, step: Loop) -> Loop:
    """The step with its loads and all rows in one program: columns and what depends on them alone, row after row.

    `step` is that of the pass, or its first run.
    """
    free = row_free(step.steps)
    columns = dict.fromkeys(a for s in step.steps for a in s.args if a[0] == "w")
    lines = [Step(name, kernel.memory.load, ()) for name in columns]
    lines += [s for s in step.steps if s.dst in free]
    for group in range(kernel.groups):
        lines += [Step(of_row(f"a{i}", group), kernel.memory.broadcast, ()) for i in range(len(loop.rows))]
        own = _own(kernel, loop, step, group)
        shared = free if own is step else frozenset()
        for s in own.steps:
            if s.dst not in shared:
                lines.append(Step(of_row(s.dst, group), s.op, tuple(_named(a, group, shared) for a in s.args), s.imm))
    accs = tuple(acc for group in range(kernel.groups) for acc in _accs_of(_own(kernel, loop, step, group), group))
    return msgspec.structs.replace(step, program=tuple(map(str, lines)), accs=accs, first=())


def _own(kernel: Kernel, loop: Pass, step: Loop, group: int) -> Loop:
    """The step of a group, or its first run, where that of others is `step`."""
    found = kernel.of_group(loop, group)
    if found is loop:
        return step
    return found.step if step == loop.step else found.step.first_run


def interleaved(kernel: Kernel, loop: Loop) -> Loop:
    """The step with all its loads and all rows in one program: each instruction for every row before the next.

    Inputs are loaded at their first use.
    """
    return msgspec.structs.replace(
        loop,
        program=tuple(map(str, _lines(kernel, loop))),
        accs=tuple(acc for group in range(kernel.groups) for acc in _accs_of(loop, group)),
        first=(),
    )


def _accs_of(loop: Loop, group: int) -> Iterator[Acc]:
    return (Acc(of_row(acc.name, group), acc.type, of_row(acc.next, group)) for acc in loop.accs)


def _named(name: str, group: int, free: frozenset[str]) -> str:
    """The name of a value that a row reads, its own or what all rows share."""
    return name if name in free or name[0] in "wk" else of_row(name, group)


def _lines(kernel: Kernel, loop: Loop) -> Iterator[Step]:
    free, loaded = row_free(loop.steps), set[str]()
    for step in loop.steps:
        for group in (None,) if step.dst in free else range(kernel.groups):
            names = [a if group is None else _named(a, group, free) for a in step.args]
            for arg in names:
                if arg[0] in "aw" and not arg.startswith("acc") and arg not in loaded:
                    loaded.add(arg)
                    yield Step(arg, kernel.memory.load if arg[0] == "w" else kernel.memory.broadcast, ())
            yield Step(step.dst if group is None else of_row(step.dst, group), step.op, tuple(names), step.imm)

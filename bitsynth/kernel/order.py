"""The order in which a step's loads and instructions are written, all rows of the tile in it.

A line is a `Step` on names of its own row, `acc0_2` for accumulator 0 of row 2; a load is one without operands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from bitsynth.isa.load import Isa, load
from bitsynth.isa.scoreboard import InOrder, Issued, arithmetic, of_kind
from bitsynth.isa.step import Step
from bitsynth.kernel.program import Acc, Kernel, Loop, Pass, row_free

_AHEAD = 48
"""Lines that are looked at for the next, of those not yet placed."""


def of_row(name: str, row: int) -> str:
    """The name of what a row has for itself."""
    return f"{name}_{row}"


def written(kernel: Kernel, loop: Pass, step: Loop) -> Loop:
    """The step in the order of `kernel.order`, as C has it."""
    if kernel.order == "steps":
        return interleaved(kernel, step)
    flat = row_by_row(kernel, loop, step)
    return flat if kernel.order == "rows" else listed(load(kernel.isa), kernel, flat)


def row_by_row(kernel: Kernel, loop: Pass, step: Loop) -> Loop:
    """The step with its loads and all rows in one program: columns and what depends on them alone, row after row."""
    free = row_free(step.steps)
    columns = dict.fromkeys(a for s in step.steps for a in s.args if a[0] == "w")
    lines = [Step(name, kernel.memory.load, ()) for name in columns]
    lines += [s for s in step.steps if s.dst in free]
    for row in range(kernel.rows):
        lines += [Step(of_row(f"a{i}", row), kernel.memory.broadcast, ()) for i in range(len(loop.rows))]
        for s in step.steps:
            if s.dst not in free:
                lines.append(Step(of_row(s.dst, row), s.op, tuple(_named(a, row, free) for a in s.args), s.imm))
    return msgspec.structs.replace(step, program=tuple(map(str, lines)), accs=_accs(kernel, step), first=())


def interleaved(kernel: Kernel, loop: Loop) -> Loop:
    """The step with all its loads and all rows in one program: each instruction for every row before the next.

    Inputs are loaded at their first use.
    """
    return msgspec.structs.replace(
        loop, program=tuple(map(str, _lines(kernel, loop))), accs=_accs(kernel, loop), first=()
    )


def _accs(kernel: Kernel, loop: Loop) -> tuple[Acc, ...]:
    return tuple(
        Acc(of_row(acc.name, row), acc.type, of_row(acc.next, row)) for row in range(kernel.rows) for acc in loop.accs
    )


def _named(name: str, row: int, free: set[str]) -> str:
    """The name of a value that a row reads, its own or what all rows share."""
    return name if name in free or name[0] in "wk" else of_row(name, row)


def _lines(kernel: Kernel, loop: Loop) -> Iterator[Step]:
    free, loaded = row_free(loop.steps), set[str]()
    for step in loop.steps:
        for row in (None,) if step.dst in free else range(kernel.rows):
            names = [a if row is None else _named(a, row, free) for a in step.args]
            for arg in names:
                if arg[0] in "aw" and not arg.startswith("acc") and arg not in loaded:
                    loaded.add(arg)
                    yield Step(arg, kernel.memory.load if arg[0] == "w" else kernel.memory.broadcast, ())
            yield Step(step.dst if row is None else of_row(step.dst, row), step.op, tuple(names), step.imm)


def listed(isa: Isa, kernel: Kernel, flat: Loop) -> Loop:
    """A step in the order of an in-order processor, `kernel.order`: by list scheduling.

    Of the lines whose operands are made the one comes next that can start first, of those the first as written; one
    that takes a register only if there is one.
    """
    work, core = _Registers(isa, kernel, flat), InOrder(isa.rules(kernel.order))
    waiting, out = list(flat.steps), list[Step]()
    while waiting:
        ready = [s for s in waiting[:_AHEAD] if work.made(s)]
        fit = [s for s in ready if work.fits(s)] or [min(ready, key=work.taken)]
        ahead = {s.dst: core.start(_issued(isa, kernel, s)) for s in fit}
        step = min(fit, key=lambda s: ahead[s.dst])
        core.issue(_issued(isa, kernel, step))
        work.run(step)
        waiting.remove(step)
        out.append(step)
    return msgspec.structs.replace(flat, program=tuple(map(str, out)))


def _issued(isa: Isa, kernel: Kernel, step: Step) -> Issued:
    """What the processor does for a line; addresses are there."""
    if step.args:
        return arithmetic(isa, kernel.order, step.op, step.args, step.dst)
    whole = isa[step.op].operands[0].type.total_bits == isa.table.vector_bits
    return of_kind(isa.rules(kernel.order), "load" if whole else "broadcast", (), [step.dst])


class _Registers:
    """The registers in use between two lines of a step that is being ordered."""

    def __init__(self, isa: Isa, kernel: Kernel, flat: Loop) -> None:
        self.readers = Counter(a for s in flat.steps for a in dict.fromkeys(s.args))
        self.made_here = {s.dst for s in flat.steps}
        self.kept = {acc.next for acc in flat.accs} | {c.name for c in kernel.constants}
        used = {c.name for c in kernel.constants} & set(self.readers)
        self.live = {*used, *(acc.name for acc in flat.accs if acc.name in self.readers)}
        self.most = isa.table.registers

    def made(self, step: Step) -> bool:
        """Whether every operand is there."""
        return all(a in self.live or a not in self.made_here for a in step.args)

    def taken(self, step: Step) -> int:
        """Registers that are in use after `step` and were not before it."""
        return 1 - sum(self.readers[a] == 1 and a not in self.kept for a in dict.fromkeys(step.args) if a in self.live)

    def fits(self, step: Step) -> bool:
        """Whether there is a register for its result."""
        return self.taken(step) <= 0 or len(self.live) < self.most

    def run(self, step: Step) -> None:
        """Take note of `step`."""
        for a in dict.fromkeys(step.args):
            self.readers[a] -= 1
            if self.readers[a] == 0 and a not in self.kept:
                self.live.discard(a)
        self.live.add(step.dst)

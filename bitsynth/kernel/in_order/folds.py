"""Folds and flushes with all their rows, loads and stores in one program, for in-order processors.

A fold adds the accumulators of a loop to those of the loop around it, which lie in memory between folds; a flush adds
sums to the tile. Lines are as in `order`; a store is one of a form that stores, and named by its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from types import MappingProxyType

from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.kernel.order import of_row
from bitsynth.kernel.program import Acc, Kernel, Loop, Pass, but_accumulators

_SHARED = 4
"""Registers of the place that rows start at, at most, for all rows to have it from these."""

STORED = "s_"
"""Before the name of a place in memory: the line that stores there."""


def outer_accs(loop: Pass) -> tuple[Acc, ...]:
    """The accumulators of outer loops."""
    return tuple(acc for nested in loop.loops[1:] for acc in nested.accs)


def in_memory(isa: Isa, kernel: Kernel) -> bool:
    """Whether the accumulators of outer loops lie in memory between folds: registers do not hold them all."""
    return any(_registers(kernel, loop) > isa.table.registers for loop in kernel.passes if len(loop.loops) > 1)


def starts_in_memory(isa: Isa, kernel: Kernel, loop: Loop) -> bool:
    """Whether a loop is an outer one, and its accumulators lie in memory between folds."""
    return in_memory(isa, kernel) and all(loop != p.step for p in kernel.passes)


def in_registers(isa: Isa, kernel: Kernel) -> bool:
    """Whether there are outer loops, whose accumulators registers hold: that leaves few for a step."""
    return kernel.nests and not in_memory(isa, kernel)


def _registers(kernel: Kernel, loop: Pass) -> int:
    accs = len(loop.step.accs) + len(outer_accs(loop))
    return accs * kernel.groups + but_accumulators(loop)


def fold(kernel: Kernel, outer: Loop) -> Loop:
    """The program of an outer loop for all rows."""
    lines = list[Step]()
    for group in range(kernel.groups):
        lines += _loads(kernel, group, outer.accs)
        lines += _of_row(outer.steps, group)
        lines += _stores(kernel, group, {acc.name: acc.next for acc in outer.accs})
    return Loop(1, tuple(map(str, lines)), ())


def shares_starts(isa: Isa, kernel: Kernel) -> bool:
    """Whether there is a flush of its own for rows that start at one place: registers hold that for all of them."""
    return kernel.rows > 1 and kernel.tile_registers(isa.table.vector_bits) <= _SHARED


def flush(isa: Isa, kernel: Kernel, loop: Pass, *, row_terms: bool, doublings: int = 0, shared: bool = False) -> Loop:
    """The flush of a pass for all rows: tile registers `c0` and so on, and `more` of the row's terms, are loaded.

    Terms are doubled so many times; what else is added is as the kernel has it. Where rows `shared` the place they
    start at, that is loaded once, for the first row.
    """
    memory, lines = kernel.memory, list[Step]()
    registers, loaded = kernel.tile_registers(isa.table.vector_bits), outer_accs(loop) if in_memory(isa, kernel) else ()
    names = [f"c{r}" for r in range(registers * kernel.together)]
    for group in range(kernel.groups):
        becomes = dict[str, str]()
        lines += _loads(kernel, group, loaded)
        for member, row in enumerate(kernel.rows_of(group)):
            more = [of_row("more", row), *(of_row(f"more{k}", row) for k in range(doublings))]
            if row_terms:
                lines.append(Step(more[0], memory.broadcast_tile, ()))
                lines += (Step(twice, memory.add_tile, (once, once)) for once, twice in pairwise(more))
            for r, name in enumerate(names[member * registers : (member + 1) * registers]):
                own = of_row(name, group)
                start = of_row(f"c{r}", 0) if shared else own
                if start == own:
                    lines.append(Step(own, memory.load_tile, ()))
                becomes[name] = start
                if row_terms:
                    becomes[name] = f"from_{own}"
                    lines.append(Step(becomes[name], memory.add_tile, (start, more[-1])))
        flushed = kernel.of_group(loop, group)
        program = list(_of_row(flushed.flush_steps, group, becomes))
        if flushed is not loop:
            alone = _alone(program, becomes.values())
            lines, program = [*alone, *lines], [s for s in program if s not in alone]
        lines += program
        lines += _stores(kernel, group, dict(zip(names, flushed.tile, strict=True)))
    return Loop(1, tuple(map(str, lines)), ())


def _alone(program: Iterable[Step], tile: Iterable[str]) -> list[Step]:
    """The lines that wait for nothing of the tile, a chain that other lines are to hide."""
    waits, out = set(tile), list[Step]()
    for step in program:
        if waits.isdisjoint(step.args):
            out.append(step)
        else:
            waits.add(step.dst)
    return out


def _loads(kernel: Kernel, group: int, accs: Iterable[Acc]) -> list[Step]:
    return [Step(of_row(acc.name, group), kernel.memory.load_tile, ()) for acc in accs]


def _stores(kernel: Kernel, group: int, places: dict[str, str]) -> list[Step]:
    store = kernel.memory.store_tile
    return [Step(STORED + of_row(place, group), store, (of_row(value, group),)) for place, value in places.items()]


def _of_row(program: Iterable[Step], group: int, whole: Mapping[str, str] = MappingProxyType({})) -> Iterator[Step]:
    """The program for a group of rows; names that are `whole` are not those of its own."""

    def named(name: str) -> str:
        return whole.get(name) or (name if name[0] == "k" else of_row(name, group))

    return (Step(named(s.dst), s.op, tuple(map(named, s.args)), s.imm) for s in program)

"""Folds and flushes with all their rows, loads and stores in one program, for in-order processors.

A fold adds the accumulators of a loop to those of the loop around it, which lie in memory between folds; a flush adds
sums to the tile. Lines are as in `order`; a store is one of a form that stores, and named by its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bitsynth.isa.step import Step
from bitsynth.kernel.order import of_row
from bitsynth.kernel.program import Acc, Kernel, Loop, Pass

STORED = "s_"
"""Before the name of a place in memory: the line that stores there."""


def outer_accs(loop: Pass) -> tuple[Acc, ...]:
    """The accumulators that lie in memory between folds."""
    return tuple(acc for nested in loop.loops[1:] for acc in nested.accs)


def fold(kernel: Kernel, outer: Loop) -> Loop:
    """The program of an outer loop for all rows."""
    lines = list[Step]()
    for row in range(kernel.rows):
        lines += _loads(kernel, row, outer.accs)
        lines += _of_row(outer.steps, row)
        lines += _stores(kernel, row, {acc.name: acc.next for acc in outer.accs})
    return Loop(1, tuple(map(str, lines)), ())


def flush(kernel: Kernel, loop: Pass, tile_registers: int, *, row_terms: bool) -> Loop:
    """The flush of a pass for all rows: tile registers `c0` and so on, and `more` of the row's terms, are loaded."""
    memory, names, lines = kernel.memory, [f"c{r}" for r in range(tile_registers)], list[Step]()
    for row in range(kernel.rows):
        becomes = {}
        lines += _loads(kernel, row, outer_accs(loop))
        if row_terms:
            lines.append(Step(of_row("more", row), memory.broadcast_tile, ()))
        for name in names:
            lines.append(Step(of_row(name, row), memory.load_tile, ()))
            if row_terms:
                becomes[name] = f"from_{name}"
                lines += _of_row([Step(becomes[name], memory.add_tile, (name, "more"))], row)
        lines += _of_row(loop.flush_steps, row, becomes)
        lines += _stores(kernel, row, dict(zip(names, loop.tile, strict=True)))
    return Loop(1, tuple(map(str, lines)), ())


def _loads(kernel: Kernel, row: int, accs: Iterable[Acc]) -> list[Step]:
    return [Step(of_row(acc.name, row), kernel.memory.load_tile, ()) for acc in accs]


def _stores(kernel: Kernel, row: int, places: dict[str, str]) -> list[Step]:
    store = kernel.memory.store_tile
    return [Step(STORED + of_row(place, row), store, (of_row(value, row),)) for place, value in places.items()]


def _of_row(program: Iterable[Step], row: int, becomes: dict[str, str] | None = None) -> Iterator[Step]:
    def named(name: str) -> str:
        name = (becomes or {}).get(name, name)
        return name if name[0] == "k" else of_row(name, row)

    return (Step(named(s.dst), s.op, tuple(map(named, s.args)), s.imm) for s in program)

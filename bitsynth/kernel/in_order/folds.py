"""Folds and flushes as one program of all rows, loads and stores, for in-order processors.

A fold adds the accumulators of a loop to the wider ones of the loop around it. If registers cannot hold both, the wider
ones are spilled to memory between folds. A flush adds the outermost accumulators to the int32 tile. A fold of two rows:

    acc1_0 = load; acc1_1 = load                            spilled accumulators
    t0_0 = padal acc1_0 acc0_0; t0_1 = padal acc1_1 acc0_1
    s_acc1_0 = store t0_0; s_acc1_1 = store t0_1

Instructions are as in `kernel/order.py`; the result of a store is the place that it stores to (`Value.place`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.order import in_row
from bitsynth.kernel.program import Acc, Kernel, Loop, Pass, but_accumulators

_MAX_SHARED_REGISTERS = 4
"""Registers of a start of the tile that all rows share, at most."""


def outer_accs(loop: Pass) -> tuple[Acc, ...]:
    """Return the accumulators of outer loops."""
    return tuple(acc for nested in loop.loops[1:] for acc in nested.accs)


def in_memory(isa: Isa, kernel: Kernel) -> bool:
    """Return whether the accumulators of outer loops are spilled between folds, because registers do not hold all."""
    return any(_registers(kernel, loop) > isa.table.registers for loop in kernel.passes if len(loop.loops) > 1)


def starts_in_memory(isa: Isa, kernel: Kernel, loop: Loop) -> bool:
    """Return whether a loop is an outer one whose accumulators are spilled between folds."""
    return in_memory(isa, kernel) and all(loop != p.step for p in kernel.passes)


def in_registers(isa: Isa, kernel: Kernel) -> bool:
    """Return whether there are outer loops and registers hold their accumulators, which leaves few for a step."""
    return kernel.nests and not in_memory(isa, kernel)


def _registers(kernel: Kernel, loop: Pass) -> int:
    accs = len(loop.step.accs) + len(outer_accs(loop))
    return accs * kernel.groups + but_accumulators(loop)


def fold(kernel: Kernel, outer: Loop) -> Loop:
    """Return the program of an outer loop for all rows."""
    lines = list[Step]()
    for group in range(kernel.groups):
        lines += _loads(kernel, group, outer.accs)
        lines += (in_row(s, group) for s in outer.steps)
        lines += _stores(kernel, group, {acc.name: acc.next for acc in outer.accs})
    return Loop(1, tuple(lines), ())


def shares_starts(isa: Isa, kernel: Kernel) -> bool:
    """Return whether rows that start from the same values, which registers hold, have a flush of their own."""
    return kernel.rows > 1 and kernel.tile_registers(isa.table.vector_bits) <= _MAX_SHARED_REGISTERS


def flush(isa: Isa, kernel: Kernel, loop: Pass, *, row_terms: bool, doublings: int = 0, shared: bool = False) -> Loop:
    """Return the flush of a pass for all rows.

    It loads the tile registers, `c0` and so on, and with `row_terms` the term of each row, `more`, which it doubles
    `doublings` times. If rows have a `shared` start, that is loaded once, for the first row.
    """
    memory, lines = kernel.memory, list[Step]()
    registers, loaded = kernel.tile_registers(isa.table.vector_bits), outer_accs(loop) if in_memory(isa, kernel) else ()
    tile = [Value.of(Role.TILE, r) for r in range(registers * kernel.together)]
    for group in range(kernel.groups):
        starts = dict[Value, Value]()
        lines += _loads(kernel, group, loaded)
        for member, row in enumerate(kernel.rows_of(group)):
            more = [Value.of(Role.TERM, k, row=row) for k in (None, *range(doublings))]
            if row_terms:
                lines.append(Step(more[0], memory.broadcast_tile, ()))
                lines += (Step(twice, memory.add_tile, (once, once)) for once, twice in pairwise(more))
            for r, register in enumerate(tile[member * registers : (member + 1) * registers]):
                own = register.of_row(group)
                loaded_from = tile[r].of_row(0) if shared else own
                if loaded_from == own:
                    lines.append(Step(own, memory.load_tile, ()))
                starts[register] = loaded_from
                if row_terms:
                    starts[register] = Value.of(Role.START, register.number, row=group)
                    lines.append(Step(starts[register], memory.add_tile, (loaded_from, more[-1])))
        flushed = kernel.of_group(loop, group)
        program = [_rename(s, starts, group) for s in flushed.flush]
        if flushed is not loop:
            early = _independent_of(program, starts.values())
            lines, program = [*early, *lines], [s for s in program if s not in early]
        lines += program
        lines += _stores(kernel, group, dict(zip(tile, flushed.tile, strict=True)))
    return Loop(1, tuple(lines), ())


def _rename(step: Step, starts: Mapping[Value, Value], group: int) -> Step:
    """Return a step of a flush for a group of rows, whose tile registers are in `starts`."""
    return step.rename(lambda value: starts.get(value) or value.of_row(group))


def _independent_of(program: Iterable[Step], tile: Iterable[Value]) -> list[Step]:
    """Return the instructions that do not wait for the tile: a chain whose latency the others are to hide."""
    dependent, out = set(tile), list[Step]()
    for step in program:
        if dependent.isdisjoint(step.args):
            out.append(step)
        else:
            dependent.add(step.dst)
    return out


def _loads(kernel: Kernel, group: int, accs: Iterable[Acc]) -> list[Step]:
    return [Step(acc.name.of_row(group), kernel.memory.load_tile, ()) for acc in accs]


def _stores(kernel: Kernel, group: int, results: Mapping[Value, Value]) -> list[Step]:
    """Return the stores of a group's results, by the values in whose places they are stored."""
    store = kernel.memory.store_tile
    return [Step(value.of_row(group).place, store, (result.of_row(group),)) for value, result in results.items()]

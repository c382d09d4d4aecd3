"""The C of a kernel's programs: the tile's start, nests of loops over K, flushes; all rows written out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from bitsynth.emit.sides import SideText, side_bytes
from bitsynth.emit.statements import Rename, Scope
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.isa.types import VecType
from bitsynth.kernel.program import Acc, Kernel, Loop, Pass, period, row_free


@dataclass(frozen=True)
class LoopText:
    """One loop of the nest as the template wants it."""

    times: int
    start: Sequence[str]
    first: Sequence[str]
    program: Sequence[str]


@dataclass(frozen=True)
class PassText:
    """One pass as the template wants it; `rows` and `columns` say how inputs are packed."""

    rows: SideText
    columns: SideText
    loops: Sequence[LoopText]
    flush: Sequence[str]


@dataclass(frozen=True)
class ChainText:
    """Passes over the same `every` steps, between whose first and last accumulators are kept that start at `start`."""

    every: int
    start: Sequence[str]
    passes: Sequence[PassText]


def chain_text(
    isa: Isa, kernel: Kernel, chain: Sequence[tuple[Pass, SideText, SideText]], types: Mapping[str, VecType]
) -> ChainText:
    """The passes between two flushes to the tile, and how their rows and columns are packed."""
    first = chain[0][0]
    return ChainText(
        every=period(loop for loop, _, _ in chain),
        start=_start(isa, kernel, first.loops[-1], Scope(isa, dict(types))),
        passes=[_pass_text(isa, kernel, *one, dict(types)) for one in chain],
    )


def _pass_text(
    isa: Isa, kernel: Kernel, loop: Pass, rows: SideText, columns: SideText, types: dict[str, VecType]
) -> PassText:
    """One pass: every loop once a row, then the flush; the outermost accumulators are there."""
    scope = Scope(isa, types)
    *start, _ = [_start(isa, kernel, nested, scope) for nested in loop.loops]
    first = _step(isa, kernel, loop, scope, _first_run(loop.step)) if loop.step.first else []
    programs = [_step(isa, kernel, loop, scope, loop.step)]
    programs += [_fold(isa, kernel, nested, scope) for nested in loop.loops[1:]]
    return PassText(
        rows=rows,
        columns=columns,
        loops=[
            LoopText(n.trip_count, z, [] if k else first, p)
            for k, (n, z, p) in enumerate(zip(loop.loops, [*start, []], programs, strict=True))
        ],
        flush=_fold(isa, kernel, loop.carried, scope) if loop.carries else _flush(isa, kernel, loop, scope),
    )


def _start(isa: Isa, kernel: Kernel, loop: Loop, scope: Scope) -> list[str]:
    """Declarations of the loop's accumulators, at zero unless its first run sets them."""
    out = []
    for row in range(kernel.rows):
        for acc in loop.accs:
            name, kind = f"{acc.name}_{row}", VecType.parse(acc.type)
            scope.types[name] = kind
            if loop.first:
                out.append(f"{scope.ctype(kind)} {name};")
            else:
                out.append(scope.load(kernel.memory.load, name, "zero", view=kind))
    return out


def _first_run(loop: Loop) -> Loop:
    """The first run as a loop's program."""
    accs = tuple(msgspec.structs.replace(acc, next=acc.start) for acc in loop.accs)
    return msgspec.structs.replace(loop, program=loop.first, accs=accs, first=())


def _step(isa: Isa, kernel: Kernel, loop: Pass, scope: Scope, step: Loop) -> list[str]:
    """Loads of columns and what depends on nothing else, then the row program once a row."""
    registers = kernel.column_registers(isa.table.vector_bits)
    scope = Scope(isa, dict(scope.types))
    program = step.steps
    out = []
    for i in range(len(loop.columns)):
        for g in range(registers):
            place = _behind(kernel, "all", i * registers * isa.word.lanes, g * isa.word.lanes)
            out.append(scope.load(kernel.memory.load, f"w{g}_{i}", f"y + {place}"))
            out += _pinned(isa, f"w{g}_{i}", program, kernel.rows)
    free = row_free(program)
    out += scope.steps([s for s in program if s.dst in free])
    for row in range(kernel.rows):
        row_scope = Scope(isa, dict(scope.types))
        lines = []
        for i in range(len(loop.rows)):
            place = _behind(kernel, "steps", side_bytes(kernel, loop.rows[:i]))
            lines.append(row_scope.load(kernel.memory.broadcast, f"a{i}", f"x{row} + o + {place}"))
            lines += _pinned(isa, f"a{i}", program, 1)
        lines += _row(isa, row, step, [s for s in program if s.dst not in free], row_scope)
        out += _braced(lines)
    return out


def _behind(kernel: Kernel, steps: str, others: int, own: int = 0) -> str:
    """The place of an input behind `others` bytes a step, of one step or of all `steps`; `own` bytes into it."""
    return f"{others} * {steps} + {own}" if kernel.bit_axis == "outer" and others else str(others + own)


def _pinned(isa: Isa, name: str, program: Sequence[Step], times: int) -> list[str]:
    """Keeps a register that is read more than once from being loaded more than once."""
    reads = sum(s.args.count(name) for s in program)
    return _pin(isa, name) if reads * times > 1 else []


def _fold(isa: Isa, kernel: Kernel, loop: Loop, scope: Scope) -> list[str]:
    """The program of an outer loop, once a row; accumulators of both loops go by their row."""
    out = []
    for row in range(kernel.rows):
        out += _braced(_row(isa, row, loop, loop.steps, Scope(isa, dict(scope.types))))
    return out


def initial_tile(isa: Isa, kernel: Kernel) -> list[str]:
    """Every row of the tile starts at g, plus h of the row."""
    out: list[str] = []
    tile = isa.tile
    for row in range(kernel.rows):
        for r in range(kernel.tile_registers(isa.table.vector_bits)):
            scope = Scope(isa)
            lines = [scope.load(kernel.memory.load_tile, "start", f"g + {r * tile.lanes}")]
            last = "start"
            if kernel.has_row_terms:
                lines.append(scope.load(kernel.memory.broadcast_tile, "more", f"h + {row}"))
                instr = isa[kernel.memory.add_tile]
                args = [scope.viewed(x, o.type) for x, o in zip(("start", "more"), instr.operands, strict=True)]
                lines.append(scope.declare("both", instr.out, instr.render(args)))
                last = "both"
            lines.append(scope.store(kernel.memory.store_tile, last, _tile_at(row, r, tile)))
            out.append("{ " + " ".join(lines) + " }")
    return out


def _flush(isa: Isa, kernel: Kernel, loop: Pass, scope: Scope) -> list[str]:
    out = []
    tile = isa.tile
    for row in range(kernel.rows):
        row_scope = Scope(isa, dict(scope.types))
        places = [_tile_at(row, r, tile) for r in range(kernel.tile_registers(isa.table.vector_bits))]
        lines = _tile_start(isa, kernel, row, row_scope)
        lines += row_scope.steps(loop.flush_steps, _of_row(row))
        lines += [
            row_scope.store(kernel.memory.store_tile, name, place)
            for name, place in zip(loop.tile, places, strict=True)
        ]
        out += _braced(lines)
    return out


def _tile_start(isa: Isa, kernel: Kernel, row: int, scope: Scope) -> list[str]:
    """The row's tile registers before a flush: their terms at the first, what was stored at the others."""
    add, lines = isa[kernel.memory.add_tile], []
    if kernel.has_row_terms:
        lines.append(scope.load(kernel.memory.broadcast_tile, "more", f"more_from + {row} * more_ld"))
    for r in range(kernel.tile_registers(isa.table.vector_bits)):
        place = f"from + {row} * from_ld + {r * isa.tile.lanes}"
        lines.append(scope.load(kernel.memory.load_tile, f"c{r}", place))
        if kernel.has_row_terms:
            args = [scope.viewed(x, o.type) for x, o in zip((f"c{r}", "more"), add.operands, strict=True)]
            lines.append(f"c{r} = {add.render(args)};")
    return lines


def _tile_at(row: int, register: int, tile: VecType) -> str:
    return f"c + {row} * ldc + {register * tile.lanes}"


def _row(isa: Isa, row: int, loop: Loop, program: Sequence[Step], scope: Scope) -> list[str]:
    """The program of one row; an accumulator gets its new value as soon as the old one is read for the last time.

    Until then both would take a register, and moves at the end of the step.
    """
    rename, early = _of_row(row), _early(isa, loop, program)
    place = {dst: rename(acc.name) for dst, acc in early.items()}

    def named(name: str) -> str:
        return place.get(name, rename(name))

    def pin(name: str) -> list[str]:
        return _pin(isa, name) if isa.table.pin_peeled or not loop.first else []

    lines: list[str] = []
    for step in program:
        if step.dst in early:
            lines += [f"{named(step.dst)} = {scope.value(step, named)};", *pin(named(step.dst))]
        else:
            lines.append(scope.step(step, named))
    for acc in loop.accs:
        if acc.next not in early:
            name = rename(acc.name)
            lines += [f"{name} = {scope.viewed(named(acc.next), VecType.parse(acc.type))};", *pin(name)]
    return lines


def _pin(isa: Isa, name: str) -> list[str]:
    return [isa.table.pin.format(x=name)] if isa.table.pin else []


def _early(isa: Isa, loop: Loop, program: Sequence[Step]) -> dict[str, Acc]:
    """Values that can take their accumulator's place at once: nothing reads the old value later."""
    last = {name: k for k, step in enumerate(program) for name in step.args}
    made = {step.dst: k for k, step in enumerate(program)}
    out: dict[str, Acc] = {}
    for acc in loop.accs:
        k = made.get(acc.next)
        same = k is not None and str(isa[program[k].op].out) == acc.type
        if k is not None and same and acc.next not in out and last.get(acc.name, -1) <= k:
            out[acc.next] = acc
    return out


def _of_row(row: int) -> Rename:
    """C names of one row: its accumulators carry its number."""
    return lambda name: f"{name}_{row}" if name.startswith("acc") else name


def _braced(lines: Sequence[str]) -> list[str]:
    return ["{", *(f"    {line}" for line in lines), "}"]

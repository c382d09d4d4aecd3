"""Render a verified kernel as C11: header, source and self-test.

The text depends on the kernel and its name alone, so it is the same on every run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jinja2
import msgspec

from bitsynth.emit.statements import Rename, Scope
from bitsynth.isa.load import Isa, load
from bitsynth.isa.types import VecType
from bitsynth.names import KernelName
from bitsynth.program import Acc, Build, Constant, Input, Kernel, Loop, Pass, Planes, Step, Table, number, row_free
from bitsynth.spec import MatmulSpec, affine
from bitsynth.wellformed import constant_load, forms_used

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,
)
_TEMPLATES = {name: _ENVIRONMENT.get_template(name) for name in ("kernel.h.j2", "kernel.c.j2", "kernel_selftest.c.j2")}


class CSource:
    """The three files of `kernel` under the encodings of `spec`, each rendered when first asked for."""

    def __init__(self, kernel: Kernel, spec: MatmulSpec) -> None:
        self.name = str(KernelName.of(kernel, spec))
        isa = load(kernel.isa)
        self.needs = isa.requirements(sorted(forms_used(isa, kernel)))
        self._values = {**_values(isa, kernel, spec, self.name), "needs": self.needs}

    def _render(self, template: str) -> str:
        return _TEMPLATES[template].render(self._values)

    @cached_property
    def header(self) -> str:
        return self._render("kernel.h.j2")

    @cached_property
    def source(self) -> str:
        return self._render("kernel.c.j2")

    @cached_property
    def selftest(self) -> str:
        return self._render("kernel_selftest.c.j2")

    @property
    def files(self) -> dict[str, str]:
        """File names and texts."""
        return {
            f"{self.name}.h": self.header,
            f"{self.name}.c": self.source,
            f"{self.name}_selftest.c": self.selftest,
        }


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
class SideText:
    """How a block of one side's inputs is packed: bytes of a vector a step, one C initializer an input.

    Passes with the same inputs share a block; `start` is how many bytes a step come before it.
    """

    start: int
    bytes: int
    table: str
    inputs: Sequence[str]
    values: Sequence[str]
    tables: Sequence[Table]


def _values(isa: Isa, kernel: Kernel, spec: MatmulSpec, name: str) -> dict[str, Any]:
    correction = affine(spec)
    scope = Scope(isa)
    affine_terms = correction.act_terms, correction.wgt_terms
    rows = _blocks(kernel, [p.rows for p in kernel.passes], kernel.row_bits)
    columns = _blocks(kernel, [p.columns for p in kernel.passes], kernel.column_bits)
    return {
        "name": name,
        "guard": name.upper() + "_H",
        "isa": isa.table,
        "kernel": kernel,
        "spec": spec,
        "affine": correction,
        "row_affine": affine_terms[kernel.swapped],
        "column_affine": affine_terms[not kernel.swapped],
        "constants": _arrays(kernel.constants),
        "load_constants": _load_constants(scope, isa, kernel.constants),
        "register_bytes": isa.word.lanes,
        "uses_zero": kernel.has_row_terms or not all(n.first for p in kernel.passes for n in p.loops),
        "init": _init(isa, kernel),
        "row_blocks": list(rows.values()),
        "column_blocks": list(columns.values()),
        "passes": [
            _pass(isa, kernel, loop, dict(scope.types), rows[loop.rows], columns[loop.columns])
            for loop in kernel.passes
        ],
        "build": _build(isa, kernel.build) if kernel.build else None,
        "term_bytes": 8 if correction.is_identity else 16,
        "buffer": _selftest_words(kernel, rows.values(), columns.values()),
        "act": spec.act,
        "wgt": spec.wgt,
    }


def _selftest_words(kernel: Kernel, *sides: Iterable[SideText]) -> int:
    """64-bit words that hold either packed operand of the self-test."""
    tiles = 2 * max(kernel.rows, kernel.columns)
    return tiles * (3 * max(-(-sum(block.bytes for block in side) // 8) for side in sides) + 2)


def _side_bytes(kernel: Kernel, inputs: Sequence[Input]) -> int:
    return sum(kernel.input_bytes(x) for x in inputs)


def _arrays(constants: Sequence[Constant]) -> list[tuple[str, str, int, tuple[int, ...]]]:
    """Name, C type, bytes of a lane and lanes of each constant."""
    kinds = [(c, VecType.parse(c.type)) for c in constants]
    return [(c.name, f"{kind:c}", kind.bits // 8, c.lanes) for c, kind in kinds]


def _load_constants(scope: Scope, isa: Isa, constants: Sequence[Constant]) -> list[str]:
    """Constants are kept in memory order and loaded as what they are used at."""
    kinds = [(c.name, VecType.parse(c.type)) for c in constants]
    return [scope.load(constant_load(isa, kind).name, name, f"constant_{name}") for name, kind in kinds]


def _build(isa: Isa, build: Build) -> dict[str, Any]:
    """Constants and statements that make a table of staged values."""
    scope = Scope(isa)
    lines = _load_constants(scope, isa, build.constants)
    lines.append(scope.load(build.load, "x0", "stage"))
    lines += scope.steps(build.steps)
    lines.append(scope.store(build.store, build.table, "entries"))
    stage = ", ".join("SIZE_MAX" if n < 0 else str(n) for n in build.stage)
    return {"constants": _arrays(build.constants), "lines": lines, "stage": stage}


def _init(isa: Isa, kernel: Kernel) -> list[str]:
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


def _tile_at(row: int, register: int, tile: VecType) -> str:
    return f"c + {row} * ldc + {register * tile.lanes}"


def _pass(
    isa: Isa, kernel: Kernel, loop: Pass, types: dict[str, VecType], rows: SideText, columns: SideText
) -> PassText:
    scope = Scope(isa, types)
    start = [_start(isa, kernel, nested, scope) for nested in loop.loops]
    first = _step(isa, kernel, loop, scope, _first_run(loop.step)) if loop.step.first else []
    programs = [_step(isa, kernel, loop, scope, loop.step)]
    programs += [_fold(isa, kernel, nested, scope) for nested in loop.loops[1:]]
    return PassText(
        rows=rows,
        columns=columns,
        loops=[
            LoopText(n.times, z, [] if k else first, p)
            for k, (n, z, p) in enumerate(zip(loop.loops, start, programs, strict=True))
        ],
        flush=_flush(isa, kernel, loop, scope),
    )


def _blocks(kernel: Kernel, sides: Sequence[Sequence[Input]], bits: int) -> dict[Sequence[Input], SideText]:
    """What is packed of one side, in order: inputs that several passes read are packed once."""
    out: dict[Sequence[Input], SideText] = {}
    for inputs in sides:
        if inputs not in out:
            out[inputs] = _side(kernel, inputs, bits, sum(block.bytes for block in out.values()))
    return out


def _side(kernel: Kernel, inputs: Sequence[Input], bits: int, start: int) -> SideText:
    planes = [x for x in inputs if isinstance(x, Planes)]
    tables = [x for x in inputs if isinstance(x, Table)]
    every = [t for x in planes for t in x.tables]
    starts = [sum(len(x.tables) for x in planes[:i]) for i in range(len(planes))]
    return SideText(
        start=start,
        bytes=_side_bytes(kernel, inputs),
        table=_plane_table(every, bits),
        inputs=[
            f"{{{start}, {len(x.tables)}, {x.first}, {x.stride}, {x.per_byte}}}"
            for start, x in zip(starts, planes, strict=True)
        ],
        values=[", ".join(map(str, x.values)) for x in tables],
        tables=tables,
    )


def _plane_table(planes: Sequence[int], bits: int) -> str:
    """For each code, the planes that are set: bit p for plane p."""
    return ", ".join(f"UINT64_C({number(planes, code)})" for code in range(1 << bits))


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
    return msgspec.structs.replace(loop, program=loop.first, accs=accs)


def _step(isa: Isa, kernel: Kernel, loop: Pass, scope: Scope, step: Loop) -> list[str]:
    """Loads of columns and what depends on nothing else, then the row program once a row."""
    registers = kernel.column_registers(isa.table.vector_bits)
    scope = Scope(isa, dict(scope.types))
    program = step.steps
    out = []
    for i in range(len(loop.columns)):
        for g in range(registers):
            out.append(scope.load(kernel.memory.load, f"w{g}_{i}", f"y + {(i * registers + g) * isa.word.lanes}"))
            out += _pinned(isa, f"w{g}_{i}", program, kernel.rows)
    free = row_free(program)
    out += scope.steps([s for s in program if s.dst in free])
    each = _side_bytes(kernel, loop.rows)
    for row in range(kernel.rows):
        row_scope = Scope(isa, dict(scope.types))
        lines = []
        for i in range(len(loop.rows)):
            at = row * each + _side_bytes(kernel, loop.rows[:i])
            lines.append(row_scope.load(kernel.memory.broadcast, f"a{i}", f"x + {at}"))
            lines += _pinned(isa, f"a{i}", program, 1)
        lines += _row(isa, row, step, [s for s in program if s.dst not in free], row_scope)
        out += _braced(lines)
    return out


def _pinned(isa: Isa, name: str, program: Sequence[Step], times: int) -> list[str]:
    """Keeps a register that is read more than once from being loaded more than once."""
    reads = sum(s.args.count(name) for s in program)
    return [isa.table.pin.format(x=name)] if isa.table.pin and reads * times > 1 else []


def _fold(isa: Isa, kernel: Kernel, loop: Loop, scope: Scope) -> list[str]:
    """The program of an outer loop, once a row; accumulators of both loops go by their row."""
    out = []
    for row in range(kernel.rows):
        out += _braced(_row(isa, row, loop, loop.steps, Scope(isa, dict(scope.types))))
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


def _row(isa: Isa, row: int, loop: Loop, program: Sequence[Step], scope: Scope) -> list[str]:
    """The program of one row; an accumulator gets its new value as soon as the old one is read for the last time.

    Until then both would take a register, and moves at the end of the step.
    """
    rename, early = _of_row(row), _early(isa, loop, program)
    place = {dst: rename(acc.name) for dst, acc in early.items()}

    def named(name: str) -> str:
        return place.get(name, rename(name))

    lines: list[str] = []
    for step in program:
        if step.dst in early:
            lines += [f"{named(step.dst)} = {scope.value(step, named)};", *_kept(isa, named(step.dst))]
        else:
            lines.append(scope.step(step, named))
    for acc in loop.accs:
        if acc.next not in early:
            name = rename(acc.name)
            lines += [f"{name} = {scope.viewed(named(acc.next), VecType.parse(acc.type))};", *_kept(isa, name)]
    return lines


def _kept(isa: Isa, name: str) -> list[str]:
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

"""C11 of a proved depthwise kernel: header, source, and a function that asks for processor features."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from bitsynth.emit.render import block, indent_lines, render
from bitsynth.emit.statements import Rename, Scope, constant_arrays, load_constants, names_of_row
from bitsynth.isa.load import Isa, load
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.depthwise import DepthwiseFlush, DepthwiseMemory, DepthwiseProgram
from bitsynth.kernel.straight_line import needs
from bitsynth.proof.proved import Proved


class DepthwiseSource:
    """The C files of a proved depthwise kernel, each rendered when it is first read.

    Accumulators are stored in the channel `order` of one of the kernel's flushes, by default the first.
    """

    field = "depthwise"

    def __init__(self, proved: Proved[DepthwiseProgram], order: tuple[int, ...] | None = None) -> None:
        program = proved.artifact
        flush = program.flushes[program.orders.index(order) if order else 0]
        self.name, isa = program.name, load(program.isa)
        self.needs = needs(program)
        self._values: dict[str, Any] = {
            "name": self.name,
            "guard": self.name.upper() + "_H",
            "isa": isa.table,
            "program": program,
            "needs": self.needs,
            "features": [(f, isa.table.probes[f]) for f in self.needs.host],
            "probe": isa.probe_text(self.needs.host),
            "in_order": flush is program.flushes[0],
            **_code(isa, program, flush),
        }

    @cached_property
    def header(self) -> str:
        """The C header."""
        return render("depthwise.h.j2", self._values)

    @cached_property
    def source(self) -> str:
        """The C source."""
        return render("depthwise.c.j2", self._values)

    @cached_property
    def features(self) -> str:
        """The C source that asks the processor for the features it needs."""
        return render("kernel_features.c.j2", self._values)

    @property
    def layer_header(self) -> dict[str, str]:
        """The header with the kernel's facts that `bs_layer` needs."""
        return {f"{self.name}_layer.h": render("layer_depthwise.h.j2", self._values)}


def _code(isa: Isa, program: DepthwiseProgram, flush: DepthwiseFlush) -> dict[str, Any]:
    """Return the values of the template that are C of instructions, and the macros that this C needs."""
    scope = Scope(isa, program.forms)
    start = load_constants(scope, isa, flush.constants, "constant")
    counts = dict.fromkeys((program.pixels, -(-program.pixels // 2), 1))
    bodies = [(n, indent_lines(_pixels(isa, program, flush, n, scope))) for n in counts]
    return {
        "constants": constant_arrays(flush.constants, "constant"),
        "register_words": isa.word.lanes // 4,
        "start": indent_lines(start),
        "bodies": bodies,
        "macros": sorted(scope.macros.values()),
    }


def _pixels(isa: Isa, program: DepthwiseProgram, flush: DepthwiseFlush, count: int, outside: Scope) -> list[str]:
    """Return statements that compute `count` pixels of a unit: blocks of steps, with a flush after each block."""
    scope = outside.inner()
    accs = [(f"{acc.name}_{p}", VecType.parse(acc.type)) for p in range(count) for acc in program.accs]
    body = [f"size_t count = left < {program.flush_every} ? left : {program.flush_every};", "left -= count;"]
    body += [scope.load(program.memory.load, name, "zero", view=kind) for name, kind in accs]
    body += block("for (; count > 0; --count)", _step(program, count, scope))
    body += ["/* Flush. */"]
    for p in range(count):
        body += block("", _flush(program.memory, flush, p, isa.tile.lanes, scope))
    body += ["from = to;", *(["from_ld = ldc;"] if count > 1 else [])]
    return [
        "const uint8_t *const *tap = a;",
        "const uint8_t *weight = w;",
        "const int32_t *from = start;",
        "int32_t *const to = c + p * ldc;",
        *(["size_t from_ld = 0;"] if count > 1 else []),
        *block("for (size_t left = steps; left > 0;)", body),
    ]


def _step(program: DepthwiseProgram, count: int, outside: Scope) -> list[str]:
    """Return one step of `count` pixels: load the weights once, then load and multiply each pixel's activations."""
    scope, load_op, registers = outside.inner(), program.memory.load, len(program.weights)
    lines = _loads(
        scope, load_op, (f"weight + {j * program.unit}" if j else "weight" for j in range(registers)), Role.COLUMN
    )
    for p in range(count):
        inner = scope.inner()
        behind = f" + {p} * apart" if p > 1 else " + apart" if p else ""
        row = _loads(inner, load_op, (f"tap[{j}] + at{behind}" for j in range(program.taps)), Role.ROW)
        rename = _of_pixel(p)
        row += inner.steps(program.steps, rename)
        row += [
            f"{rename(acc.name)} = {inner.view(rename(acc.next), VecType.parse(acc.type))};" for acc in program.accs
        ]
        lines += block("", row)
    return [*lines, f"tap += {program.taps};", f"weight += {program.step_bytes};"]


def _loads(scope: Scope, op: str, places: Iterable[str], role: Role) -> list[str]:
    """Return loads of a role's inputs from `places`; pins keep compilers from loading a register a second time."""
    loaded = ((Value.of(role, j), place) for j, place in enumerate(places))
    return [line for x, place in loaded for line in (scope.load(op, x, place), *scope.pin(x))]


def _flush(memory: DepthwiseMemory, flush: DepthwiseFlush, p: int, lanes: int, outside: Scope) -> list[str]:
    """Return the flush of pixel p's accumulators."""
    scope = outside.inner()
    base = {0: "", 1: " + {0}"}.get(p, f" + {p} * {{0}}")
    registers = range(len(flush.tile))
    lines = [
        scope.load(
            memory.load_tile, Value.of(Role.TILE, r), f"from{base.format('from_ld')}{f' + {r * lanes}' if r else ''}"
        )
        for r in registers
    ]
    lines += scope.steps(flush.steps, _of_pixel(p))
    lines += [
        scope.store(memory.store_tile, name, f"to{base.format('ldc')}{f' + {r * lanes}' if r else ''}")
        for r, name in enumerate(flush.tile)
    ]
    return lines


def _of_pixel(pixel: int) -> Rename:
    """Return the C names of one pixel: accumulators have its number, as accumulators of a row have the row's."""
    return names_of_row(pixel)

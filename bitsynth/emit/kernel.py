"""Render a verified kernel as C11: header, source and self-test.

The text depends on the kernel and its name alone, so it is the same on every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jinja2

from bitsynth.emit.statements import Scope
from bitsynth.isa.load import Isa, load
from bitsynth.isa.types import VecType
from bitsynth.names import KernelName
from bitsynth.program import WORD_BYTES, Kernel, Pass
from bitsynth.spec import MatmulSpec, affine
from bitsynth.wellformed import constant_load

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
        self._values = _values(load(kernel.isa), kernel, spec, self.name)

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
class PassText:
    """One pass as the template wants it."""

    flush_every: int
    act_table: str
    wgt_table: str
    act_planes: int
    wgt_planes: int
    zero: Sequence[str]
    step: Sequence[str]
    flush: Sequence[str]


def _values(isa: Isa, kernel: Kernel, spec: MatmulSpec, name: str) -> dict[str, Any]:
    correction = affine(spec)
    tile = isa.tile
    scope = Scope(isa)
    constants = [(c, VecType.parse(c.type)) for c in kernel.constants]
    return {
        "name": name,
        "guard": name.upper() + "_H",
        "isa": isa.table,
        "kernel": kernel,
        "spec": spec,
        "affine": correction,
        "word_bytes": WORD_BYTES,
        "wgt_registers": kernel.columns * WORD_BYTES * 8 // isa.table.vector_bits,
        "slots_per_register": isa.table.vector_bits // 64,
        "constants": [(c.name, f"{kind:c}", kind.bits // 8, c.lanes) for c, kind in constants],
        "load_constants": [_constant(scope, isa, c.name, kind) for c, kind in constants],
        "zero_bytes": isa.word.lanes,
        "init": _init(isa, kernel, tile),
        "passes": [_pass(isa, kernel, loop, dict(scope.types), tile) for loop in kernel.passes],
        "term_bytes": 8 if correction.is_identity else 16,
        "buffer": _selftest_words(kernel),
        "act": spec.act,
        "wgt": spec.wgt,
    }


def _selftest_words(kernel: Kernel) -> int:
    """64-bit words that hold either packed operand of the self-test."""
    tiles = 2 * max(kernel.rows, kernel.columns)
    planes = max(sum(len(p.act_planes) for p in kernel.passes), sum(len(p.wgt_planes) for p in kernel.passes))
    return tiles * (3 * planes + 2)


def _constant(scope: Scope, isa: Isa, name: str, kind: VecType) -> str:
    """Constants are kept in memory order and loaded as what they are used at."""
    return scope.load(constant_load(isa, kind).name, name, f"constant_{name}")


def _init(isa: Isa, kernel: Kernel, tile: VecType) -> list[str]:
    """Every row of the tile starts at g, plus h of the row."""
    out: list[str] = []
    for row in range(kernel.rows):
        for r in range(kernel.columns // tile.lanes):
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


def _pass(isa: Isa, kernel: Kernel, loop: Pass, types: dict[str, VecType], tile: VecType) -> PassText:
    scope = Scope(isa, types)
    zero = []
    for row in range(kernel.rows):
        for acc in loop.accs:
            kind = VecType.parse(acc.type)
            zero.append(scope.load(kernel.memory.load, f"{acc.name}_{row}", "zero", view=kind))
    return PassText(
        flush_every=loop.flush_every,
        act_table=_plane_table(loop.act_planes, kernel.act_bits),
        wgt_table=_plane_table(loop.wgt_planes, kernel.w_bits),
        act_planes=len(loop.act_planes),
        wgt_planes=len(loop.wgt_planes),
        zero=zero,
        step=_step(isa, kernel, loop, scope),
        flush=_flush(isa, kernel, loop, scope, tile),
    )


def _plane_table(planes: Sequence[int], bits: int) -> str:
    """For each code, the planes that are set: bit p for plane p."""
    return ", ".join(
        f"UINT64_C({sum((t >> code & 1) << p for p, t in enumerate(planes))})" for code in range(1 << bits)
    )


def _step(isa: Isa, kernel: Kernel, loop: Pass, scope: Scope) -> list[str]:
    """Loads, then the row program once a row."""
    registers = kernel.columns * WORD_BYTES * 8 // isa.table.vector_bits
    out = []
    for plane in range(len(loop.wgt_planes)):
        for g in range(registers):
            at = (plane * registers + g) * isa.word.lanes
            out.append(scope.load(kernel.memory.load, f"w{g}_{plane}", f"w + {at}"))
    for row in range(kernel.rows):
        rename = {acc.name: f"{acc.name}_{row}" for acc in loop.accs}
        row_scope = Scope(isa, dict(scope.types))
        lines = []
        for plane in range(len(loop.act_planes)):
            at = (row * len(loop.act_planes) + plane) * WORD_BYTES
            lines.append(row_scope.load(kernel.memory.broadcast, f"a{plane}", f"a + {at}"))
        lines += row_scope.steps(loop.step_program, rename)
        for acc in loop.accs:
            lines.append(f"{rename[acc.name]} = {row_scope.viewed(acc.next, VecType.parse(acc.type))};")
            lines += [isa.table.pin.format(x=rename[acc.name])] if isa.table.pin else []
        out += ["{", *(f"    {line}" for line in lines), "}"]
    return out


def _flush(isa: Isa, kernel: Kernel, loop: Pass, scope: Scope, tile: VecType) -> list[str]:
    out = []
    for row in range(kernel.rows):
        rename = {acc.name: f"{acc.name}_{row}" for acc in loop.accs}
        row_scope = Scope(isa, dict(scope.types))
        places = [_tile_at(row, r, tile) for r in range(kernel.columns // tile.lanes)]
        lines = [row_scope.load(kernel.memory.load_tile, f"c{r}", place) for r, place in enumerate(places)]
        lines += row_scope.steps(loop.flush_program, rename)
        lines += [
            row_scope.store(kernel.memory.store_tile, name, place)
            for name, place in zip(loop.tile, places, strict=True)
        ]
        out += ["{", *(f"    {line}" for line in lines), "}"]
    return out

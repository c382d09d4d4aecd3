"""C of a layer's epilogue as the runtime calls it: proved programs, or plain C (fallback code)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from bitsynth.emit import elementwise, plain
from bitsynth.emit.render import lay_out, render
from bitsynth.emit.statements import Scope
from bitsynth.isa.load import load
from bitsynth.kernel.elementwise.program import ElementwiseProgram, EpilogueProgram, PlainProgram

BLOCK = 4
"""Channels that move together where columns are reordered for a program."""


@dataclass(frozen=True)
class LayerPrograms:
    """The program that computes results, and the one that adds a residual before it; None where there is none."""

    program: EpilogueProgram | None = None
    residual: EpilogueProgram | None = None

    @property
    def by_field(self) -> Mapping[str, EpilogueProgram]:
        """The programs by their fields of `struct bs_layer`."""
        return {field: p for field, p in (("program", self.program), ("residual", self.residual)) if p}

    @property
    def proved(self) -> list[ElementwiseProgram]:
        """The programs that are proved; the others are plain C."""
        return [p for p in self.by_field.values() if isinstance(p, ElementwiseProgram)]

    @property
    def reader(self) -> EpilogueProgram | None:
        """The program that reads the accumulators of the kernel."""
        return self.residual or self.program

    def orders(self, field: str) -> bool:
        """Return whether the program of a field reads columns in channel order and reorders them itself."""
        ordered = self.program is None or self.program.is_ordered
        return field == "program" and self.residual is not None and not ordered


NO_PROGRAMS = LayerPrograms()


def program_source(name: str, programs: LayerPrograms) -> dict[str, str]:
    """Return the C of programs for layers around the kernel `name`."""
    files: dict[str, str] = {}
    for field, program in programs.by_field.items():
        files |= epilogue_source(f"{name}_{field}", program, orders=programs.orders(field))
    return files


@lru_cache(maxsize=256)
def epilogue_source(name: str, program: EpilogueProgram, *, orders: bool = False) -> Mapping[str, str]:
    """Return the C of a program under `name`; with `orders` it reads columns in channel order."""
    _, *others = (x for x in program.spec.inputs if x.per == "element")
    values: dict[str, Any] = {"name": name, "program": program, "macros": []}
    values["blocks"] = _blocks(program) if orders else []
    values["other_bytes"] = sum(x.lane.bits // 8 for x in others)
    if isinstance(program, PlainProgram):
        values |= {"header": f'"{plain.HEADER}"', "function": plain.function(program, f"{name}_finish")}
    else:
        isa = load(program.isa)
        scope = Scope(isa, program.written_forms)
        values["function"] = elementwise.function(program, scope, f"{name}_finish", static=True)
        values |= {"header": f"<{isa.table.header}>", "macros": sorted(scope.macros.values())}
    return {f"{name}.{end}": lay_out(render(f"layer_program.{end}.j2", values)) for end in "ch"}


def _blocks(program: EpilogueProgram) -> list[int]:
    """Return for each block of four columns the block of channels it holds; empty if they are in channel order."""
    order = program.order if isinstance(program, ElementwiseProgram) else ()
    blocks = [channel // BLOCK for channel in order[::BLOCK]]
    return [] if blocks == sorted(blocks) else blocks

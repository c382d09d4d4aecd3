"""The C of a layer's epilogue: proved programs, or plain C, as the runtime takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bitsynth.emit import elementwise, plain
from bitsynth.emit.lines import laid_out
from bitsynth.emit.render import render
from bitsynth.emit.statements import Scope
from bitsynth.isa.load import load
from bitsynth.kernel.plain import EpilogueProgram, PlainProgram


@dataclass(frozen=True)
class LayerPrograms:
    """What makes results of values, and what adds a residual to values before; None if a layer has no such program."""

    program: EpilogueProgram | None = None
    residual: EpilogueProgram | None = None

    @property
    def by_field(self) -> Mapping[str, EpilogueProgram]:
        """Those there are, by the fields of `struct bs_layer` that have them."""
        return {field: p for field, p in (("program", self.program), ("residual", self.residual)) if p}

    @property
    def reader(self) -> EpilogueProgram | None:
        """The one that reads values as the layer's kernel makes them."""
        return self.residual or self.program


NO_PROGRAMS = LayerPrograms()


def program_source(name: str, programs: LayerPrograms) -> dict[str, str]:
    """The C of programs as `bs_layer` takes them, for layers around the kernel `name`."""
    files: dict[str, str] = {}
    for field, program in programs.by_field.items():
        files |= epilogue_source(f"{name}_{field}", program)
    return files


def epilogue_source(name: str, program: EpilogueProgram) -> dict[str, str]:
    """The C of a program as `bs_layer` takes it, under `name`."""
    _, *others = (x for x in program.spec.inputs if x.per == "element")
    values: dict[str, Any] = {"name": name, "program": program, "macros": []}
    values["other_bytes"] = sum(x.lane.bits // 8 for x in others)
    if isinstance(program, PlainProgram):
        values |= {"header": f'"{plain.HEADER}"', "function": plain.function(program, f"{name}_finish")}
    else:
        isa = load(program.isa)
        scope = Scope(isa)
        values["function"] = elementwise.function(program, scope, f"{name}_finish", static=True)
        values |= {"header": f"<{isa.table.header}>", "macros": sorted(scope.macros.values())}
    return {f"{name}.{end}": laid_out(render(f"layer_program.{end}.j2", values)) for end in "ch"}

"""The C of a layer's epilogue: a proved program, or plain C, as the runtime takes it."""

from __future__ import annotations

from typing import Any

from bitsynth.emit import elementwise, plain
from bitsynth.emit.lines import laid_out
from bitsynth.emit.render import render
from bitsynth.emit.statements import Scope
from bitsynth.isa.load import load
from bitsynth.kernel.plain import EpilogueProgram, PlainProgram


def program_source(name: str, program: EpilogueProgram | None) -> dict[str, str]:
    """The C of the epilogue's program as `bs_layer` takes it, for layers around the kernel `name`."""
    if program is None:
        return {}
    values: dict[str, Any] = {"name": name, "program": program, "macros": []}
    if isinstance(program, PlainProgram):
        values |= {"header": f'"{plain.HEADER}"', "function": plain.function(program, f"{name}_finish")}
    else:
        isa = load(program.isa)
        scope = Scope(isa)
        values["function"] = elementwise.function(program, scope, f"{name}_finish", static=True)
        values |= {"header": f"<{isa.table.header}>", "macros": sorted(scope.macros.values())}
    return {f"{name}_program.{end}": laid_out(render(f"layer_program.{end}.j2", values)) for end in "ch"}

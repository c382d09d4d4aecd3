"""The C of a layer's epilogue: a proved program as the runtime takes it."""

from __future__ import annotations

from typing import Any

from bitsynth.emit.elementwise import function
from bitsynth.emit.lines import laid_out
from bitsynth.emit.render import render
from bitsynth.emit.statements import Scope
from bitsynth.isa.load import load
from bitsynth.kernel.elementwise import ElementwiseProgram


def program_source(name: str, program: ElementwiseProgram | None) -> dict[str, str]:
    """The C of the epilogue's program as `bs_layer` takes it, for layers around the kernel `name`."""
    if program is None:
        return {}
    isa = load(program.isa)
    values: dict[str, Any] = {"name": name, "program": program}
    scope = Scope(isa)
    values["function"] = function(program, scope, f"{name}_finish", static=True)
    values |= {"header": isa.table.header, "macros": sorted(scope.macros.values())}
    return {f"{name}_program.{end}": laid_out(render(f"layer_program.{end}.j2", values)) for end in "ch"}

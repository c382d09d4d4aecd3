"""The proved programs that glue runs on lines of codes, as C."""

from __future__ import annotations

from collections.abc import Sequence

from bitsynth.emit.elementwise import source
from bitsynth.emit.glue_abi import PROGRAM
from bitsynth.kernel.elementwise import ElementwiseProgram

FILE = "bs_glue_programs.c"
VARIABLE = "bs_glue_programs"


def program_source(programs: Sequence[ElementwiseProgram]) -> dict[str, str]:
    """The file with `programs`, and the table of all, by their specs' numbers, that the runtime looks in."""
    by_name = {p.spec.name: p for p in programs}
    entries = [f"    {_entry(by_name.get(name))}," for name in PROGRAM.words]
    lines = ['#include "bs_glue_call.h"', "", f"const struct bs_glue_program {VARIABLE}[] = {{", *entries, "};", ""]
    text = source(programs) + "\n" if programs else ""
    return {FILE: text + "\n".join(lines)}


def _entry(program: ElementwiseProgram | None) -> str:
    if program is None:
        return "{NULL, 1, 1, 1}"
    first, out = program.spec.inputs[0].lane.bits // 8, program.spec.out_bits // 8
    return f"{{{program.name}, {program.unit}, {first}, {out}}}"

"""The proved programs that glue runs on lines of codes, as C."""

from __future__ import annotations

from collections.abc import Sequence

from bitsynth.emit.elementwise import source
from bitsynth.kernel.elementwise import ElementwiseProgram

FILE = "bs_glue_programs.c"
VARIABLES = ("bs_glue_greatest", "bs_glue_lookups")
LOOKUP_BITS = (4, 5, 6, 7, 8)
"""Bits of the codes that each of `bs_glue_lookups` takes, or fewer."""


def program_source(programs: Sequence[ElementwiseProgram]) -> dict[str, str]:
    """The file with `programs` and the variables by which the runtime finds them, by their specs' names."""
    by_name = {p.spec.name: p for p in programs}
    lookups = [f"    {_entry(by_name.get(f'lookup{1 << bits}'))}," for bits in LOOKUP_BITS]
    lines = [
        '#include "bs_glue_call.h"',
        "",
        f"const struct bs_glue_program bs_glue_greatest = {_entry(by_name.get('greatest'))};",
        "const struct bs_glue_program bs_glue_lookups[] = {",
        *lookups,
        "};",
        "",
    ]
    text = source(programs) + "\n" if programs else ""
    return {FILE: text + "\n".join(lines)}


def _entry(program: ElementwiseProgram | None) -> str:
    return f"{{{program.name}, {program.unit}}}" if program else "{NULL, 1}"

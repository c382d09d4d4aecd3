"""What glue does to elements, as C: proved programs, or plain C of the specs that have none."""

from __future__ import annotations

from collections.abc import Sequence

from bitsynth.emit import plain, plain_words
from bitsynth.emit.elementwise import source
from bitsynth.emit.lines import laid_out
from bitsynth.kernel.elementwise.plain import EpilogueProgram, PlainProgram
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.spec import glue, words
from bitsynth.spec.elementwise import ElementwiseSpec

FILE = "bs_glue_programs.c"
VARIABLES = PROGRAMS, WORDS = "bs_glue_programs", "bs_glue_greatest_words"
"""The tables of programs, and of functions of packed words."""
_UNIT = 16


def program_source(programs: Sequence[ElementwiseProgram]) -> dict[str, str]:
    """The file with `programs`, plain C of other specs, and the table of all that the runtime looks in."""
    by_name = {p.spec.name: p for p in programs}
    every = [by_name.get(spec.name) or PlainProgram(spec, _unit(spec)) for spec in glue.every()]
    made = [plain.function(p, p.name) for p in every if isinstance(p, PlainProgram)]
    lines = [
        *([source(programs)] if programs else []),
        '#include "bs_glue_call.h"',
        f'#include "{plain.HEADER}"',
        "",
        *made,
        *map(plain_words.function, words.every()),
        "",
        f"const struct bs_glue_program {PROGRAMS}[] = {{",
        *(f"    {_entry(p)}," for p in every),
        "};",
        "",
        f"bs_glue_words *const {WORDS}[] = {{",
        "    NULL,",
        *(f"    {x.name}," for x in words.every()),
        "};",
        "",
    ]
    return {FILE: laid_out("\n".join(lines))}


def _unit(spec: ElementwiseSpec) -> int:
    """Elements at once; those of a channel with a table of its own come one by one, as tables lie."""
    return 1 if any(x.per == "channel" and x.count for x in spec.inputs) else _UNIT


def _entry(program: EpilogueProgram) -> str:
    first, out = program.spec.inputs[0].lane.bits // 8, program.spec.out_bits // 8
    return f"{{{program.name}, {program.unit}, {first}, {out}}}"

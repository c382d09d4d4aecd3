"""Self-contained C files of a glue layer: elementwise programs, constants, the runtime, self-test, CMake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit import plain
from bitsynth.emit.c_names import POOL, list_functions, rename_symbols, require_name
from bitsynth.emit.elementwise import source
from bitsynth.emit.glue_abi import ARRAYS, NUMBERS, GlueConstants, c_value
from bitsynth.emit.initializers import elements, stored_ctype
from bitsynth.emit.layer import refuses_codes
from bitsynth.emit.render import lay_out, render
from bitsynth.emit.runtime_abi import LAYOUT
from bitsynth.emit.runtime_files import glue_files
from bitsynth.files import mark
from bitsynth.isa.load import Requirements, load
from bitsynth.kernel.elementwise.program import ElementwiseProgram, EpilogueProgram, PlainProgram
from bitsynth.spec import glue, words
from bitsynth.spec.elementwise import ElementwiseSpec

PROGRAMS_FILE = "bs_glue_programs.c"
VARIABLES = PROGRAMS, WORDS = "bs_glue_programs", "bs_glue_greatest_words"
"""The tables of programs, and of functions of packed words."""
_UNIT = 16


def glue_program_source(programs: Sequence[ElementwiseProgram]) -> dict[str, str]:
    """Return the C file with `programs`, plain C of the other specs, and the table in which the runtime finds all."""
    by_name = {p.spec.name: p for p in programs}
    every = [by_name.get(spec.name) or PlainProgram(spec, _unit(spec)) for spec in glue.every()]
    plain_functions = [plain.function(p, p.name) for p in every if isinstance(p, PlainProgram)]
    lines = [
        *([source(programs)] if programs else []),
        '#include "bs_glue_call.h"',
        f'#include "{plain.HEADER}"',
        "",
        *plain_functions,
        *map(plain.words_function, words.every()),
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
    return {PROGRAMS_FILE: lay_out("\n".join(lines))}


def _unit(spec: ElementwiseSpec) -> int:
    """Return how many elements plain C computes at once: one where each channel has a table of its own."""
    return 1 if any(x.per == "channel" and x.count for x in spec.inputs) else _UNIT


def _entry(program: EpilogueProgram) -> str:
    first, out = program.spec.inputs[0].lane.bits // 8, program.spec.out_bits // 8
    return f"{{{program.name}, {program.unit}, {first}, {out}}}"


Example = tuple[Sequence[NDArray[Any]], NDArray[Any]]
"""Inputs (N, H, W, elements) and the results of a layer for them."""


@dataclass(frozen=True, eq=False)
class GlueText:
    """A layer of glue called `name` for an instruction set; the example is its self-test's. SpecError for the name.

    `command` is the command that writes these files, "" if there is none.
    """

    name: str
    isa: str
    constants: GlueConstants
    example: Example
    programs: Sequence[ElementwiseProgram]
    needs: Requirements
    command: str = ""

    def __post_init__(self) -> None:
        require_name(self.name)

    def files(self) -> dict[str, str]:
        """Return file names and texts, each text with the mark of a generated file."""
        shared, values = {**glue_files(threads=True), **glue_program_source(self.programs)}, self._values()
        own = {
            f"{self.name}.h": render("glue.h.j2", values),
            f"{self.name}.c": render("glue.c.j2", values),
            f"{self.name}_features.c": render("kernel_features.c.j2", values),
            f"{self.name}_selftest.c": render("glue_selftest.c.j2", values),
            "CMakeLists.txt": render("layer_cmake.j2", values),
        }
        names = [*list_functions(shared), *VARIABLES, *(p.name for p in self.programs)]
        return mark(own | shared | rename_symbols(self.name, own | shared, names))

    def _values(self) -> dict[str, Any]:
        isa, (inputs, want) = load(self.isa), self.example
        numbers = dict(zip((name for name, _ in NUMBERS), self.constants.sizes(), strict=True))
        arrays = self.constants.arrays
        return {
            "name": self.name,
            "command": self.command,
            "guard": f"{self.name.upper()}_H",
            "n": numbers,
            "op": c_value("op", numbers["op"]),
            "in_layout": c_value("in_layout", numbers["in_layout"]),
            "out_layout": c_value("out_layout", numbers["out_layout"]),
            "fields": [(name, c_value(name, value)) for name, value in numbers.items() if value],
            "refuses_codes": any(self._refuses(numbers, i) for i in range(len(inputs))),
            "arrays": [(n, c, stored_ctype(c), elements(arrays[n], stored_ctype(c))) for n, c in ARRAYS if n in arrays],
            "inputs": [f"input_{i}" for i in range(len(inputs))] if len(inputs) > 1 else ["input"],
            "given": [elements(_as_words(x), "uint64_t") for x in inputs],
            "want": elements(_as_words(want), "uint64_t"),
            "want_bytes": want.nbytes,
            "shape": inputs[0].shape[:3],
            "plain": [f"{self.name}.c", f"{self.name}_features.c", POOL],
            "parts": [{"of": "", "sources": _sources(), "cc_flags": self.needs.cc_flags}],
            "folders": [],
            "features": [(f, isa.table.probes[f]) for f in self.needs.host],
            "probe": isa.probe_text(self.needs.host),
            "example": False,
        }

    @staticmethod
    def _refuses(numbers: Mapping[str, int], i: int) -> bool:
        bits, layout = numbers[f"bits[{i}]"], LAYOUT.words[numbers["in_layout"]]
        return bits > 0 and refuses_codes(numbers[f"last[{i}]"], bits, layout)


def _sources() -> list[str]:
    """Return the files that are compiled with the flags of the programs' instruction set."""
    return sorted([PROGRAMS_FILE, *(n for n in glue_files(threads=False) if n.endswith(".c"))])


def _as_words(x: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of an array."""
    return np.frombuffer(np.ascontiguousarray(x).tobytes(), np.uint8)

"""The machine code of glue: one library an instruction set, compiled once."""

from __future__ import annotations

from functools import cache

from bitsynth import toolchain
from bitsynth.emit.glue_programs import program_source
from bitsynth.emit.runtime_files import glue_call_source, glue_files
from bitsynth.errors import SpecError
from bitsynth.host.placement import runs_natively
from bitsynth.isa.load import load
from bitsynth.layers.candidates import sets_for
from bitsynth.layers.glue.programs import programs, requirements
from bitsynth.layers.library import FLAGS
from bitsynth.run.runner import Runner, runner_for
from bitsynth.spec.matmul import is_one_of


def instruction_set(isa: str) -> str:
    """`isa`, or of "auto" the set of this processor with the widest registers; SpecError if there is none."""
    if not is_one_of(isa, ("auto",)):
        return load(isa).name
    found = sets_for(isa)
    if not found:
        raise SpecError("this processor runs no known instruction set: name one as isa")
    return max(found, key=lambda name: load(name).table.vector_bits)


@cache
def library(isa: str) -> Runner:
    """The runner of glue on an instruction set; ToolError if it cannot be compiled or run."""
    known = load(isa)
    sources = {**glue_files(threads=runs_natively(known.table)), **glue_call_source(), **program_source(programs(isa))}
    needs = requirements(isa)
    return runner_for(known, toolchain.compile_for(known, sources, needs=needs, flags=FLAGS), needs=needs)

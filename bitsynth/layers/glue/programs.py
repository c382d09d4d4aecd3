"""The programs of glue on an instruction set, and their machine code, compiled once."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth import toolchain
from bitsynth.emit.glue import glue_program_source
from bitsynth.emit.glue_abi import GlueConstants
from bitsynth.emit.runtime_files import glue_call_source, glue_files
from bitsynth.errors import SpecError
from bitsynth.host import features
from bitsynth.host.placement import runs_natively
from bitsynth.isa.load import Requirements, load
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.kernel.straight_line import needs
from bitsynth.layers.candidates import sets_for
from bitsynth.layers.library import FLAGS
from bitsynth.run.runner import Runner, runner_for
from bitsynth.spec import glue
from bitsynth.spec.elementwise import ElementwiseSpec
from bitsynth.spec.matmul import is_one_of
from bitsynth.store.elementwise import ELEMENTWISE

COMMON_UNIT = 64
"""A number of elements that is a multiple of every program's unit."""
MIN_TABLE_ENTRIES = 16
"""Entries of the smallest tables of programs."""
TABLE_BYTES = 256
"""Bytes of any table in memory."""


@cache
def programs(isa: str) -> tuple[ElementwiseProgram, ...]:
    """Return glue's programs stored for the set, or one it extends, that this processor runs or emulates."""
    stored = (ELEMENTWISE.find(isa, spec) for spec in glue.every())
    return tuple(p.artifact for p in stored if p is not None and _runs_here(isa, p.artifact))


def _runs_here(isa: str, program: ElementwiseProgram) -> bool:
    return not runs_natively(load(isa).table) or not features.lacking(needs(program).host)


def list_called(isa: str, constants: GlueConstants) -> list[ElementwiseProgram]:
    """Return the `programs` that C may call for glue of these constants."""
    names = {spec.name for spec in _list_called_specs(constants)}
    return [p for p in programs(isa) if p.spec.name in names]


def _list_called_specs(constants: GlueConstants) -> list[ElementwiseSpec]:
    numbers, has_tables = constants.numbers, "tables" in constants.arrays
    own = [spec for spec in glue.every() if spec.name == numbers.get("program")]
    match numbers["op"]:
        case "max pool":
            return [glue.greatest()]
        case "mean pool" if own == [glue.mean(even=False)]:
            return [*own, glue.mean(even=True)]
        case "mean pool":
            return [*own, *([glue.lookup_sums()] if has_tables else [])]
        case "lookup" | "concat" if not own:
            inputs = range(int(numbers["inputs"]) if has_tables else 0)
            return [glue.lookup(max(MIN_TABLE_ENTRIES, 1 << int(numbers[f"bits[{i}]"]))) for i in inputs]
    return own


def requirements(isa: str) -> Requirements:
    """Return what the set and its programs need of compiler and processor."""
    return load(isa).requirements([op for p in programs(isa) for op in p.forms])


def repeat_table(tables: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """Return tables (..., codes) for indices of `bits` bits, repeated to the TABLE_BYTES that programs read."""
    entries = max(MIN_TABLE_ENTRIES, 1 << bits)
    repeated = np.zeros((*tables.shape[:-1], entries), np.uint8)
    repeated[..., : tables.shape[-1]] = tables
    return np.tile(repeated, TABLE_BYTES // entries)


def instruction_set(isa: str) -> str:
    """Return `isa`, or for "auto" this processor's set of the widest registers; raise SpecError without one."""
    if not is_one_of(isa, ("auto",)):
        return load(isa).name
    sets = sets_for(isa)
    if not sets:
        raise SpecError("this processor runs no known instruction set: name one as isa")
    return max(sets, key=lambda name: load(name).table.vector_bits)


@cache
def library(isa: str) -> Runner:
    """Return the runner of glue on an instruction set; raise ToolError if it cannot be compiled or run."""
    instructions = load(isa)
    sources = {
        **glue_files(threads=runs_natively(instructions.table)),
        **glue_call_source(),
        **glue_program_source(programs(isa)),
    }
    needs = requirements(isa)
    return runner_for(instructions, toolchain.compile_for(instructions, sources, needs=needs, flags=FLAGS), needs=needs)

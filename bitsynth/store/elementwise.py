"""Proved elementwise programs as text, one JSON file each, in `elementwise` beside an instruction set's kernels.

A file holds the program with its spec, its cost and the statements of its proof; what is read is checked again.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache as memoize
from pathlib import Path

from bitsynth.errors import NoKernel
from bitsynth.isa.load import load
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.proof.elementwise.proved import ProvedProgram
from bitsynth.schedule import element_cost
from bitsynth.sketches.elementwise import ordering
from bitsynth.spec.elementwise import ElementwiseSpec
from bitsynth.store import files
from bitsynth.store.files import Record

FORMAT = 1
FOLDER = "elementwise"
_REMEDY = "delete it, and it is found anew where it is wanted"


class ProgramEntry(Record, frozen=True, forbid_unknown_fields=True):
    """A stored program, the cycles of a unit by processor, and what was proved. `digest` covers everything else."""

    format: int
    name: str
    program: ElementwiseProgram
    cycles: dict[str, float]
    statements: tuple[str, ...]
    digest: str = ""


def entry(proved: ProvedProgram) -> ProgramEntry:
    """Return the text of a proved program."""
    program = proved.program
    cycles = {cpu: element_cost.cycles(program, cpu) for cpu in element_cost.able(program)}
    return ProgramEntry(FORMAT, program.name, program, cycles, proved.statements).with_digest()


def find(isa: str, spec: ElementwiseSpec) -> ProvedProgram | None:
    """Return the stored program of `spec` for an instruction set, or the one that it extends; None if none.

    None, too, if the one of that name is of another spec.
    """
    home = load(isa)
    for name in (home.name, *([home.table.extends] if home.table.extends else [])):
        path = files.first(Path(name) / FOLDER / f"{spec.name}_{name}.json")
        if path and (found := load_program(path)).program.spec == spec:
            return found
    return None


@memoize
def in_order(proved: ProvedProgram) -> ProvedProgram | None:
    """Return the same program for elements in the order of channels; None if there is none."""
    if proved.program.is_ordered:
        return proved
    try:
        return proved.moved(ordering.in_order(proved.program))
    except NoKernel:
        return None


def named(name: str) -> Path | None:
    """Return the file of the program called `name`, None if there is none."""
    return next((path for path in every() if path.stem == name), None)


def every() -> Iterator[Path]:
    """All stored files, the user's over the shipped ones of the same place."""
    return files.every(f"*/{FOLDER}/*.json")


def read_entry(path: Path) -> ProgramEntry:
    """Return the entry in the file `path`, its digest checked; SpecError says what is wrong and what to do."""
    return files.read(path, ProgramEntry, "an elementwise program", FORMAT, _REMEDY)


@memoize
def load_program(path: Path) -> ProvedProgram:
    """Return the program in `path`, checked and proved on record; SpecError says what of it does not check."""
    return files.accepted(path, read_entry(path), _on_record, entry, _REMEDY)


def _on_record(found: ProgramEntry) -> ProvedProgram:
    return ProvedProgram.on_record(found.program, found.statements)


def store(proved: ProvedProgram, folder: Path | None = None) -> Path:
    """Write the program to the user's folder, or another of kernels, in one step."""
    record = entry(proved)
    path = files.store(Path(record.program.isa) / FOLDER / f"{record.name}.json", record, folder)
    load_program.cache_clear()
    return path

"""Elementwise programs as text: the record of one, and their kind of artifact.

A record holds the program with its spec, its cost and the statements of its proof.
"""

from __future__ import annotations

from functools import cache as memoize
from pathlib import Path

from bitsynth.errors import NoKernel
from bitsynth.isa.load import load
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.proof.proved import Proved
from bitsynth.schedule.price import price
from bitsynth.sketches.elementwise import ordering
from bitsynth.spec.elementwise import ElementwiseSpec
from bitsynth.store import files
from bitsynth.store.artifacts import ArtifactKind
from bitsynth.store.files import Record


class ProgramEntry(Record, frozen=True, forbid_unknown_fields=True):
    """A stored program, its cycles for a unit by processor, and its proof. `digest` covers all other fields."""

    format: int
    name: str
    program: ElementwiseProgram
    cycles: dict[str, float]
    statements: tuple[str, ...]
    digest: str = ""


class ElementwiseKind(ArtifactKind[ProgramEntry, Proved[ElementwiseProgram]]):
    """Elementwise programs, in the folder `elementwise` of an instruction set."""

    name = "elementwise"
    noun = "an elementwise program"
    record = ProgramEntry
    format = 3
    pattern = "elementwise/*.json"
    remedy = "delete it, and it is found anew where it is wanted"

    def accept(self, record: ProgramEntry) -> Proved[ElementwiseProgram]:
        """Return the program of a record, proved on record."""
        return Proved.on_record(record.program, record.statements)

    def record_of(self, proved: Proved[ElementwiseProgram]) -> ProgramEntry:
        """Return the text of a proved program."""
        program = proved.artifact
        return ProgramEntry(self.format, program.name, program, price(program), proved.statements).with_digest()

    def place_of(self, record: ProgramEntry) -> Path:
        """Return the place of a record's file in a folder of kernels."""
        return Path(record.program.isa) / self.name / f"{record.name}.json"

    def find_named(self, name: str, variant: str | None = None) -> Path | None:
        """Return the file of the program called `name`, None if there is none."""
        return next((path for path in self.every() if path.stem == name), None)

    def find(self, isa: str, spec: ElementwiseSpec) -> Proved[ElementwiseProgram] | None:
        """Return the stored program of `spec` for an instruction set, or the one that it extends; None if none.

        None, too, if the one of that name is of another spec.
        """
        home = load(isa)
        for name in (home.name, *([home.table.extends] if home.table.extends else [])):
            path = files.first(Path(name) / self.name / f"{spec.name}_{name}.json")
            if path and (proved := self.load(path)).artifact.spec == spec:
                return proved
        return None


ELEMENTWISE = ElementwiseKind()


@memoize
def in_order(proved: Proved[ElementwiseProgram]) -> Proved[ElementwiseProgram] | None:
    """Return the same program for elements in the order of channels; None if there is none."""
    if proved.artifact.is_ordered:
        return proved
    try:
        return proved.form(ordering.in_order(proved.artifact))
    except NoKernel:
        return None

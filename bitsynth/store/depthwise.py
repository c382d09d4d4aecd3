"""Depthwise kernels as text: the record of one, and their kind of artifact."""

from __future__ import annotations

from pathlib import Path

from bitsynth.errors import SpecError
from bitsynth.isa.load import load
from bitsynth.kernel.depthwise import PREFIX, DepthwiseProgram, isa_of
from bitsynth.proof.proved import Proved
from bitsynth.schedule.depthwise import DepthwiseCost, ops
from bitsynth.schedule.price import price
from bitsynth.spec.options import DOT_POSITIONS
from bitsynth.store import files
from bitsynth.store.artifacts import ArtifactKind
from bitsynth.store.files import Record

CLAIM = "fewest instructions for a 3 x 3 window among all steps and flushes of the sketch, by enumeration"


class DepthwiseEntry(Record, frozen=True, forbid_unknown_fields=True):
    """One stored kernel: program, cost, lemmas, the obligations Z3 discharged; `digest` covers everything else."""

    format: int
    name: str
    program: DepthwiseProgram
    cost: DepthwiseCost
    lemmas: tuple[str, ...]
    instructions: tuple[str, ...]
    minimality: str
    digest: str


class DepthwiseKind(ArtifactKind[DepthwiseEntry, Proved[DepthwiseProgram]]):
    """Depthwise kernels, in the folder `depthwise` of an instruction set."""

    name = "depthwise"
    noun = "a depthwise kernel"
    record = DepthwiseEntry
    format = 2
    pattern = "depthwise/*.json"
    remedy = "delete it: the shipped one is used then"

    def accept(self, record: DepthwiseEntry) -> Proved[DepthwiseProgram]:
        """Return the kernel of a record, proved on record."""
        return Proved.on_record(record.program, record.instructions)

    def record_of(self, proved: Proved[DepthwiseProgram]) -> DepthwiseEntry:
        """Return the text of a proved kernel."""
        program = proved.artifact
        cost = DepthwiseCost(round(ops(load(program.isa), program), 4), price(program))
        return DepthwiseEntry(
            self.format, program.name, program, cost, proved.lemmas, proved.statements, CLAIM, ""
        ).with_digest()

    def place_of(self, record: DepthwiseEntry) -> Path:
        """Return the place of a record's file in a folder of kernels."""
        return Path(record.program.isa) / self.name / f"{record.name}.json"

    def find_named(self, name: str, variant: str | None = None) -> Path | None:
        """Return the file of the kernel called `name`, None if it is no name of a depthwise kernel."""
        if not name.startswith(PREFIX):
            return None
        if path := files.first(Path(isa_of(name)) / self.name / f"{name}.json"):
            return path
        raise SpecError(f"no depthwise kernel {name} is stored")

    def find(self, isa: str, act_bits: int, w_bits: int, method: str = "multiply") -> Path | None:
        """Return the file of the kernel by `method` for operands of these widths at most, None if it is not stored."""
        taps = str(DOT_POSITIONS) if method == "dot" else f"[!{DOT_POSITIONS}]"
        pattern = f"{PREFIX}a{act_bits}_w{w_bits}_s32_{isa}_*x{taps}.json"
        places = (folder / isa / self.name for folder in files.folders())
        return next((path for place in places for path in sorted(place.glob(pattern))), None)


DEPTHWISE = DepthwiseKind()

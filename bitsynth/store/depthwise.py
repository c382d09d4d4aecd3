"""Depthwise kernels as text: a JSON file each, checked again when it is read, as kernels of products are."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from bitsynth.errors import SpecError
from bitsynth.isa.load import load
from bitsynth.kernel.depthwise import DepthwiseProgram, isa_of
from bitsynth.proof.depthwise import ProvedDepthwise
from bitsynth.schedule.depthwise import DepthwiseCost, cost_of
from bitsynth.spec.options import DOT_POSITIONS
from bitsynth.store import files
from bitsynth.store.files import Record, folders

FORMAT = 2
FOLDER = "depthwise"
CLAIM = "fewest instructions for a 3 x 3 window among all steps and flushes of the sketch, by enumeration"
_REMEDY = "delete it: what ships is used then"


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


def entry_of(proved: ProvedDepthwise) -> DepthwiseEntry:
    """Return the text of a proved kernel."""
    program = proved.program
    cost = cost_of(load(program.isa), program)
    return DepthwiseEntry(
        FORMAT, program.name, program, cost, proved.lemmas, proved.statements, CLAIM, ""
    ).with_digest()


def find(isa: str, act_bits: int, w_bits: int, method: str = "multiply") -> Path | None:
    """Return the file of the kernel by `method` for operands of these widths at most, None if it is not stored."""
    taps = str(DOT_POSITIONS) if method == "dot" else f"[!{DOT_POSITIONS}]"
    pattern = f"bs_dw_a{act_bits}_w{w_bits}_s32_{isa}_*x{taps}.json"
    return next((p for folder in folders() for p in sorted((folder / isa / FOLDER).glob(pattern))), None)


def named(name: str) -> Path:
    """Return the file of the kernel called `name`; SpecError if there is none."""
    if found := files.first(Path(isa_of(name)) / FOLDER / f"{name}.json"):
        return found
    raise SpecError(f"no depthwise kernel {name} is stored")


def every(isa: str = "*") -> Iterator[Path]:
    """All stored files, or those of an instruction set, the user's over the shipped ones of the same place."""
    return files.every(f"{isa}/{FOLDER}/*.json")


def read_entry(path: Path) -> DepthwiseEntry:
    """Return the entry in the file `path`, its digest checked; SpecError says what is wrong and what to do."""
    return files.read(path, DepthwiseEntry, "a depthwise kernel", FORMAT, _REMEDY)


@cache
def load_proved(path: Path) -> ProvedDepthwise:
    """Return the kernel in `path`, checked again but for what Z3 discharged.

    SpecError says what of it does not check.
    """
    return files.accepted(path, read_entry(path), _on_record, entry_of, _REMEDY)


def _on_record(entry: DepthwiseEntry) -> ProvedDepthwise:
    return ProvedDepthwise.on_record(entry.program, entry.instructions)


def store(proved: ProvedDepthwise, folder: Path | None = None) -> Path:
    """Write the kernel's file into `folder` of kernels, the user's if None."""
    entry = entry_of(proved)
    path = files.store(Path(entry.program.isa) / FOLDER / f"{entry.name}.json", entry, folder)
    load_proved.cache_clear()
    return path

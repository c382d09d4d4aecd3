"""Proved elementwise programs as text, one JSON file each, in `elementwise` beside an instruction set's kernels.

A file holds the program with its spec, its cost and the statements of its proof; what is read is checked again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache as memoize
from functools import partial
from pathlib import Path

import msgspec

from bitsynth import paths
from bitsynth.errors import BitsynthError, SpecError, ToolError
from bitsynth.files import locked, read_file, replace_file, unwritable
from bitsynth.isa.load import load
from bitsynth.kernel.elementwise import ElementwiseProgram
from bitsynth.proof.elementwise import ProvedProgram
from bitsynth.schedule import element_cost
from bitsynth.spec.elementwise import ElementwiseSpec

FORMAT = 1
FOLDER = "elementwise"
_REMEDY = "delete it, and it is found anew where it is wanted"


class ProgramEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stored program, the cycles of a unit by processor, and what was proved. `digest` covers everything else."""

    format: int
    name: str
    program: ElementwiseProgram
    cycles: dict[str, float]
    statements: tuple[str, ...]
    digest: str = ""

    @property
    def expected_digest(self) -> str:
        """The digest that the other fields call for."""
        return hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(self, digest=""))).hexdigest()


def entry(proved: ProvedProgram) -> ProgramEntry:
    """The text of a proved program."""
    program = proved.program
    cycles = {cpu: element_cost.cycles(program, cpu) for cpu in element_cost.able(program)}
    made = ProgramEntry(FORMAT, program.name, program, cycles, proved.statements)
    return msgspec.structs.replace(made, digest=made.expected_digest)


def find(isa: str, spec: ElementwiseSpec) -> ProvedProgram | None:
    """The stored program of `spec`, None if there is none or that of its name is of another spec."""
    path = _path(f"{spec.name}_{isa}", isa)
    if path is None:
        return None
    found = load_program(path)
    return found if found.program.spec == spec else None


def named(name: str) -> Path | None:
    """The file of the program called `name`, None if there is none."""
    return next((path for path in every() if path.stem == name), None)


def every() -> Iterator[Path]:
    """All stored files, the user's over the shipped ones of the same place."""
    seen: set[Path] = set()
    for folder in _folders():
        for path in sorted(folder.glob(f"*/{FOLDER}/*.json")):
            if (place := path.relative_to(folder)) not in seen:
                seen.add(place)
                yield path


def _folders() -> list[Path]:
    return [paths.user_kernels(), paths.shipped_kernels()]


def _path(name: str, isa: str) -> Path | None:
    files = (folder / isa / FOLDER / f"{name}.json" for folder in _folders())
    return next((path for path in files if path.is_file()), None)


@memoize
def load_program(path: Path) -> ProvedProgram:
    """The program in `path`, checked and proved on record; SpecError says what is wrong with the file."""
    try:
        found = msgspec.json.decode(read_file(path), type=ProgramEntry)
        if found.format != FORMAT:
            raise SpecError(f"it has format {found.format}, not {FORMAT}")
        if found.digest != found.expected_digest:
            raise SpecError("it was edited or damaged: its digest is of something else")
        proved = ProvedProgram.on_record(found.program, found.statements)
        if found != entry(proved) or path.stem != found.name:
            raise SpecError("its name or its cost differ")
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, BitsynthError) as error:
        raise SpecError(f"{path}: {error}; {_REMEDY}") from None
    return proved


def store(proved: ProvedProgram, folder: Path | None = None) -> Path:
    """Write the program to the user's folder, or another of kernels, in one step."""
    made = entry(proved)
    root = folder or paths.user_kernels()
    path = root / load(made.program.isa).name / FOLDER / f"{made.name}.json"
    with locked(root / "locks" / f"{made.program.isa}.lock", partial(unwritable, path)):
        replace_file(path, msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n")
    load_program.cache_clear()
    return path

"""Depthwise kernels as text: a JSON file each, checked again when it is read, as kernels of products are."""

from __future__ import annotations

import hashlib
from functools import cache, partial
from pathlib import Path

import msgspec

from bitsynth import paths
from bitsynth.errors import BitsynthError, SpecError, ToolError
from bitsynth.files import locked, read_file, replace_file, unwritable
from bitsynth.isa.load import load
from bitsynth.kernel.depthwise import DepthwiseProgram, isa_of
from bitsynth.proof.depthwise import ProvedDepthwise
from bitsynth.schedule.depthwise import DepthwiseCost, cost_of
from bitsynth.store.kernels import folders

FORMAT = 2
FOLDER = "depthwise"
CLAIM = "fewest instructions for a 3 x 3 window among all steps and flushes of the sketch, by enumeration"
_REMEDY = "delete it: what ships is used then"


class DepthwiseEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One stored kernel: program, cost, lemmas, the obligations Z3 discharged; `digest` covers everything else."""

    format: int
    name: str
    program: DepthwiseProgram
    cost: DepthwiseCost
    lemmas: tuple[str, ...]
    instructions: tuple[str, ...]
    minimality: str
    digest: str

    @property
    def expected_digest(self) -> str:
        """The digest that the other fields call for."""
        return hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(self, digest=""))).hexdigest()


def entry_of(proved: ProvedDepthwise) -> DepthwiseEntry:
    """The text of a proved kernel."""
    program = proved.program
    cost = cost_of(load(program.isa), program)
    entry = DepthwiseEntry(FORMAT, program.name, program, cost, proved.lemmas, proved.statements, CLAIM, "")
    return msgspec.structs.replace(entry, digest=entry.expected_digest)


def find(isa: str, act_bits: int, w_bits: int) -> Path | None:
    """The file of the kernel for operands of these widths at most, None if it is not stored."""
    pattern = f"bs_dw_a{act_bits}_w{w_bits}_s32_{isa}_*.json"
    return next((p for folder in folders() for p in sorted((folder / isa / FOLDER).glob(pattern))), None)


def named(name: str) -> Path:
    """The file of the kernel called `name`; SpecError if there is none."""
    for folder in folders():
        if (path := folder / isa_of(name) / FOLDER / f"{name}.json").is_file():
            return path
    raise SpecError(f"no depthwise kernel {name} is stored")


@cache
def load_proved(path: Path) -> ProvedDepthwise:
    """The kernel in `path`, checked again but for what Z3 discharged; SpecError says what of it does not check."""
    entry = _read(path)
    try:
        proved = ProvedDepthwise.on_record(entry.program, entry.instructions)
        if entry != entry_of(proved) or path.stem != entry.name:
            raise SpecError("lemmas, cost or name differ")
    except BitsynthError as why:
        raise SpecError(f"{path}: the certificate does not check: {why}; {_REMEDY}") from None
    return proved


def _read(path: Path) -> DepthwiseEntry:
    try:
        entry = msgspec.json.decode(read_file(path), type=DepthwiseEntry)
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SpecError(f"{path} is no depthwise kernel of this version ({error}); {_REMEDY}") from None
    if entry.format != FORMAT or entry.digest != entry.expected_digest:
        raise SpecError(f"{path} was edited or damaged, or is of another version; {_REMEDY}")
    return entry


def store(proved: ProvedDepthwise, folder: Path | None = None) -> Path:
    """Write the kernel's file into `folder` of kernels, the user's if None."""
    entry = entry_of(proved)
    path = (folder or paths.user_kernels()) / entry.program.isa / FOLDER / f"{entry.name}.json"
    lock = paths.user_kernels() / "locks" / f"{entry.program.isa}.lock"
    with locked(lock, partial(unwritable, path)):
        replace_file(path, msgspec.json.format(msgspec.json.encode(entry), indent=1) + b"\n")
    load_proved.cache_clear()
    return path

"""Trained networks, and where kernels run them."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from forced import VARIABLE, forced

from bitsynth.errors import SpecError
from bitsynth.host import features
from bitsynth.host.placement import runs_natively
from bitsynth.isa import architecture
from bitsynth.isa.load import load


def default_models() -> Path:
    """BITSYNTH_MODELS, else `tests/models`."""
    return Path(os.environ.get("BITSYNTH_MODELS") or Path(__file__).resolve().parents[1] / "tests" / "models")


def checksums(folder: Path, used: Iterable[str]) -> dict[str, str]:
    """The SHA-256 of the files `used`, which must be as SHA256SUMS lists them."""
    try:
        lines = (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
        wanted = {name: digest for digest, name in (line.split() for line in lines if line.strip())}
        found = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in used}
    except OSError as error:
        raise SpecError(f"cannot read {error.filename}: {error.strerror}; name the folder with --models") from None
    if bad := [name for name, digest in found.items() if digest != wanted.get(name)]:
        raise SpecError(f"{folder}: {', '.join(bad)} differ from SHA256SUMS; fetch the files again")
    return found


@contextmanager
def natively(isa: str) -> Iterator[bool]:
    """Whether `isa` runs natively; a forced runner is for the emulated set alone."""
    table = load(isa).table
    with forced("" if table.arch == features.arch() else os.environ.get(VARIABLE, "")):
        yield runs_natively(table)


def can_run(isa: str) -> bool:
    """Whether there is any way to run `isa` here; says so where there is none."""
    table = load(isa).table
    if architecture.find_architecture(table.arch).emulator or features.matches(table):
        return True
    print(f"{isa} is left out: it is not emulated, and this processor does not have it", file=sys.stderr)
    return False

"""The files of what is proved: JSON with a digest, one a file, a user's folder over the shipped one.

Whatever is read is text that anybody may have written: each store checks it again.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Protocol, Self, TypeVar

import msgspec

from bitsynth import paths
from bitsynth.errors import SpecError, ToolError
from bitsynth.files import read_file, replace_file
from bitsynth.isa.step import from_json, to_json

_SETTLED_NS = 1_000_000_000
"""The age of a time that no later change can have again."""


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a stored file, in a numbered format. Its field `digest` covers all other fields."""

    @property
    def expected_digest(self) -> str:
        """The digest that the other fields call for."""
        return hashlib.sha256(to_json(msgspec.structs.replace(self, digest=""))).hexdigest()

    def with_digest(self) -> Self:
        """Return the record with the digest that it calls for."""
        return msgspec.structs.replace(self, digest=self.expected_digest)


class StoredRecord(Protocol):
    """The fields and properties that every kind of `Record` has."""

    @property
    def name(self) -> str:
        """The name of the stored artifact, and of its file."""

    @property
    def format(self) -> int:
        """The version of the format."""

    @property
    def digest(self) -> str:
        """The digest in the file."""

    @property
    def expected_digest(self) -> str:
        """The digest that the other fields call for."""


_R = TypeVar("_R", bound=StoredRecord)


def folders() -> list[Path]:
    """Return the folders of kernels, the user's first."""
    return [paths.user_kernels(), paths.shipped_kernels()]


def every(pattern: str) -> Iterator[Path]:
    """Yield all stored files that match `pattern`, the user's over the shipped ones of the same place and name."""
    seen: set[Path] = set()
    for folder in folders():
        for path in sorted(folder.glob(pattern)):
            if (place := path.relative_to(folder)) not in seen:
                seen.add(place)
                yield path


def first(place: Path) -> Path | None:
    """Return the stored file at `place` in a folder of kernels, None if there is none."""
    return next((path for folder in folders() if (path := folder / place).is_file()), None)


def state(path: str | Path) -> tuple[int, ...] | None:
    """Return a value that changes with a file or folder; None if the last change may be too recent to tell."""
    status = os.stat(path)
    settled = time.time_ns() - status.st_ctime_ns > _SETTLED_NS
    return (status.st_ctime_ns, status.st_dev, status.st_ino, status.st_size) if settled else None


def read(path: Path, kind: type[_R], what: str, version: int, remedy: str) -> _R:
    """Return the record in the file `path`, with its digest checked; SpecError names `what` and the remedy.

    It is read once while the file stays as it is.
    """
    try:
        file_state = state(path)
    except OSError:
        file_state = None
    return (
        _read_once(path, file_state, kind, what, version, remedy)
        if file_state
        else _read(path, kind, what, version, remedy)
    )


@lru_cache(maxsize=1 << 10)
def _read_once(path: Path, state: tuple[int, ...], kind: type[_R], what: str, version: int, remedy: str) -> _R:
    return _read(path, kind, what, version, remedy)


def _read(path: Path, kind: type[_R], what: str, version: int, remedy: str) -> _R:
    try:
        record = from_json(read_file(path), kind)
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SpecError(f"{path} is not {what} of this version ({error}); {remedy}") from None
    if record.format != version:
        raise SpecError(f"{path} has format {record.format}, this version reads {version}; {remedy}")
    if record.digest != record.expected_digest:
        raise SpecError(f"{path} was edited or damaged: its digest does not match; {remedy}")
    return record


def place(path: Path) -> tuple[Path, Path]:
    """Return the folder of kernels that a stored file is in, and its place there, without its ending."""
    folder = next(folder for folder in folders() if path.is_relative_to(folder))
    return folder, path.relative_to(folder).with_suffix("")


def write(path: Path, record: StoredRecord) -> None:
    """Write a record in one step: readers see the old file or the new one."""
    replace_file(path, msgspec.json.format(to_json(record), indent=1) + b"\n")

"""The file of studies: optuna's journal, a line of JSON an operation. Other files are never written to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from bitsynth.errors import SpecError, ToolError
from bitsynth.files import locked, read_file, unwritable
from bitsynth.layers.tuned import TuningTask

ADVICE = "name another file with --study"
_MAX_BYTES = 1 << 30
_LAST_CODE = 10
_START = b'{"op_code":'


class _Operation(msgspec.Struct):
    """The fields that every line has."""

    op_code: Annotated[int, msgspec.Meta(ge=0, le=_LAST_CODE)]
    worker_id: str


@contextmanager
def opened(path: Path) -> Iterator[JournalStorage]:
    """Yield the studies of the file, created if there is none; only this process writes to it within the block.

    An empty file is one without studies. A last line that was cut off as it was written is dropped.
    SpecError for any other file, which stays as it is, and for what the block finds wrong in the studies; ToolError
    if the file cannot be written.
    """
    try:
        _whole_bytes(path)  # Before a lock is created next to it.
        with locked(Path(f"{path}.lock"), lambda error: unwritable(path, error, ADVICE)) as lock:
            whole = _whole_bytes(path)
            with _refuse_foreign_objects(path):
                storage = JournalStorage(_File(str(path), cast(Any, lock)))
                for study in storage.get_all_studies():
                    msgspec.json.decode(study.study_name, type=TuningTask)
                if os.path.getsize(path) > whole:
                    os.truncate(path, whole)
                yield storage
    except OSError as error:
        raise unwritable(path, error, ADVICE) from None


class _File(JournalFileBackend):
    """A file that says which one cannot be written."""

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append operations; ToolError if the file cannot be written."""
        try:
            super().append_logs(logs)
        except OSError as error:
            raise unwritable(Path(self._file_path), error, ADVICE) from None


def _whole_bytes(path: Path) -> int:
    """Return bytes up to the end of the last whole line.

    SpecError if a line is not an operation, or the file is a link.
    """
    if path.is_symlink():
        raise SpecError(f"{path} is a link; name the file itself with --study")
    try:
        data = read_file(path, _MAX_BYTES)
    except FileNotFoundError:
        return 0
    *lines, cut = data.split(b"\n")
    with _refuse_foreign_objects(path):
        for line in lines:
            msgspec.json.decode(line, type=_Operation)
        if cut and not (lines and (cut.startswith(_START) or _START.startswith(cut))):
            raise ValueError("its last line is neither whole nor the beginning of an operation")
    return len(data) - len(cut)


@contextmanager
def _refuse_foreign_objects(path: Path) -> Iterator[None]:
    """Raise SpecError for objects in a file that are not optuna's: optuna would trust them."""
    try:
        yield
    except (OSError, ToolError):
        raise
    except Exception as error:
        raise SpecError(f"{path} is not a study ({type(error).__name__}: {error}); {ADVICE}") from None

"""Tuned schedules as text: a JSON file for an instruction set and widths, written in one step.

A file that is not of this form is named, with what to do; one that is damaged is kept beside what replaces it.
"""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path

import msgspec

from bitsynth import paths
from bitsynth.errors import BitsynthWarning, SpecError
from bitsynth.files import locked, read_file, replace_file, set_aside, unwritable
from bitsynth.layers.tuned.record import TuningRecord, TuningTask

FORMAT = 2


class _Damaged(SpecError):
    """A file of a version that is no more, or that no version wrote so."""


class _Format(msgspec.Struct, frozen=True):
    format: int


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    tuned: tuple[TuningRecord, ...]


def path_of(folder: Path, task: TuningTask) -> Path:
    """The file in `folder` that has records of `task`, if any."""
    return folder / task.isa / f"a{task.act_bits}w{task.w_bits}.json"


def store(record: TuningRecord, folder: Path) -> Path:
    """Write one record, in one step and beside those of other processes; ToolError if that fails.

    It replaces that of the same task and kind of processor, and comes before those of other kinds.
    """
    path = path_of(folder, record.task)
    with locked(paths.user_schedules() / "locks" / f"{path.parent.name}-{path.stem}.lock", partial(unwritable, path)):
        mine = record.task, record.processor
        others = [known for known in _kept(path) if (known.task, known.processor) != mine]
        content = _File(FORMAT, tuple(sorted([record, *others], key=lambda known: msgspec.json.encode(known.task))))
        replace_file(path, msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
    return path


def _kept(path: Path) -> tuple[TuningRecord, ...]:
    """The records of a file, none if it is damaged: then it is set aside, and the user told where.

    SpecError for one that cannot be read, or that a newer version wrote: these stay.
    """
    try:
        return read(path)
    except _Damaged as why:
        warn(f"{why}; it is kept as {set_aside(path, 'damaged')}")
        return ()


def read(path: Path) -> tuple[TuningRecord, ...]:
    """The records of a file, none if there is none; SpecError if it is not such a file."""
    try:
        data = read_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror or error}") from None
    except SpecError as why:
        raise _Damaged(str(why)) from None
    try:
        if (found := msgspec.json.decode(data, type=_Format).format) == FORMAT:
            return msgspec.json.decode(data, type=_File).tuned
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, SpecError) as error:
        raise _Damaged(f"{path} has no tuned schedules of this version ({error})") from None
    kind = SpecError if found > FORMAT else _Damaged
    raise kind(f"{path} has no tuned schedules of this version (format {found} is not {FORMAT})")


def warn(what: str) -> None:
    """Tell the user of a file that is not as it should be."""
    warnings.warn(what, BitsynthWarning, stacklevel=3)

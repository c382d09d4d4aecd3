"""Files that are replaced in one step, so that a reader sees the old text or the new one, and locks of folders."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from bitsynth.errors import ToolError

if TYPE_CHECKING:
    from filelock import FileLock

ADVICE = "choose another folder with BITSYNTH_CACHE or -o"


def replace_file(path: Path, data: bytes, advice: str = ADVICE) -> None:
    """Make `path` hold `data`, creating its folder; ToolError says why that failed, and gives `advice`."""
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise unwritable(path, error, advice) from None
    finally:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)


def set_aside(path: Path, why: str, advice: str = ADVICE) -> Path:
    """Rename what cannot stay where it lies, so that nothing of it is lost; the new path, which ends in `why`."""
    names = (path.with_name(f"{path.name}.{why}{n or ''}") for n in count())
    aside = next(name for name in names if not os.path.lexists(name))
    try:
        return path.rename(aside)
    except OSError as error:
        raise unwritable(path, error, advice) from None


def unwritable(path: Path, error: OSError, advice: str = ADVICE) -> ToolError:
    """Why `path` cannot be written, and `advice`."""
    return ToolError(f"cannot write {path}: {error.strerror or error}; {advice}")


def file_lock(path: Path) -> FileLock:
    """The lock of `path`, a file that stays; OSError where it cannot be made: filelock would try for ever."""
    from filelock import FileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return FileLock(path)


@contextmanager
def locked(path: Path, failure: Callable[[OSError], ToolError]) -> Iterator[None]:
    """One process at a time holds the lock file `path`, which stays; `failure` says why it cannot be had."""
    try:
        lock = file_lock(path)
        lock.acquire()
    except OSError as error:
        raise failure(error) from error
    try:
        yield
    finally:
        lock.release()


def write_texts(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Write every file that is not there already, letter for letter; their paths."""
    paths = [folder / name for name in files]
    for path, text in zip(paths, files.values(), strict=True):
        data = text.encode()
        if not _holds(path, data):
            replace_file(path, data)
    return paths


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except OSError:
        return False

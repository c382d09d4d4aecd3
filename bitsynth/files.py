"""Files of users: read without trust, locked, and replaced in one step, so that a reader sees the old or the new."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, count
from pathlib import Path
from typing import IO, TYPE_CHECKING

from bitsynth.errors import SpecError, ToolError

if TYPE_CHECKING:
    from filelock import FileLock

ADVICE = "choose another folder with BITSYNTH_CACHE or -o"
MARK = "Written by bitsynth, which replaces it: not to be edited."
"""A part of the first line of every text that is emitted."""
_LICENSE = "SPDX-License-Identifier:"
"""A line near the top of every text that is emitted: its licence follows."""
MAX_BYTES = 1 << 26
"""The limit of a file of text that is read whole."""
_CMAKE, _MAX_CMAKE = "CMakeLists.txt", 1 << 16
"""The file that says which library is in a folder, and the most bytes that are looked at."""
_PREFIX, _SUFFIX = ".bitsynth-", ".part"
"""The name of a file that is being written, which its writer holds locked."""


@contextmanager
def open_file(path: Path, most: int) -> Iterator[IO[bytes]]:
    """Yield the file at `path`, opened to read; SpecError unless it is a regular one of at most `most` bytes.

    A pipe is not waited for. OSError if the file cannot be opened.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise SpecError(f"{path} is not a regular file")
        if status.st_size > most:
            raise SpecError(f"{path} has {status.st_size:,} bytes, more than the {most:,} that are read of a file")
        with open(handle, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(handle)


def read_file(path: Path, most: int = MAX_BYTES) -> bytes:
    """Return the bytes of a file that anybody may have written, at most `most`; raises as `open_file` does."""
    with open_file(path, most) as file:  # Not `read(most)`, for which room would be made whatever the file's size is.
        return file.read(min(most, os.fstat(file.fileno()).st_size))


def replace_file(path: Path, data: bytes, advice: str = ADVICE) -> None:
    """Make `path` hold `data`, creating its folder; ToolError says why that failed, and gives `advice`."""
    try:
        _require_replaceable(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path.parent)
        with _temporary(path.parent) as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.replace(file.name, path)
    except OSError as error:
        raise unwritable(path, error, advice) from None


def require_ours(path: Path) -> None:
    """Raise SpecError before long work if what lies at `path` was not written by bitsynth: it would be replaced."""
    if os.path.lexists(path) and not _is_marked(path):
        raise SpecError(f"{path} was not written by bitsynth, so it is not replaced; move it, or remove it")


def _require_replaceable(path: Path) -> None:
    """Raise OSError if `path` is a folder, or a special file such as /dev/null, which would become a plain file."""
    if path.is_dir():
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file")


@contextmanager
def _temporary(folder: Path) -> Iterator[IO[bytes]]:
    """Yield a new file in `folder`, locked; gone in the end unless it was renamed."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=_PREFIX, suffix=_SUFFIX, delete=False) as file:
        try:
            if _is_ours(file):
                yield file
                return
        finally:
            with suppress(FileNotFoundError):
                os.unlink(file.name)
    with _temporary(folder) as file:
        yield file


def _is_ours(file: IO[bytes]) -> bool:
    """Return whether we have the lock, before any sweeper. In a file system without locks nobody sweeps."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return os.fstat(file.fileno()).st_nlink > 0


def _sweep(folder: Path) -> None:
    """Remove the files that killed writers left, which no process has locked."""
    for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        with suppress(OSError, SpecError), open_file(path, sys.maxsize) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def set_aside(path: Path, why: str, advice: str = ADVICE) -> Path:
    """Rename a file that cannot stay in its place, so that nothing of it is lost; the new path, which ends in `why`."""
    names = (path.with_name(f"{path.name}.{why}{n or ''}") for n in count())
    aside = next(name for name in names if not os.path.lexists(name))
    try:
        return path.rename(aside)
    except OSError as error:
        raise unwritable(path, error, advice) from None


def unwritable(path: Path, error: OSError, advice: str = ADVICE) -> ToolError:
    """Return the error that says why `path` cannot be written, with `advice`."""
    return ToolError(f"cannot write {path}: {error.strerror or error}; {advice}")


def file_lock(path: Path) -> FileLock:
    """Return the lock of `path`, an empty file that stays.

    OSError if it cannot be made, which filelock would try for ever; SpecError if another file lies there, which
    filelock would empty.
    """
    from filelock import FileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.path.lexists(path):
        path.touch()
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_size:
        raise SpecError(f"{path} would be an empty file to lock, and is another; move it away")
    return FileLock(path)


@contextmanager
def hold_lock(path: Path, failure: Callable[[OSError], ToolError], *, wait: bool = True) -> Iterator[FileLock]:
    """Hold the lock file `path`, which stays, as the only process and thread.

    `failure` makes the error if the lock cannot be had, without `wait` also if another has it. An interrupt frees the
    lock, whenever it comes: a thread that left its lock behind would wait for itself the next time.
    """
    try:
        lock = file_lock(path)
    except OSError as error:
        raise failure(error) from error
    try:
        try:
            lock.acquire(blocking=wait)
        except OSError as error:
            raise failure(error) from error
        yield lock
    finally:
        lock.release()


def mark(files: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of C, CMake or Python `files` with MARK above each, and a licence above those without one.

    Generated C and CMake is the user's: MIT-0 asks nothing of whoever has it. Copies of bitsynth's own files, the
    runtime and the checker of certificates, stay under bitsynth's licence.
    """
    return {name: "\n".join([_comment(name, MARK), *_license(name, text), text]) for name, text in files.items()}


def _license(name: str, text: str) -> list[str]:
    """Return the line that names the licence of a text; none if the text has one."""
    copied = name.endswith(".py")
    return [] if _LICENSE in text[:200] else [_comment(name, f"{_LICENSE} {'MIT' if copied else 'MIT-0'}")]


def _comment(name: str, line: str) -> str:
    return f"/* {line} */" if name.endswith((".c", ".h")) else f"# {line}"


def as_bytes(content: str | bytes) -> bytes:
    """Return the bytes of a file with this content."""
    return content.encode() if isinstance(content, str) else content


def write_texts(folder: Path, files: Mapping[str, str | bytes], *, ours: bool = False) -> list[Path]:
    """Write the files that are not there already, letter for letter, into `folder`; their paths.

    Of several processes that write into it one writes after the other. SpecError, and nothing is written, if a file
    without MARK lies in the place of one, unless the folder is `ours`, and if the folder has another library: each has
    kernels and runtime under names of its own. ToolError also if what lies in the place of a folder is none, or
    the files cannot be written, as on a full disk.
    """
    with _alone(folder, {(folder / name).parent for name in files}):
        return _write_all(folder, files, ours=ours)


_reserved: set[tuple[int, int]] = set()
"""Device and inode of each folder that this process has reserved."""


@contextmanager
def reserve_folder(folder: Path, advice: str = ADVICE) -> Iterator[None]:
    """Keep other processes from writing into `folder` in this block, which computes what it writes there.

    ToolError if another process has reserved it. The folder is created, and removed in the end if nothing is in it.
    Where it cannot be opened, or has no locks, nothing is kept away.
    """
    created = [part for part in (folder, *folder.parents) if not os.path.lexists(part)]
    handle: int | None = None
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if handle is None:
            yield
            return
        status = os.fstat(handle)
        place = status.st_dev, status.st_ino
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ToolError(f"another process writes to {folder} now; wait for its end, or {advice}") from None
        except OSError:
            pass  # A file system without locks.
        _reserved.add(place)
        try:
            yield
        finally:
            _reserved.discard(place)
    finally:
        if handle is not None:
            os.close(handle)
        with suppress(OSError):
            for part in created:
                part.rmdir()


@contextmanager
def _alone(folder: Path, inner: Iterable[Path]) -> Iterator[None]:
    """Hold a lock of `folder` itself, which leaves no file in it; where it is none, or there are no locks, nothing.

    Files that a killed writer staged are removed from the folders `inner`, which hold the files.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        status = os.fstat(handle)
        with suppress(OSError):
            if (status.st_dev, status.st_ino) not in _reserved:
                fcntl.flock(handle, fcntl.LOCK_EX)
            for left in chain.from_iterable(each.glob(f"{_PREFIX}*{_SUFFIX}/") for each in inner):
                shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        os.close(handle)


def _write_all(folder: Path, files: Mapping[str, str | bytes], *, ours: bool) -> list[Path]:
    other, own = _library(_text(folder / _CMAKE)), _library(str(files.get(_CMAKE, "")))
    if other and own and other != own:
        raise SpecError(f"{folder} has the library {other}, whose files {own} would replace; choose another folder")
    texts = {folder / name: as_bytes(content) for name, content in files.items()}
    new = {path: data for path, data in texts.items() if not _holds(path, data)}
    if not ours and (foreign := [path for path in new if os.path.lexists(path) and not _is_marked(path)]):
        raise SpecError(f"{foreign[0]} was not written by bitsynth, so it is not replaced; choose another folder")
    for inner in dict.fromkeys(path.parent for path in new):
        if os.path.lexists(inner) and not inner.is_dir():
            raise ToolError(f"cannot write into {inner}, which is no folder; choose another one")
    if new:
        _replace_together(new, ADVICE if ours else "choose another folder")
    return list(texts)


def _replace_together(files: Mapping[Path, bytes], advice: str) -> None:
    """Make each path hold its data; all are written before the first is replaced. ToolError as above.

    Each is staged in its own folder: another one may be in another file system, or the only one that can be written.
    """
    try:
        with ExitStack() as stack:
            staged: dict[Path, str] = {}
            for path, data in files.items():
                _require_replaceable(path)
                path.parent.mkdir(parents=True, exist_ok=True)
                if path.parent not in staged:
                    temporary = tempfile.TemporaryDirectory(dir=path.parent, prefix=_PREFIX, suffix=_SUFFIX)
                    staged[path.parent] = stack.enter_context(temporary)
                with open(Path(staged[path.parent], path.name), "xb") as file:
                    file.write(data)
                    os.fchmod(file.fileno(), 0o644)
            for path in files:
                Path(staged[path.parent], path.name).replace(path)
    except OSError as error:
        raise unwritable(path, error, advice) from None


def _text(path: Path) -> str:
    try:
        return read_file(path, _MAX_CMAKE).decode("utf-8", "replace")
    except (OSError, SpecError):
        return ""


def _library(text: str) -> str:
    """Return the library that a CMakeLists.txt of ours builds; empty if it is none."""
    project = re.search(r"^project\((\w+) C\)$", text, re.MULTILINE)
    return project[1] if MARK in text and project else ""


def _is_marked(path: Path) -> bool:
    try:
        with open_file(path, sys.maxsize) as file:
            return MARK.encode() in file.readline(2 * len(MARK))
    except (OSError, SpecError):
        return False


def _holds(path: Path, data: bytes) -> bool:
    try:
        return read_file(path, len(data)) == data
    except (OSError, SpecError):
        return False

"""Shared libraries from C text, kept in a content-addressed cache."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shlex
import shutil
import stat
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bitsynth.errors import SpecError, ToolError
from bitsynth.files import hold_lock
from bitsynth.host import features
from bitsynth.host.placement import is_emulated
from bitsynth.processes import tool
from bitsynth.processes.tool import several_at_once
from bitsynth.toolchain.cache import cache_folder, require_own, secure
from bitsynth.toolchain.compiler import Compiler, get_preferred

if TYPE_CHECKING:
    from bitsynth.isa.load import Isa, Requirements

_FORMAT = "1"
_DIGEST = "sha256"
_KEY_DIGITS = 32
_PRODUCTS = "[0-9a-f]" * _KEY_DIGITS
"""Folders of compiled products."""
_UNFINISHED = "unfinished"
"""The folder in which each compilation has a folder of its own until it ends, made under the lock of its key.

It is apart from the products: looking through thousands of these for what a killed compilation left takes longer than
to compile.
"""
_PRUNED = "pruned"
"""An empty file whose time is the time of the last search for unused products."""
_DAY, _UNUSED_DAYS = 24 * 60 * 60, 30
"""Seconds of a day; days after which a product that no process used is removed."""
_OBJECT = "object.o"
_SUPPORT = "bs_support.c"
_HEADER, _PARSED_HEADER = "intrinsics.h", "intrinsics.h.gch"
_PARSED_FROM_USE = 3
"""The use in a process from which on a header of intrinsics is kept parsed: parsing it to a file takes as long as three
times reading it, and the file has 24 MB."""
_INCLUDED = re.compile(r'^#include "(.+)"$', re.MULTILINE)
_FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fdiagnostics-color=never")
_UNSAFE = ("-ffast-math", "-funsafe-math-optimizations")
"""Linked with one of these, a library makes the process that loads it flush denormal numbers to zero."""
RUNTIME = Path(__file__).parent / "support" / "runtime.c"
"""C that freestanding code is linked with."""


def compile_for(
    isa: Isa,
    sources: Mapping[str, str],
    *,
    needs: Requirements | None = None,
    flags: Sequence[str] = (),
    shared: bool = True,
    compiler: Compiler | None = None,
    cached: Collection[str] = (),
) -> Path:
    """Compile C files for `isa`; the path of the shared library, or of the executable if not `shared`.

    `sources` maps file names to text: `.c` files are compiled, `.h` files can be
    included. `needs` is what the code uses of `isa`, the base alone if not given. `flags` go to the compiler and to the
    linker; flags that begin with -Wl only to the linker, flags that make arithmetic unsafe only to the compiler.
    Objects of the files `cached` stay in the cache, for other libraries with these files. The same sources, flags and
    compiler give the same path at once; a build that was interrupted leaves nothing, and what is damaged since, by the
    digest next to it, is compiled again. Nobody but the user and root can have written what the path names, nor can
    write it until it is loaded (`cache.secure`); if that does not hold, or the cache cannot be written, ToolError says
    why.
    """
    for name in sources:
        if Path(name).name != name or Path(name).suffix not in {".c", ".h"}:
            raise SpecError(f"{name!r} is no plain name of a .c or .h file")
    compiler = compiler or get_preferred(isa)
    hosted = not is_emulated(isa.table)
    files, cached = dict(sources), set(cached)
    if shared and not hosted:
        files[_SUPPORT] = RUNTIME.read_text(encoding="utf-8")
        cached.add(_SUPPORT)
    chosen = compiler.flags([*(needs or isa.requirements()).cc_flags, *flags])
    compile_flags = [*_FLAGS, *(f for f in chosen if not f.startswith("-Wl,"))]
    link_flags = [*_link_flags(compiler, shared, hosted), *(f for f in chosen if f not in _UNSAFE)]
    name = "library.so" if shared else "program"
    kept = [f for f in files if f in cached and f[-2:] == ".c"]
    return _build(compiler, files, compile_flags, link_flags, name, kept, isa.table.header)


def _link_flags(compiler: Compiler, shared: bool, hosted: bool) -> list[str]:
    if not shared:
        return [] if compiler.arch == features.arch() else ["-static"]
    if not hosted:
        return ["-shared", "-nostdlib", "-Wl,-z,defs"]
    # Linking zig's own libc takes it seconds; the process that loads the library has one.
    return ["-shared", "-nostdlib"] if compiler.family == "zig" and sys.platform == "linux" else ["-shared"]


def _with_headers(source: str, files: Mapping[str, str]) -> dict[str, str]:
    """Return the file `source` and all of `files` that it includes, directly or not."""
    included, left = {}, [source]
    while left:
        name = left.pop()
        included[name] = files[name]
        left += [x for x in _INCLUDED.findall(files[name]) if x in files and x not in included]
    return included


def _key(
    compiler: Compiler, files: Mapping[str, str], compile_flags: Sequence[str], link_flags: Sequence[str], name: str
) -> str:
    """Return the name of a product's folder in the cache: a digest of all that it depends on."""
    parts = [_FORMAT, compiler.identity, *compile_flags, "", *link_flags, name]
    parts += [f"{len(k)} {len(v)} {k} {v}" for k, v in sorted(files.items())]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:_KEY_DIGITS]


def _build(
    compiler: Compiler,
    files: Mapping[str, str],
    compile_flags: Sequence[str],
    link_flags: Sequence[str],
    name: str,
    cached: Sequence[str] = (),
    header: str = "",
) -> Path:
    """Return the product of the compiler, from the cache if it is there; `header` declares the set's intrinsics."""
    key = _key(compiler, files, compile_flags, link_flags, name)
    folder = cache_folder()
    try:
        target = secure(folder) / key / name
        if not _whole(target):
            # Before the lock is taken: one file may lock this key and the key of an object or a header.
            objects = _objects(compiler, files, compile_flags, cached, header)
            parsed = {
                source: _read_parsed(compiler, header, compile_flags)
                for source in files.keys() - objects.keys()
                if header and source.endswith(".c") and _begins_with(header, source, files)
            }
            with _lock_folder(target.parents[1], key):
                if not _whole(target):
                    _build_in_place(compiler, files, compile_flags, link_flags, target, objects, parsed)
        _mark_used(target)
    except OSError as error:
        raise _unusable(folder, error) from error
    return target


def _mark_used(product: Path) -> None:
    """Give the digest of a product, once a day, the time of this use."""
    digest = product.with_name(_DIGEST)
    with suppress(OSError):  # The folder may be one that this process can only read.
        if abs(time.time() - digest.stat().st_mtime) > _DAY:
            os.utime(digest)


def _begins_with(header: str, source: str, files: Mapping[str, str]) -> bool:
    """Return whether a file includes a system's header, and nothing before it can change what the header declares.

    Pragmas and macros such as _POSIX_C_SOURCE can. Files of `files` that it includes count as part of it.
    """
    left, seen = files[source].splitlines()[::-1], {source}
    while left:
        line = left.pop()
        if line == f"#include <{header}>":
            return True
        if line.startswith("#pragma") or "_SOURCE" in line:
            return False
        if (local := _INCLUDED.match(line)) and local[1] in files.keys() - seen:
            seen.add(local[1])
            left += files[local[1]].splitlines()[::-1]
    return False


_uses: Counter[Path] = Counter()
"""How many compilations of this process read a header of intrinsics, by the file that is to hold it parsed."""
_parsed: set[Path] = set()
"""Those files that this process has written, or has found whole."""


def _read_parsed(compiler: Compiler, header: str, compile_flags: Sequence[str]) -> list[str]:
    """Return the flags by which GCC reads a header that it has parsed before; none where it has not, or cannot.

    It parses immintrin.h in 0.3 s, longer than it takes for most kernels, and reads the result in 0.02 s.
    """
    if compiler.family != "gcc":
        return []
    files, flags = {_HEADER: f"#include <{header}>\n"}, ["-x", "c-header"]
    product = secure(cache_folder()) / _key(compiler, files, compile_flags, flags, _PARSED_HEADER) / _PARSED_HEADER
    _uses[product] += 1
    if _uses[product] == _PARSED_FROM_USE or (_uses[product] == 1 and product.exists()):
        with suppress(ToolError):  # A compiler that cannot do it, or a file that others may write, which is not read.
            _parsed.add(_build(compiler, files, compile_flags, flags, _PARSED_HEADER))
    return ["-include", str(product.with_name(_HEADER))] if product in _parsed and product.exists() else []


def _objects(
    compiler: Compiler, files: Mapping[str, str], compile_flags: Sequence[str], cached: Sequence[str], header: str
) -> dict[str, Path]:
    """Return the objects of the files `cached`, as many compiled at a time as this process may use cores."""

    def compile_object(source: str) -> Path:
        return _build(compiler, _with_headers(source, files), compile_flags, ["-c"], _OBJECT, header=header)

    with several_at_once(min(len(cached), features.cores())) as submit:
        started = {source: submit(compile_object, source) for source in cached}
        return {source: done.result() for source, done in started.items()}


def _whole(product: Path) -> bool:
    """Return whether a product is as it was compiled, by the digest next to it; PermissionError if it is not ours."""
    digest = product.with_name(_DIGEST)
    try:
        statuses = {place: place.lstat() for place in (product.parent, product, digest)}
        for place, status in statuses.items():
            require_own(place, status)
        plain = stat.S_ISREG(statuses[product].st_mode) and stat.S_ISREG(statuses[digest].st_mode)
        return plain and digest.read_bytes() == _digest(product)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _digest(product: Path) -> bytes:
    with product.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest().encode()


@contextmanager
def _lock_folder(folder: Path, key: str) -> Iterator[None]:
    with hold_lock(_lock(folder, key), partial(_unusable, folder)):
        _sweep(folder, key)
        yield


def _sweep(folder: Path, key: str) -> None:
    """Remove folders that killed compilations left, and unused products.

    Each is removed under its lock: we hold the lock of `key`; others are skipped unless they are free.
    """
    unfinished, unused = [*_make_unfinished(folder).glob(f"{_PRODUCTS}.*")], _find_unused(folder)
    for path in (*unfinished, *unused):
        ours, lock = path.name[:2] == key[:2], _lock(folder, path.name)
        with (
            suppress(ToolError, SpecError),
            nullcontext() if ours else hold_lock(lock, partial(_unusable, folder), wait=False),
        ):
            if path in unfinished or _is_unused(path):  # It may have been used since it was found.
                shutil.rmtree(path, ignore_errors=True)


def _make_unfinished(folder: Path) -> Path:
    """Return the folder of unfinished compilations, made if missing; OSError if it is none, or if others may write it.

    A link is refused: what lies where it leads to is not the cache's to remove.
    """
    path = folder / _UNFINISHED
    with suppress(FileExistsError):
        path.mkdir(0o700)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, f"{path} is no folder")
    require_own(path, status)
    return path


def _find_unused(folder: Path) -> list[Path]:
    """Return the products that no process used for `_UNUSED_DAYS`; none if they were looked for in the last day."""
    pruned = folder / "locks" / _PRUNED
    with suppress(FileNotFoundError):
        if abs(time.time() - pruned.stat().st_mtime) < _DAY:
            return []
    pruned.touch()
    return [path for path in folder.glob(_PRODUCTS) if _is_unused(path)]


def _is_unused(folder: Path) -> bool:
    """Return whether no process used a product for `_UNUSED_DAYS`; not if it is gone, as others remove products too."""
    for place in (folder / _DIGEST, folder):
        with suppress(OSError):
            return place.lstat().st_mtime < time.time() - _UNUSED_DAYS * _DAY
    return False


def _lock(folder: Path, key: str) -> Path:
    return folder / "locks" / f"{key[:2]}.lock"


def _build_in_place(
    compiler: Compiler,
    files: Mapping[str, str],
    compile_flags: Sequence[str],
    link_flags: Sequence[str],
    target: Path,
    products: Mapping[str, Path],
    parsed: Mapping[str, Sequence[str]],
) -> None:
    unfinished = _make_unfinished(target.parents[1])
    work = Path(tempfile.mkdtemp(prefix=f"{target.parent.name}.", dir=unfinished))
    try:
        for name, text in files.items():
            (work / name).write_text(text, encoding="utf-8")
        for name, path in products.items():
            shutil.copyfile(path, work / f"{name}.o")
        product = work / target.name
        _run_compiler(compiler, files, compile_flags, link_flags, product, parsed)
        product.chmod(0o700)
        product.with_name(_DIGEST).write_bytes(_digest(product))
        product.with_name(_DIGEST).chmod(0o600)
        if target.parent.is_dir():
            shutil.rmtree(target.parent)
        target.parent.unlink(missing_ok=True)
        os.replace(work, target.parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run_compiler(
    compiler: Compiler,
    files: Mapping[str, str],
    compile_flags: Sequence[str],
    link_flags: Sequence[str],
    product: Path,
    parsed: Mapping[str, Sequence[str]],
) -> None:
    """Compile the files next to `product` to it; `parsed` are flags by source for headers that are parsed already."""
    work = product.parent
    scratch = work / "scratch"
    scratch.mkdir()
    env = {"TMPDIR": str(scratch), **compiler.environment}
    command = [*compiler.command, *compile_flags]
    objects = []
    for source in sorted(f for f in files if f.endswith(".c")):
        objects.append(work / f"{source}.o")
        if not objects[-1].exists():
            _make(objects[-1], [*command, *parsed.get(source, ()), "-c", source, "-o", objects[-1].name], env)
    if product.name == _OBJECT:
        objects.pop().rename(product)
    elif product.name == _PARSED_HEADER:
        _make(product, [*command, *link_flags, _HEADER, "-o", product.name], env)
    else:
        _make(product, [*compiler.command, "-o", product.name, *(o.name for o in objects), *link_flags], env)
    shutil.rmtree(scratch)
    for file in objects:
        file.unlink()


def _make(output: Path, command: Sequence[str], env: Mapping[str, str]) -> None:
    """Run a command that is to write `output`; OSError if the disk was full, ToolError for any other failure."""
    try:
        tool.run(command, output.parent, env)
    except ToolError as error:
        for full in (errno.ENOSPC, errno.EDQUOT):
            if os.strerror(full) in str(error):
                raise OSError(full, os.strerror(full)) from None
        raise
    if not output.is_file() or not output.stat().st_size:
        raise ToolError(f"{shlex.join(command)} ended with exit code 0 but wrote nothing to {output.name}")


def _unusable(folder: Path, error: OSError) -> ToolError:
    return ToolError(
        f"cannot use the build cache {folder}: {error.strerror or error}; set BITSYNTH_BUILD_CACHE to another folder"
    )

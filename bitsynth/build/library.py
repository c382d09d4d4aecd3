"""Shared libraries from C text, kept in a content-addressed cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bitsynth.build import host, process
from bitsynth.build.folder import cache_folder
from bitsynth.build.runners import runs_natively
from bitsynth.build.toolchain import Compiler, preferred
from bitsynth.errors import SpecError, ToolError
from bitsynth.files import locked

if TYPE_CHECKING:
    from bitsynth.isa.load import Isa, Requirements

_FORMAT = "1"
_FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fdiagnostics-color=never")
_SUPPORT = Path(__file__).parent / "support"


def compile_for(
    isa: Isa,
    sources: Mapping[str, str],
    *,
    needs: Requirements | None = None,
    flags: Sequence[str] = (),
    shared: bool = True,
    compiler: Compiler | None = None,
) -> Path:
    """Compile C files for `isa`; the path of the shared library, or of the executable.

    `sources` maps file names to text: `.c` files are compiled, `.h` files can be
    included. `needs` is what the code uses of `isa`, the base alone if not given. `flags`
    go to the compiler and to the linker. The same sources, flags and compiler give the
    same path at once; a build that was interrupted leaves nothing.
    """
    for name in sources:
        if Path(name).name != name or Path(name).suffix not in {".c", ".h"}:
            raise SpecError(f"{name!r} is no plain name of a .c or .h file")
    compiler = compiler or preferred(isa)
    hosted = runs_natively(isa.table)
    files = dict(sources)
    if shared and not hosted:
        files["bs_support.c"] = (_SUPPORT / "runtime.c").read_text(encoding="utf-8")
    chosen = compiler.flags([*(needs or isa.requirements()).cc_flags, *flags])
    compile_flags = [*_FLAGS, *chosen]
    link_flags = [*_link_flags(compiler, shared, hosted), *chosen]
    return _build(compiler, files, compile_flags, link_flags, "library.so" if shared else "program")


def _link_flags(compiler: Compiler, shared: bool, hosted: bool) -> list[str]:
    if not shared:
        return [] if compiler.arch == host.arch() else ["-static"]
    if not hosted:
        return ["-shared", "-nostdlib", "-Wl,-z,defs"]
    # Linking zig's own libc takes it seconds; the process that loads the library has one.
    return ["-shared", "-nostdlib"] if compiler.family == "zig" and sys.platform == "linux" else ["-shared"]


def _build(
    compiler: Compiler, files: Mapping[str, str], compile_flags: Sequence[str], link_flags: Sequence[str], name: str
) -> Path:
    parts = [_FORMAT, compiler.identity, *compile_flags, "", *link_flags, name]
    parts += [f"{len(k)} {len(v)} {k} {v}" for k, v in sorted(files.items())]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
    target = cache_folder() / key / name
    if target.exists():
        return target
    with _locked(key):
        if not target.exists():
            _build_in_place(compiler, files, compile_flags, link_flags, target)
    return target


@contextmanager
def _locked(key: str) -> Iterator[None]:
    folder = cache_folder()
    with locked(folder / "locks" / f"{key[:2]}.lock", partial(_unwritable, folder)):
        for stale in folder.glob(f"{key[:2]}*.part-*"):
            shutil.rmtree(stale, ignore_errors=True)
        yield


def _build_in_place(
    compiler: Compiler, files: Mapping[str, str], compile_flags: Sequence[str], link_flags: Sequence[str], target: Path
) -> None:
    folder = cache_folder()
    try:
        work = Path(tempfile.mkdtemp(prefix=f"{target.parent.name}.part-", dir=folder))
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        for name, text in files.items():
            (work / name).write_text(text, encoding="utf-8")
        _run_compiler(compiler, files, compile_flags, link_flags, work, target.name)
        if target.parent.exists():
            shutil.rmtree(target.parent)
        os.replace(work, target.parent)
    except OSError as error:
        raise _unwritable(folder, error) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run_compiler(
    compiler: Compiler,
    files: Mapping[str, str],
    compile_flags: Sequence[str],
    link_flags: Sequence[str],
    work: Path,
    name: str,
) -> None:
    scratch = work / "scratch"
    scratch.mkdir()
    env = {"TMPDIR": str(scratch), **compiler.environment}
    objects = []
    for source in sorted(f for f in files if f.endswith(".c")):
        objects.append(f"{source}.o")
        process.run([*compiler.command, *compile_flags, "-c", source, "-o", objects[-1]], work, env)
    process.run([*compiler.command, "-o", name, *objects, *link_flags], work, env)
    shutil.rmtree(scratch)
    for file in objects:
        (work / file).unlink()


def _unwritable(folder: Path, error: OSError) -> ToolError:
    return ToolError(
        f"cannot write to the build cache {folder}: {error.strerror or error}; "
        "set BITSYNTH_BUILD_CACHE to a folder that can be written"
    )

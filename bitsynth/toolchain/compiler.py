"""The C compilers for an instruction set, and the command line of each."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from bitsynth.errors import ToolError
from bitsynth.host import features
from bitsynth.isa import architecture
from bitsynth.processes import tool
from bitsynth.toolchain.cache import cache_folder

if TYPE_CHECKING:
    from bitsynth.isa.load import Isa
    from bitsynth.isa.tables import IsaTable

_PROBE = """\
#include <stddef.h>
#include <stdint.h>
#include <string.h>
size_t bs_probe(uint8_t *a, size_t n);
size_t bs_probe(uint8_t *a, size_t n) { memset(a, 1, n); return 7; }
"""


@dataclass(frozen=True)
class Compiler:
    """A C compiler for one architecture."""

    name: str
    family: str
    command: tuple[str, ...]
    arch: str
    version: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables it must run with: zig keeps its caches in ours, HOME may be read-only."""
        return _environment(self.family)

    @property
    def identity(self) -> str:
        """The facts of the compiler that a cached library depends on."""
        return f"{shlex.join(self.command)} {self.version}"

    def flags(self, given: Sequence[str]) -> list[str]:
        """Return the flags `given`, in this compiler's spelling.

        Without optimization zig checks for undefined behaviour and for a stack that was written beyond its ends by
        itself, with functions that a library does not have.
        """
        if self.family != "zig":
            return list(given)
        rest = [f for f in given if not f.startswith("-march=")]
        march = [f.removeprefix("-march=") for f in given if f.startswith("-march=")]
        cpu = _zig_cpu(self.arch, march[-1]) if march else "baseline"
        return [f"-mcpu={cpu}", "-fno-sanitize=undefined", "-fno-stack-protector", *rest]


def compilers(isa: Isa) -> list[Compiler]:
    """Return every compiler that builds code for `isa`, the preferred one first."""
    return [c for c in candidates(isa.table.arch) if not problem(isa, c)]


def get_preferred(isa: Isa) -> Compiler:
    """Return the first compiler that works; ToolError says what to install if none does."""
    tried = []
    for compiler in candidates(isa.table.arch):
        trouble = problem(isa, compiler)
        if not trouble:
            return compiler
        tried.append(f"{compiler.name}: {trouble}")
    raise ToolError("\n".join([f"no C compiler for {isa.name} ({isa.table.arch}): {advice(isa.table)}", *tried]))


def find_compiler(isa: Isa, name: str) -> Compiler:
    """Return the compiler for `isa` of that name or family, by default the preferred one; ToolError if none works."""
    if not name:
        return get_preferred(isa)
    working = compilers(isa)
    chosen = [c for c in working if name in {c.name, c.family}]
    if not chosen:
        names = ", ".join(c.name for c in working) or "none"
        raise ToolError(f"no compiler {name} builds {isa.name}; found: {names}")
    return chosen[0]


def advice(isa: IsaTable) -> str:
    """Return advice on what to install in order to compile for `isa`."""
    return (
        f"install {package(isa.arch)}, or `pip install 'bitsynth[emulator]'` for the compiler in ziglang, "
        f"or name a compiler in {_variable(isa.arch)}"
    )


def package(arch: str) -> str:
    """Return the package of a compiler for `arch`, in words."""
    return "gcc or clang" if arch == features.arch() else f"Debian's {architecture.find_architecture(arch).package}"


def problem(isa: Isa, compiler: Compiler) -> str:
    """Return the reason why `compiler` does not build a small library for `isa`; empty if it does."""
    try:
        probe(isa, compiler)
    except ToolError as error:
        if isinstance(error.__cause__, OSError):
            raise
        return str(error)
    return ""


def probe(isa: Isa, compiler: Compiler) -> Path:
    """Return a small library for `isa`: `bs_probe(array, n)` fills `n` bytes with 1 and returns 7."""
    from bitsynth.toolchain.library import compile_for

    return compile_for(isa, {"probe.c": f"#include <{isa.table.header}>\n{_PROBE}"}, compiler=compiler)


def candidates(arch: str) -> Iterator[Compiler]:
    """Yield the compilers found for `arch`, tried or not."""
    if forced := _forced_compiler(arch):
        variable, command = forced
        try:
            yield _identify(shlex.join(command), command, arch)
        except ToolError as error:
            raise ToolError(f"{variable}: {error}") from None
        return
    for name, command in _find(arch):
        try:
            yield _identify(name, command, arch)
        except ToolError:
            continue


def zig() -> tuple[str, ...]:
    """Return the command of the zig compiler that pip installs, empty if it is not there."""
    spec = importlib.util.find_spec("ziglang")
    if spec is None:
        return ()
    folders = list(spec.submodule_search_locations or [])
    own = Path(folders[0]) / "zig" if folders else Path()
    return (str(own),) if own.is_file() else (sys.executable, "-m", "ziglang")


def _forced_compiler(arch: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the variable of the environment that names a compiler for `arch`, and its command."""
    for variable in (_variable(arch), *(["BITSYNTH_CC"] if arch == features.arch() else [])):
        try:
            words = shlex.split(os.environ.get(variable, ""))
        except ValueError as error:
            raise ToolError(f"{variable} names no command: {error}") from None
        if words:
            path = shutil.which(words[0])
            return variable, (os.path.abspath(path) if path else words[0], *words[1:])
    return None


def _variable(arch: str) -> str:
    return "BITSYNTH_CC_" + arch.upper()


def _find(arch: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    native = arch == features.arch() and not (sys.platform != "linux" and _wants_emulator())
    table = architecture.find_architecture(arch)
    if not native:
        for name in table.gcc:
            if path := shutil.which(name):
                yield name, (path,)
        if path := shutil.which("clang"):
            yield "clang", (path, *table.clang)
    else:
        named = [n for n in ("gcc", "clang", "cc") if shutil.which(n)]
        for name in named if len(named) == 1 else [n for n in named if n != "cc"]:
            yield name, (str(shutil.which(name)),)
    if command := zig():
        yield "zig", (*command, "cc", *([] if native else table.zig))


def _wants_emulator() -> bool:
    """Return whether the environment asks for an emulator, which runs Linux's file format."""
    return os.environ.get("BITSYNTH_RUNNER", "native") != "native"


@lru_cache
def _identify(name: str, command: tuple[str, ...], arch: str) -> Compiler:
    zig_words = next((i for i, word in enumerate(command) if Path(word).stem in {"zig", "ziglang"}), -1) + 1
    if zig_words:
        return Compiler(name, "zig", command, arch, f"zig {_zig_version(command[:zig_words])}")
    # The target of a cross compiler is left out: clang is of one version for all, and takes long to start.
    text = _version_text(command[:1] if [*command[1:]] == architecture.find_architecture(arch).clang else command)
    family = "clang" if "clang" in text.lower() else "gcc"
    return Compiler(name, family, command, arch, _banner(text))


@lru_cache
def _zig_version(command: tuple[str, ...]) -> str:
    return tool.run([*command, "version"], Path("/"), _environment("zig")).strip()


@lru_cache
def _version_text(command: tuple[str, ...]) -> str:
    return tool.run([*command, "--version"], Path("/"), {})


def _banner(text: str) -> str:
    """Return the line of what `--version` prints that has the version: warnings may stand above, a licence below."""
    lines = [line.strip() for line in text.splitlines() if ": warning: " not in line]
    return next((line for line in lines if re.search(r"\d\.\d", line)), lines[0] if lines else "")


def _environment(family: str) -> dict[str, str]:
    if family != "zig":
        return {}
    own = str(cache_folder() / "zig")
    return {k: os.environ.get(k, own) for k in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")}


def _zig_cpu(arch: str, march: str) -> str:
    base, *extras = march.split("+")
    return "+".join([architecture.find_architecture(arch).zig_cpu.get(base, base.replace("-", "_")), *extras])

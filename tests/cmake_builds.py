"""Builds of emitted libraries by cmake alone, with every compiler that is found."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from bitsynth import toolchain
from bitsynth.host.features import arch
from bitsynth.isa import architecture, load
from bitsynth.toolchain import Compiler

STRICT = "-Wall -Wextra -Werror -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes"


def commands(name: str) -> Iterator[tuple[Compiler, list[str], list[str | None]]]:
    """Compilers: what cmake is told, and what runs the result. Zig would build a whole libc to link one for Arm."""
    isa = load.load(name)
    emulated = architecture.named(isa.table.arch).emulator
    for compiler in toolchain.compilers(isa):
        here = isa.table.arch == arch() or emulated is None
        emulator = [] if here or emulated is None else [shutil.which(emulated.qemu.programs[0])]
        if not emulator or compiler.family != "zig":
            yield compiler, list(compiler.command), emulator


def with_cmake(
    folder: Path, source: Path, compiler: Compiler, command: Sequence[str], emulator: Sequence[str | None]
) -> None:
    """Build with cmake alone."""
    options = [f"-DCMAKE_C_COMPILER={';'.join(command)}", f"-DCMAKE_C_FLAGS={STRICT}", "-DCMAKE_BUILD_TYPE=Release"]
    if emulator:
        linked = "-DCMAKE_EXE_LINKER_FLAGS=-static"
        options += ["-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_CROSSCOMPILING_EMULATOR={emulator[0]}", linked]
    env = {**os.environ, **compiler.environment}
    for argv in (
        ["cmake", "-S", str(source), "-B", str(folder), *options],
        ["cmake", "--build", str(folder), "--parallel", "2"],
    ):
        done = subprocess.run(argv, capture_output=True, text=True, env=env, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

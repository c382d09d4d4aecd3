"""Builds of emitted libraries by cmake alone, with every compiler that is found."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from bitsynth import toolchain
from bitsynth.host.features import arch
from bitsynth.isa import architecture, load
from bitsynth.toolchain import Compiler

STRICT = "-Wall -Wextra -Werror -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes"


def commands(name: str) -> Iterator[tuple[Compiler, list[str], list[str | None]]]:
    """Compilers: what cmake is told, and what runs the result. Zig would build a whole libc to link one for Arm."""
    isa = load.load(name)
    emulated = architecture.find_architecture(isa.table.arch).emulator
    for compiler in toolchain.compilers(isa):
        here = isa.table.arch == arch() or emulated is None
        emulator = [] if here or emulated is None else [shutil.which(emulated.qemu.programs[0])]
        if not emulator or compiler.family != "zig":
            yield compiler, list(compiler.command), emulator


def with_cmake(
    folder: Path,
    source: Path,
    compiler: Compiler,
    command: Sequence[str],
    emulator: Sequence[str | None],
    build_type: str = "Release",
) -> None:
    """Build with cmake alone."""
    options = [f"-DCMAKE_C_COMPILER={';'.join(command)}", f"-DCMAKE_C_FLAGS={STRICT}"]
    options.append(f"-DCMAKE_BUILD_TYPE={build_type}")
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


CHOICES = {
    "cortex-a53": "a53, 0 a53, 0 a72, -1 a72, -1 a72, 0 a53",
    "cortex-a72": "a72, 0 a53, 0 a72, -1 a72, -1 a72, 0 a72",
    "cortex-a76": "a76, 0 a53, 0 a72, 0 a76, -1 a76, 0 a76",
    "cortex-a35": "a72, 0 a53, 0 a72, -1 a72, -1 a72, 0 a72",
}
"""What a program says on a processor: its choice of a53, a72 and a76, then status and choice of each that it asks for:
a53, a72, a76, one there is not, and none."""


def choosing(folder: Path, name: str, app: str, expected: Mapping[str, str]) -> None:
    """Build the library for several processors in `folder / name`, and run `app` around it on each that is emulated.

    It says what is expected there, and the library's self-test, of all that can run there, that it is right.
    """
    compiler, command, emulator = next(commands("neon"), (None, [], []))
    if compiler is None or shutil.which("cmake") is None or not (emulator and emulator[0]):
        pytest.skip("no cmake, no compiler for aarch64 or no qemu")
    build, program = folder / "build", folder / "app"
    with_cmake(build, folder / name, compiler, command, emulator)
    (folder / "app.c").write_text(app)
    where = [f"-iquote{folder / name}", f"-iquote{folder / name / name}_a76"]
    linked = [str(folder / "app.c"), str(build / f"lib{name}.a"), "-pthread", "-o", str(program)]
    subprocess.run([*command, "-static", *where, *linked], check=True)
    for cpu, choice in expected.items():
        for run, output in ((program, choice), (build / f"{name}_selftest", f"{name}: right")):
            done = subprocess.run([emulator[0], "-cpu", cpu, run], capture_output=True, text=True, check=True)
            assert done.stdout.strip() == output, cpu

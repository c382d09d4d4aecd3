"""Emulated processors of the same architecture as an instruction set, with the features it needs and without."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from bitsynth import toolchain
from bitsynth.isa import load
from support.case_selection import quick

LACKING = {
    "avx2": ("qemu-x86_64", "Nehalem", "avx2"),
    "avxvnni": ("qemu-x86_64", "max", "avx_vnni"),
    "avx512": ("qemu-x86_64", "max", "avx512f"),
    "neon_dotprod": ("qemu-aarch64", "cortex-a53", "asimddp"),
    "armv7_neon": ("qemu-arm", "cortex-r5f", "neon"),
}
"""By instruction set: qemu, a processor that lacks a feature, and that feature."""
SETS = quick(("armv7_neon",), of=LACKING)
HAVING = {"avx2": "max", "neon_dotprod": "max", "armv7_neon": "cortex-a8"}
"""Where qemu emulates one that has them all."""


def emulator(isa: str) -> str | None:
    return shutil.which(LACKING[isa][0])


def linker(isa: str) -> toolchain.Compiler:
    """The first compiler that links programs for `isa`, without building a libc first as zig does for minutes."""
    compilers = [c for c in toolchain.compilers(load.load(isa)) if c.family != "zig"]
    if not compilers:
        pytest.skip(f"no gcc or clang links programs for {load.load(isa).table.arch}")
    return compilers[0]


def run_on(isa: str, cpu: str, program: Path) -> subprocess.CompletedProcess[str]:
    """What `program` does on a processor that qemu calls `cpu`."""
    command = [str(emulator(isa)), "-cpu", cpu, str(program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def check(isa: str, program: Path, name: str) -> None:
    """`program` ends well where the processor has all, and says what a lesser one lacks."""
    _, less, feature = LACKING[isa]
    done = run_on(isa, less, program)
    assert done.returncode == 77, done
    assert done.stdout == ""
    assert done.stderr.startswith(f"{name} needs a processor with {feature}; this one lacks it: run it elsewhere")
    assert done.stderr.count("\n") == 1
    if isa in HAVING:
        done = run_on(isa, HAVING[isa], program)
        assert (done.returncode, done.stderr) == (0, "")

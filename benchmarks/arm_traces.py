"""The instructions that C for AArch64 runs, under qemu, and llvm-mca's cycles for them. Nothing is timed."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitsynth.errors import ToolError
from bitsynth.isa.baseline_loops import BaselineLoop
from bitsynth.matmul import MatmulKernel
from bitsynth.schedule.cost import AMORTISED_K

COMPILERS = {"gcc": ["aarch64-linux-gnu-gcc"], "clang": ["clang", "--target=aarch64-linux-gnu"]}
MCA = {"a53": "cortex-a53", "a72": "cortex-a72", "a76": "neoverse-n1"}
START = """
#include <stddef.h>
#include <stdint.h>
static unsigned char buffer[1 << 20] __attribute__((aligned(64)));
static int32_t c[1 << 16];
"""
KERNEL = """
static int32_t g[4096], h[4096];
void {name}(size_t, size_t, size_t, const uint8_t *const *, const uint8_t *, const int32_t *, const int32_t *,
            int32_t *, size_t);
int main(void)
{{
    const uint8_t *a[64];
    for (int i = 0; i < 64; ++i)
        a[i] = buffer + i % 32 * 8192;
    {name}({tiles}, 1, {steps}, a, buffer, g, h, c, {columns});
    return 0;
}}
"""
LOOP = """
void {name}(size_t, const void *, const void *, void *);
int main(void)
{{
    {name}({steps}, buffer, buffer + (1 << 19), c);
    return 0;
}}
"""


@dataclass(frozen=True)
class CallCode:
    """C of a function, and a program that calls it once at K = 576: so many multiply-accumulates."""

    name: str
    function: str
    files: Mapping[str, str]
    flags: Sequence[str]
    main: str
    macs: int

    @classmethod
    def of_kernel(cls, kernel: MatmulKernel, tiles: int) -> CallCode:
        """A kernel's microkernel, called for so many tiles."""
        of, name = kernel.entry.kernel, kernel.name
        steps = -(-AMORTISED_K // of.k_step)
        main = KERNEL.format(name=name, tiles=tiles, steps=steps, columns=tiles * of.columns)
        return cls(name, name, kernel.files, kernel.needs.cc_flags, main, tiles * of.rows * of.columns * AMORTISED_K)

    @classmethod
    def of_loop(cls, loop: BaselineLoop) -> CallCode:
        """A hand-written loop."""
        table = loop.table
        main = LOOP.format(name=table.function, steps=AMORTISED_K // table.k_step)
        flags = [*loop.isa.table.cc_flags, *loop.macros]
        return cls(loop.name, table.function, loop.files, flags, main, table.rows * table.columns * AMORTISED_K)


def traced(compiler: str, code: CallCode) -> list[str]:
    """The instructions of the function that run, in order."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for file, text in {**code.files, "main.c": START + code.main}.items():
            (home / file).write_text(text)
        _run([*COMPILERS[compiler], "-std=c11", "-O2", *code.flags, "-c", f"{code.name}.c", "-o", "kernel.o"], home)
        _run([*COMPILERS["gcc"], "-O1", "-c", "main.c", "-o", "main.o"], home)
        _run([*COMPILERS["gcc"], "-static", "-no-pie", "main.o", "kernel.o", "-o", "main"], home)
        of = f"--disassemble={code.function}"
        lines = disassembled(home / "main", of)
        one = ["-one-insn-per-tb"] if "one-insn-per-tb" in _run(["qemu-aarch64", "-h"], home) else ["-singlestep"]
        log = ["-d", "exec,nochain", "-dfilter", f"{min(lines):#x}..{max(lines):#x}", "-D", "log"]
        _run(["qemu-aarch64", "-cpu", "max", *one, *log, "./main"], home)
        run = re.findall(r"^Trace \d+: \w+ \[\w+/(\w+)/", (home / "log").read_text(), re.MULTILINE)
        return [lines[at] for at in (int(x, 16) for x in run) if at in lines]


def disassembled(file: Path, *options: str) -> dict[int, str]:
    """The instructions of a compiled file by their addresses."""
    command = ["aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", *options, str(file)]
    return dict(_instructions(_run(command, Path.cwd())))


def _instructions(shown: str) -> Iterator[tuple[int, str]]:
    """Addresses and instructions in what objdump shows."""
    for at, text in re.findall(r"^ +([0-9a-f]+):\s+(.*)", shown, re.MULTILINE):
        yield int(at, 16), " ".join(re.sub(r"(//|<).*", "", text).split())


def with_compilers(facts: dict[str, Any], compilers: Iterable[str] = COMPILERS) -> dict[str, Any]:
    """The facts of a result, with what these compilers say of themselves for the compiler of its setting."""
    versions = {
        f"compiler ({name})": _run([*COMPILERS[name], "--version"], Path.cwd()).splitlines()[0] for name in compilers
    }
    kept = {name: what for name, what in facts["setting"].items() if name != "compiler"}
    return facts | {"setting": kept | versions}


def _run(command: list[str], home: Path) -> str:
    try:
        done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ToolError(f"{command[0]} is not installed") from None
    if done.returncode:
        raise ToolError(f"{' '.join(command[:3])}... failed: {done.stderr[-500:]}")
    return done.stdout


def mca(program: Sequence[str], cpu: str) -> float | None:
    """What llvm-mca says that the straight line takes, in cycles; None without it."""
    if shutil.which("llvm-mca") is None:
        return None
    text = "\n".join(map(_straight, program))
    command = ["llvm-mca", "-mtriple=aarch64", "-mattr=+dotprod", f"-mcpu={MCA[cpu]}", "-iterations=1"]
    command += ["-instruction-info=false", "-resource-pressure=false"]
    done = subprocess.run(command, input=f".Ltop:\n{text}\n", capture_output=True, text=True, check=False)
    found = re.search(r"Total Cycles: +(\d+)", done.stdout)
    return float(found[1]) if found else None


def _straight(line: str) -> str:
    line = re.sub(r"^(b|b\.\w+|bl|cbn?z \w+,|tbn?z \w+, #\w+,) [0-9a-f]+$", r"\1 .Ltop", line)
    return re.sub(r"^(adrp \w+), .*", r"\1, .Ltop", line)

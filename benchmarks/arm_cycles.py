"""Cycles that Arm's kernels take by the scoreboard, on the instructions that a whole tile runs at K = 576.

    python benchmarks/arm_cycles.py [--only A2W1] [--isa neon] [--cpu a53] [--results FOLDER] [--json]

Every kernel that ships is compiled by gcc and by clang as bitsynth does, run once under qemu, which says which
instructions it runs, and these are put to the scoreboard of each processor, loads, flushes, spills and addresses
included; beside it what bitsynth predicts from the kernel alone, and what llvm-mca says, if it is installed
(Cortex-A72 by its model of the A57, Cortex-A76 by that of the Neoverse N1). Nothing is timed.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import report

from bitsynth.errors import BitsynthError, ToolError
from bitsynth.isa.load import load
from bitsynth.isa.scoreboard import cycles
from bitsynth.matmul import MatmulKernel, get_kernel
from bitsynth.schedule import listing, predicted
from bitsynth.schedule.cost import AMORTISED_K, cycles_per_128_mac
from bitsynth.spec.options import METHODS

COMPILERS = {"gcc": ["aarch64-linux-gnu-gcc"], "clang": ["clang", "--target=aarch64-linux-gnu"]}
SETS = {"a53": "neon", "a72": "neon", "a76": "neon_dotprod"}
MCA = {"a53": "cortex-a53", "a72": "cortex-a72", "a76": "neoverse-n1"}
WIDTHS = [(1, 1), (2, 1), (1, 2), (2, 2), (3, 3), (4, 4)]
MAIN = """
#include <stddef.h>
#include <stdint.h>
static unsigned char buffer[1 << 20] __attribute__((aligned(64)));
static int32_t g[4096], h[4096], c[1 << 16];
void {name}(size_t, size_t, const uint8_t *const *, const uint8_t *, const int32_t *, const int32_t *,
            int32_t *, size_t);
int main(void)
{{
    const uint8_t *a[64];
    for (int i = 0; i < 64; ++i)
        a[i] = buffer + i % 32 * 8192;
    {name}(1, {steps}, a, buffer, g, h, c, {columns});
    return 0;
}}
"""


@dataclass(frozen=True)
class Row:
    """Cycles per 128 multiply-accumulates of one kernel, by one compiler, on one processor."""

    cpu: str
    widths: str
    kernel: str
    method: str
    compiler: str
    model: float
    predicted: float
    scoreboard: float
    mca: float | None


def traced(compiler: Sequence[str], kernel: MatmulKernel) -> list[str]:
    """The instructions of the microkernel that run, in order, for one tile at K = 576."""
    of = kernel.entry.kernel
    name = kernel.name
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for file, text in kernel.files.items():
            (home / file).write_text(text)
        (home / "main.c").write_text(MAIN.format(name=name, steps=-(-AMORTISED_K // of.k_step), columns=of.columns))
        flags = kernel.needs.cc_flags
        _run([*compiler, "-std=c11", "-O2", *flags, "-c", f"{name}.c", "-o", "kernel.o"], home)
        _run([*COMPILERS["gcc"], "-O1", "-c", "main.c", "-o", "main.o"], home)
        _run([*COMPILERS["gcc"], "-static", "-no-pie", "main.o", "kernel.o", "-o", "main"], home)
        shown = _run(["aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", f"--disassemble={name}", "main"], home)
        code = dict(_instructions(shown))
        window = f"{min(code):#x}..{max(code):#x}"
        one = ["-one-insn-per-tb"] if "one-insn-per-tb" in _run(["qemu-aarch64", "-h"], home) else ["-singlestep"]
        _run(
            ["qemu-aarch64", "-cpu", "max", *one, "-d", "exec,nochain", "-dfilter", window, "-D", "log", "./main"], home
        )
        run = (
            int(x, 16) for x in re.findall(r"^Trace \d+: \w+ \[\w+/(\w+)/", (home / "log").read_text(), re.MULTILINE)
        )
        return [code[at] for at in run if at in code]


def _instructions(shown: str) -> Iterator[tuple[int, str]]:
    for at, text in re.findall(r"^ +([0-9a-f]+):\s+(.*)", shown, re.MULTILINE):
        yield int(at, 16), " ".join(re.sub(r"(//|<).*", "", text).split())


def _run(command: list[str], home: Path) -> str:
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolError(f"{' '.join(command[:3])}... failed: {done.stderr[-500:]}")
    return done.stdout


def mca(program: Sequence[str], cpu: str) -> float | None:
    """What llvm-mca says that the straight line takes, in cycles; None without it."""
    if shutil.which("llvm-mca") is None:
        return None
    text = "\n".join(_straight(line) for line in program)
    command = ["llvm-mca", "-mtriple=aarch64", "-mattr=+dotprod", f"-mcpu={MCA[cpu]}", "-iterations=1"]
    command += ["-instruction-info=false", "-resource-pressure=false"]
    done = subprocess.run(command, input=f".Ltop:\n{text}\n", capture_output=True, text=True, check=False)
    found = re.search(r"Total Cycles: +(\d+)", done.stdout)
    return float(found[1]) if found else None


def _straight(line: str) -> str:
    line = re.sub(r"^(b|b\.\w+|bl|cbn?z \w+,|tbn?z \w+, #\w+,) [0-9a-f]+$", r"\1 .Ltop", line)
    return re.sub(r"^(adrp \w+), .*", r"\1, .Ltop", line)


def rows(cpu: str, widths: tuple[int, int], compilers: Sequence[str], methods: Sequence[str]) -> Iterator[Row]:
    """The kernels of one processor and width: the cheapest for it, and that of each method for layers."""
    isa, seen = load(SETS[cpu]), set()
    wanted: list[dict[str, Any]] = [{"cpu": cpu}, *({"method": m, "channels": 64} for m in methods)]
    for options in wanted:
        try:
            found = get_kernel(isa=isa.name, act_bits=widths[0], w_bits=widths[1], **options).on(cpu)
        except BitsynthError as error:
            print(f"{cpu} A{widths[0]}W{widths[1]} {options}: {error}", file=sys.stderr)
            continue
        kernel = found.entry.kernel
        if kernel.digest in seen:
            continue
        seen.add(kernel.digest)
        unit = kernel.rows * kernel.columns * AMORTISED_K / 128
        for compiler in compilers:
            program = traced(COMPILERS[compiler], found)
            third = mca(program, cpu)
            yield Row(
                cpu=cpu,
                widths=f"A{widths[0]}W{widths[1]}",
                kernel=found.name,
                method=kernel.method,
                compiler=compiler,
                model=round(cycles_per_128_mac(isa, kernel, cpu), 2),
                predicted=round(predicted.cycles_per_128_mac(isa, kernel, cpu), 2),
                scoreboard=round(cycles(isa.rules(cpu), listing.issued(isa, cpu, program)) / unit, 2),
                mca=None if third is None else round(third / unit, 2),
            )


def main() -> int:
    """Every kernel of every processor, a line each; with --results as JSON and a table."""
    parser = report.parser(__doc__)
    parser.add_argument("--cpu", choices=SETS, action="append")
    parser.add_argument("--only", type=report.widths, action="append")
    parser.add_argument("--compiler", choices=COMPILERS, action="append")
    parser.add_argument("--methods", nargs="*", default=[], choices=METHODS)
    parser.add_argument("--results", type=Path)
    args = parser.parse_args()
    out = []
    for cpu in args.cpu or SETS:
        for widths in args.only or WIDTHS:
            for row in rows(cpu, widths, args.compiler or list(COMPILERS), args.methods):
                out.append(row)
                print(json.dumps(asdict(row)) if args.json else _line(row), flush=True)
    if args.results:
        (args.results / "arm_cycles.json").write_text(json.dumps([asdict(r) for r in out], indent=1) + "\n")
        (args.results / "arm_cycles.md").write_text(table(out))
    return 0


def _line(row: Row) -> str:
    return " ".join(str(x) for x in asdict(row).values())


def table(found: Sequence[Row]) -> str:
    """The rows as Markdown."""
    names = list(asdict(found[0]))
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    lines += [f"| {' | '.join('-' if x is None else str(x) for x in asdict(row).values())} |" for row in found]
    return (
        "Cycles per 128 multiply-accumulates, K = 576, whole tile (`benchmarks/arm_cycles.py`).\n\n"
        + "\n".join(lines)
        + "\n"
    )


if __name__ == "__main__":
    report.run(main)

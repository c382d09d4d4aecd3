"""How long do networks of 20 convolutions take to compile? CPU seconds without a C compiler, and seconds with one.

    python benchmarks/compile_time.py [--json] [--only resnet18] [--isa avx512] [--runs N] [--widths A2W2]

ResNet-18 and a chain of 20 convolutions for images of 32 x 32 pixels, 64 to 512 channels, of random weights in QONNX.
Each compile is a process of its own: `bitsynth compile`, in CPU seconds; then a process that compiles the C too,
without a cache, on all cores. Figures are medians.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import few_bits
import onnx
import report

from bitsynth.bench.setting import Basis
from bitsynth.errors import SpecError, ToolError
from bitsynth.host import features
from bitsynth.isa.load import load_table

NETWORKS = ("resnet18", "chain")
SIZE = 32
"""Pixels a side."""
TARGETS = ("avx2", "avx512", "neon a53", "neon a72")
COMPILE = """\
import sys, numpy, bitsynth
net = bitsynth.compile(sys.argv[1], isa=sys.argv[2], cpu=sys.argv[3])
net.bind(numpy.zeros([1, 3, int(sys.argv[4]), int(sys.argv[4])], numpy.float32))
"""


@dataclass(frozen=True)
class Compiled:
    """Median times to compile a network for a target; seconds with a C compiler are 0 where it was not used."""

    network: str
    target: str
    cpu_seconds: float
    seconds_with_compiler: float
    cpu_seconds_with_compiler: float


def child(*command: str, **environment: str) -> tuple[float, float]:
    """Return the seconds and CPU seconds of a process and its children, in which BLAS has one thread."""
    started = time.perf_counter()
    several = {**os.environ, "OPENBLAS_NUM_THREADS": "1", **environment}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=several)
    assert process.stderr is not None
    error_text = process.stderr.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode:
        raise ToolError(f"a fresh process failed: {(error_text.strip().splitlines() or ['without a word'])[-1]}")
    return time.perf_counter() - started, used.ru_utime + used.ru_stime


def compiled(path: Path, target: str, runs: int) -> Compiled:
    """Medians of compiling a file for a target: with a compiler where this processor runs it."""
    isa, _, cpu = target.partition(" ")
    native = load_table(isa).arch == features.arch() and features.matches(load_table(isa))
    alone, whole = [], []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            asked = ["--isa", isa, *(["--cpu", cpu] if cpu else []), "-o", f"{folder}/c"]
            alone.append(child(sys.executable, "-m", "bitsynth.cli", "compile", str(path), *asked))
            if native:
                code = sys.executable, "-c", COMPILE, str(path), isa, cpu, str(SIZE)
                whole.append(child(*code, BITSYNTH_BUILD_CACHE=f"{folder}/cache"))
    both = [statistics.median(row[k] for row in whole) if whole else 0.0 for k in (0, 1)]
    return Compiled(path.stem, target, statistics.median(cpu for _, cpu in alone), *both)


def measure(networks: Sequence[str], targets: Sequence[str], widths: tuple[int, int], runs: int) -> list[Compiled]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name in networks:
            path = Path(folder) / f"{name}.onnx"
            onnx.save(few_bits.built(name, *widths, SIZE), path)
            for target in targets:
                print(f"compiling {name} for {target}", file=sys.stderr)
                found.append(compiled(path, target, runs))
    return found


def main() -> int:
    parser = report.parser(__doc__)
    parser.add_argument("--only", default="", help=f"one of {', '.join(NETWORKS)}")
    parser.add_argument("--isa", default="", help=f"one of {', '.join(TARGETS)}")
    parser.add_argument("--widths", type=report.widths, default=(2, 2), help="bits of codes, such as A2W1")
    parser.add_argument("--runs", type=int, default=3, help="processes a figure")
    given = parser.parse_args()
    for option, known in (("only", NETWORKS), ("isa", TARGETS)):
        if (asked := getattr(given, option)) and asked not in known:
            raise SpecError(f"--{option}: unknown {asked!r}; known: {', '.join(known)}")
    networks, targets = [given.only] if given.only else NETWORKS, [given.isa] if given.isa else TARGETS
    rows = measure(networks, targets, given.widths, max(1, given.runs))
    facts = report.facts(Basis({}), sorted({t.partition(" ")[0] for t in targets}), rows=[asdict(row) for row in rows])
    titles = ["network", "target", "CPU, s", "with a compiler, s", "its CPU, s"]
    table = [[r.network, r.target, f"{r.cpu_seconds:.2f}", *_with(r)] for r in rows]
    report.tell(facts, (titles, table), as_json=given.json)
    return 0


def _with(row: Compiled) -> list[str]:
    both = row.seconds_with_compiler, row.cpu_seconds_with_compiler
    return [f"{x:.1f}" if x else "" for x in both]


if __name__ == "__main__":
    report.run(main)

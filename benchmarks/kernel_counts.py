"""What compilers make of the microkernels: instructions on NEON, speed on AVX2.

    python benchmarks/kernel_counts.py [--isa ISA] [--only AxWy] [--rounds N] [--json]

NEON: instructions executed in the steady loop under emulation, counted exactly as the
difference between two numbers of steps, per 128 multiply-accumulates, next to the ops and
loads of the model. What is over is loop control, register copies and spills; it can be
negative where a compiler does with less than the model reckons. Counts are no times.

AVX2: multiply-accumulates a second of the microkernel over K = 576 in L1, packing excluded,
next to a hand-written fp32 loop of fused multiply-adds on tiles of 6 x 16 that is measured in
turn with it. Medians over interleaved rounds, of CPU time, because others may share the cores.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np
import report
from paper_8x8 import emulated

import bitsynth
from bitsynth import MatmulKernel, build
from bitsynth.build import Compiler, Runner, host
from bitsynth.errors import SpecError, ToolError
from bitsynth.isa.load import load
from bitsynth.schedule import cost

WIDTHS = [(x, y) for x in range(1, 5) for y in range(1, 5)]
STEPS = (16, 48)
K = cost.AMORTISED_K
CALLS = 5000
FMA_ROWS, FMA_COLUMNS = 6, 16
DRIVER = """
#include <stddef.h>
#include <stdint.h>
void drive(size_t calls, size_t steps, const uint8_t *a, const uint8_t *w, const int32_t *g, const int32_t *h,
    int32_t *c, size_t ldc);
void drive(size_t calls, size_t steps, const uint8_t *a, const uint8_t *w, const int32_t *g, const int32_t *h,
    int32_t *c, size_t ldc)
{
    for (size_t i = 0; i < calls; ++i)
        NAME(steps, a, w, g, h, c, ldc);
}
"""
FMA = """
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
void fp32(size_t calls, size_t k, const float *a, const float *b, float *c);
static void tile(size_t k, const float *a, const float *b, float *c)
{
    __m256 sum[6][2];
#pragma GCC unroll 6
    for (int r = 0; r < 6; ++r)
        sum[r][0] = sum[r][1] = _mm256_setzero_ps();
    for (; k > 0; --k, a += 6, b += 16) {
        const __m256 low = _mm256_loadu_ps(b), high = _mm256_loadu_ps(b + 8);
#pragma GCC unroll 6
        for (int r = 0; r < 6; ++r) {
            const __m256 x = _mm256_broadcast_ss(a + r);
            sum[r][0] = _mm256_fmadd_ps(x, low, sum[r][0]);
            sum[r][1] = _mm256_fmadd_ps(x, high, sum[r][1]);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < 6; ++r) {
        _mm256_storeu_ps(c + 16 * r, sum[r][0]);
        _mm256_storeu_ps(c + 16 * r + 8, sum[r][1]);
    }
}
void fp32(size_t calls, size_t k, const float *a, const float *b, float *c)
{
    for (size_t i = 0; i < calls; ++i) {
        tile(k, a, b, c);
        __asm__ volatile("" : : : "memory");
    }
}
"""


@dataclass(frozen=True)
class Executed:
    """Instructions of one NEON microkernel's steady loop, per 128 multiply-accumulates."""

    kernel: str
    compiler: str
    executed: float
    model_ops: float
    model_loads: float
    over_a_step: float


@dataclass(frozen=True)
class Speed:
    """Medians of one AVX2 microkernel and of the fp32 loop beside it."""

    kernel: str
    gmac_per_second: float
    fp32_gmac_per_second: float
    rounds: int

    @property
    def ratio(self) -> float:
        return self.gmac_per_second / self.fp32_gmac_per_second


def operands(kernel: MatmulKernel, runner: Runner, steps: int) -> list[np.ndarray]:
    """Packed acts and wgts of one tile, its starts and the tile."""
    k, rows, columns = (f(kernel) for f in (lambda x: x.entry.kernel.k_step * steps, _rows, _columns))
    words = (runner.call(f"{kernel.name}_act_bytes", rows, k), runner.call(f"{kernel.name}_wgt_bytes", k, columns))
    packed = [np.zeros(-(-n // 8), np.uint64) for n in words]
    return [*packed, np.zeros(columns, np.int32), np.zeros(rows, np.int32), np.zeros(rows * columns, np.int32)]


def _rows(kernel: MatmulKernel) -> int:
    return kernel.entry.kernel.rows


def _columns(kernel: MatmulKernel) -> int:
    return kernel.entry.kernel.columns


def executed(kernel: MatmulKernel, compiler: Compiler) -> Executed:
    """Count two numbers of steps between which nothing is flushed."""
    isa, program = load(kernel.spec.isa), kernel.entry.kernel
    low, high = STEPS
    if min(p.flush_every for p in program.passes) < high:
        raise SpecError(f"{kernel.name} flushes within {high} steps; its steady loop cannot be told apart")
    runner = build.runner(isa, build.compile_for(isa, kernel.files, compiler=compiler), count=True)
    counts = []
    for steps in STEPS:
        runner.call(kernel.name, steps, *operands(kernel, runner, steps), program.columns)
        if runner.instructions is None:
            raise ToolError(f"instructions are not counted {runner.description}")
        counts.append(runner.instructions)
    runner.close()
    units = program.rows * program.columns * program.k_step / 128
    each = (counts[1] - counts[0]) / (high - low)
    ops, loads = cost.loop_ops_per_128_mac(isa, program), cost.loads_per_128_mac(isa, program)
    return Executed(kernel.name, compiler.name, each / units, ops, loads, each - (ops + loads) * units)


def neon(widths: list[tuple[int, int]]) -> list[Executed]:
    with emulated():
        compilers = build.compilers(load("neon"))
        if not compilers:
            raise ToolError("no compiler for AArch64: `bitsynth doctor` says what to install")
        kernels = [bitsynth.get_kernel("neon", x, y) for x, y in widths]
        return [executed(kernel, compiler) for kernel in kernels for compiler in compilers]


def avx2(widths: list[tuple[int, int]], rounds: int) -> list[Speed]:
    if absent := host.missing(load("avx2").table) or ([] if "fma" in host.features() else ["fma"]):
        raise ToolError(f"this processor lacks {', '.join(absent)}, and AVX2 is not emulated")
    fp32, kernels = fma_loop(), [bitsynth.get_kernel("avx2", x, y) for x, y in widths]
    jobs = [kernel_loop(kernel) for kernel in kernels]
    mine: list[list[float]] = [[] for _ in jobs]
    theirs: list[list[float]] = [[] for _ in jobs]
    for _ in range(rounds):
        for n, job in enumerate(jobs):
            mine[n].append(job())
            theirs[n].append(fp32())
    medians = zip(map(statistics.median, mine), map(statistics.median, theirs), strict=True)
    return [Speed(k.name, own, other, rounds) for k, (own, other) in zip(kernels, medians, strict=True)]


def kernel_loop(kernel: MatmulKernel) -> Callable[[], float]:
    isa, program = load(kernel.spec.isa), kernel.entry.kernel
    files = {**kernel.files, "drive.c": f'#include "{kernel.name}.h"\n' + DRIVER.replace("NAME", kernel.name)}
    runner = build.runner(isa, build.compile_for(isa, files))
    steps = -(-K // program.k_step)
    given = operands(kernel, runner, steps)
    macs = program.rows * program.columns * steps * program.k_step
    return timed(lambda n: runner.call("drive", n, steps, *given, program.columns), macs)


def fma_loop() -> Callable[[], float]:
    isa = load("avx2")
    runner = build.runner(isa, build.compile_for(isa, {"fp32.c": FMA}, flags=["-mfma"]))
    a, b, c = (np.ones(n, np.float32) for n in (FMA_ROWS * K, FMA_COLUMNS * K, FMA_ROWS * FMA_COLUMNS))
    runner.call("fp32", 1, K, a, b, c)
    if np.any(c != K):
        raise ToolError(f"the fp32 loop sums {K} ones to {c}")
    return timed(lambda n: runner.call("fp32", n, K, a, b, c), FMA_ROWS * FMA_COLUMNS * K)


def timed(call: Callable[[int], int], macs: int) -> Callable[[], float]:
    """Multiply-accumulates a nanosecond over `CALLS` calls, warmed up."""
    call(CALLS)

    def once() -> float:
        start = time.thread_time_ns()
        call(CALLS)
        return macs * CALLS / (time.thread_time_ns() - start)

    return once


def show(counts: list[Executed], speeds: list[Speed]) -> Iterator[str]:
    if counts:
        yield "instructions executed under emulation, per 128 multiply-accumulates of the steady loop"
        titles = ["kernel", "compiler", "executed", "model ops", "loads", "ops + loads", "over, a step"]
        yield report.columns(titles, [_cells(c) for c in counts])
    if speeds:
        yield f"multiply-accumulates a second of CPU time, K = {K} in L1, medians of {speeds[0].rounds} rounds"
        titles = ["kernel", "GMAC/s", "fp32 GMAC/s", "ratio"]
        fields = ((s.kernel, s.gmac_per_second, s.fp32_gmac_per_second, s.ratio) for s in speeds)
        yield report.columns(titles, [(name, *(f"{x:.1f}" for x in numbers)) for name, *numbers in fields])


def _cells(c: Executed) -> list[str]:
    figures = (c.executed, c.model_ops, c.model_loads, c.model_ops + c.model_loads)
    return [c.kernel, c.compiler, *(f"{x:.2f}" for x in figures), f"{c.over_a_step:.1f}"]


def widths(text: str) -> tuple[int, int]:
    """The bits in `A2W1`."""
    match = re.fullmatch(r"[aA]([1-4])[wW]([1-4])", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is none of A1W1 to A4W4")
    return int(match[1]), int(match[2])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isa", choices=["avx2", "neon"], action="append", help="both by default")
    parser.add_argument("--only", type=widths, action="append", help="one width pair such as A2W1; all by default")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    isas, pairs = given.isa or ["neon", "avx2"], given.only or WIDTHS
    counts = neon(pairs) if "neon" in isas else []
    speeds = avx2(pairs, max(1, given.rounds)) if "avx2" in isas else []
    setting = report.setting(*(load(i).table.arch for i in isas))
    if given.json:
        rows = {"neon": [asdict(c) for c in counts], "avx2": [{**asdict(s), "ratio": s.ratio} for s in speeds]}
        print(json.dumps({"setting": setting, **rows}, indent=1))
        return 0
    print("\n\n".join([report.heading(setting), *show(counts, speeds)]))
    return 0


if __name__ == "__main__":
    report.run(main)

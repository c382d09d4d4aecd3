"""Every cached kernel of an instruction set and its baselines: timed here, or counted under an emulator.

The figures are for 128 multiply-accumulates: core cycles if this processor runs
the code itself, executed instructions if an emulator does. Counts are not times.

`cached_kernels` finds the kernels that a benchmark is about.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bitsynth.bench import loop_times
from bitsynth.bench.loops import TimedLoop, baseline_loop, clock_loop, kernel_loop
from bitsynth.bench.statistics import Summary, rank_correlation
from bitsynth.errors import BitsynthError, SpecError, ToolError
from bitsynth.host.placement import cpu_here, has_times
from bitsynth.isa import baseline_loops
from bitsynth.isa.load import Isa, load
from bitsynth.kernel.names import KernelName
from bitsynth.matmul import MatmulKernel
from bitsynth.progress import Progress
from bitsynth.run.runner import runner_for
from bitsynth.schedule.quickest import scoreboard
from bitsynth.store.files import folders
from bitsynth.store.matmul import MATMUL
from bitsynth.toolchain.compiler import get_preferred, probe


@dataclass(frozen=True)
class CachedKernels:
    """Kernels of one instruction set, each once with its variants, and the reasons why other files hold none."""

    isa: str
    kernels: tuple[tuple[MatmulKernel, str], ...]
    problems: tuple[BitsynthError, ...]


def cached_kernels(isa: str, act_bits: Collection[int] = (), w_bits: Collection[int] = ()) -> CachedKernels:
    """Return the cached kernels of `isa`, of the given widths if any, each as it is quickest on this processor.

    Each certificate is checked again. SpecError if there is not one file.
    """
    homes = [folder / isa for folder in folders()]
    files = [
        p for p in MATMUL.every() if any(p.is_relative_to(home) for home in homes) and _has_widths(p, act_bits, w_bits)
    ]
    if not files:
        widths = f" A{_either(act_bits)}W{_either(w_bits)}" if act_bits or w_bits else ""
        example = f"--act-bits {min(act_bits, default=2)} --w-bits {min(w_bits, default=1)}"
        raise SpecError(f"no cached kernel{widths} for {isa}; `bitsynth synth --isa {isa} {example}` makes one")
    distinct: list[MatmulKernel] = []
    variants: list[list[str]] = []
    problems: list[BitsynthError] = []
    cpu = cpu_here(load(isa).table)
    for path in files:
        try:
            kernel = MatmulKernel(MATMUL.load(path), KernelName.parse(path.stem).spec).on(cpu)
        except BitsynthError as why:
            problems.append(why)
            continue
        variant = [] if path.parent.name == isa else [path.parent.name]
        same = next((k for k, have in enumerate(distinct) if have.entry.kernel == kernel.entry.kernel), None)
        if same is None:
            distinct.append(kernel)
            variants.append(variant)
        else:
            variants[same] += variant
    return CachedKernels(isa, tuple(zip(distinct, map(", ".join, variants), strict=True)), tuple(problems))


def _has_widths(path: Path, act_bits: Collection[int], w_bits: Collection[int]) -> bool:
    """Return whether the widths are wanted. A file whose name tells no widths is wanted, so that it is reported."""
    try:
        spec = KernelName.parse(path.stem).spec
    except SpecError:
        return True
    return (not act_bits or spec.act.bits in act_bits) and (not w_bits or spec.wgt.bits in w_bits)


def _either(bits: Collection[int]) -> str:
    return "|".join(map(str, sorted(bits))) or "*"


MACS = 128
COUNT_MODEL = "ops+loads"
Unit = Literal["cycles", "instructions"]


@dataclass(frozen=True)
class KernelRow:
    """A kernel or a baseline, on operands of `operand_bytes` that are `k` deep: `macs` a call.

    `per_128_mac` is in the report's unit, `ratios` how many times less that is than each
    baseline's. `model` is what the cost model says of a kernel, `scoreboard` what it is predicted to take, in its
    quickest form, on the processors with issue rules, `peak` the multiply-accumulates a cycle that a CPU allows a
    baseline. `gmac_per_second` is None if nothing was timed.
    """

    name: str
    what: str
    act_bits: int | None
    w_bits: int | None
    tile: str
    k: int
    macs: int
    operand_bytes: int
    per_128_mac: Summary
    gmac_per_second: Summary | None
    ratios: Mapping[str, Summary]
    model: Mapping[str, float]
    peak: Mapping[str, float]
    scoreboard: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelsReport:
    """One instruction set. `rank_correlation` is Spearman's, of a model with the measurements.

    `left_out` says why a baseline is not there, `problems` why a kernel is not.
    """

    isa: str
    unit: Unit
    run: str
    compiler: str
    clock_ghz: Summary | None
    baselines: tuple[KernelRow, ...]
    kernels: tuple[KernelRow, ...]
    rank_correlation: Mapping[str, float | None]
    left_out: Mapping[str, str]
    problems: tuple[BitsynthError, ...]


@dataclass(frozen=True, eq=False)
class _Job:
    """A loop, and the fields of its row besides the measurements."""

    loop: TimedLoop
    what: str
    tile: str
    act_bits: int | None = None
    w_bits: int | None = None
    model: Mapping[str, float] = field(default_factory=dict)
    peak: Mapping[str, float] = field(default_factory=dict)
    scoreboard: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Result:
    """The figure of a call of every loop: one row a loop, one column a sample."""

    per_call: NDArray[Any]
    nanoseconds: NDArray[Any] | None = None
    clock_ghz: Summary | None = None


def measure(cached: CachedKernels, rounds: int, progress: Progress) -> KernelsReport:
    """Time the kernels if this processor runs the set, else count their instructions.

    ToolError if they can be neither timed nor counted, or not compiled.
    """
    isa = load(cached.isa)
    timed = has_times(isa.table)
    compiler = get_preferred(isa)
    run = runner_for(isa, probe(isa, compiler), count=not timed).description
    baselines, left_out = _baselines(isa, not timed)
    mine, problems = _kernels(cached, not timed, progress)
    if not mine:
        raise (*cached.problems, *problems)[0]
    loops = [job.loop for job in (*baselines, *mine)]
    result = _time(isa, loops, rounds, progress) if timed else _count(loops, progress)
    rows = _rows([*baselines, *mine], len(baselines), result)
    kernels = tuple(rows[len(baselines) :])
    models = [m for m in isa.table.cpu if all(m in r.model for r in kernels)] if timed else [COUNT_MODEL]
    return KernelsReport(
        isa.name,
        "cycles" if timed else "instructions",
        run,
        compiler.version,
        result.clock_ghz,
        tuple(rows[: len(baselines)]),
        kernels,
        {m: _rank_correlation([r for r in kernels if m in r.model], m) for m in models},
        left_out,
        (*cached.problems, *problems),
    )


def _rank_correlation(rows: Sequence[KernelRow], model: str) -> float | None:
    """Return the rank correlation of the model with the measurements of `rows`, which are those it knows."""
    return rank_correlation([r.model[model] for r in rows], [r.per_128_mac.median for r in rows])


def _baselines(isa: Isa, count: bool) -> tuple[list[_Job], dict[str, str]]:
    """Return the baselines that run, and why the others do not."""
    jobs: list[_Job] = []
    left_out: dict[str, str] = {}
    for b in baseline_loops.load(isa):
        try:
            jobs.append(_Job(baseline_loop(b, count=count), b.table.doc, b.tile, peak=b.table.peak))
        except ToolError as why:
            left_out[b.name] = str(why)
    return jobs, left_out


def _kernels(cached: CachedKernels, count: bool, progress: Progress) -> tuple[list[_Job], list[BitsynthError]]:
    """Return the kernels that run, and the errors of the others."""
    jobs: list[_Job] = []
    problems: list[BitsynthError] = []
    for n, (kernel, variant) in enumerate(cached.kernels):
        progress("compiling", n, len(cached.kernels))
        try:
            loop = kernel_loop(kernel, count=count)
        except ToolError as why:
            problems.append(ToolError(f"{kernel.name}: {why}"))
            continue
        jobs.append(_kernel_job(kernel, variant, loop))
    return jobs, problems


def _kernel_job(kernel: MatmulKernel, variant: str, loop: TimedLoop) -> _Job:
    name, cost = KernelName.parse(kernel.name), kernel.cost
    what = f"{kernel.entry.method}, {variant}" if variant else kernel.entry.method
    tile = f"{name.rows}x{name.columns}x{name.k_step}"
    model = {COUNT_MODEL: cost.ops_per_128_mac + cost.loads_per_128_mac, **cost.cycles}
    board = scoreboard(kernel.entry.kernel, cost.cycles)
    return _Job(loop, what, tile, name.spec.act.bits, name.spec.wgt.bits, model, scoreboard=board)


def _time(isa: Isa, loops: Sequence[TimedLoop], rounds: int, progress: Progress) -> _Result:
    samples = loop_times.measure_interleaved(loops, clock_loop(isa), rounds, progress)
    return _Result(samples.cycles, samples.nanoseconds, Summary.of(samples.clock))


def _count(loops: Sequence[TimedLoop], progress: Progress) -> _Result:
    counts = []
    for n, loop in enumerate(loops):
        progress("counting", n, len(loops))
        counts.append([loop.instructions()])
        loop.runner.close()
    return _Result(np.array(counts, float))


def _rows(jobs: Sequence[_Job], baselines: int, result: _Result) -> list[KernelRow]:
    """Return a row for each job, each compared with the first `baselines` of them sample by sample."""
    macs = np.array([[job.loop.macs] for job in jobs])
    costs = result.per_call / macs * MACS
    speeds = None if result.nanoseconds is None else macs / result.nanoseconds
    return [
        KernelRow(
            name=job.loop.name,
            what=job.what,
            act_bits=job.act_bits,
            w_bits=job.w_bits,
            tile=job.tile,
            k=job.loop.k,
            macs=job.loop.macs,
            operand_bytes=job.loop.operand_bytes,
            per_128_mac=Summary.of(costs[n]),
            gmac_per_second=None if speeds is None else Summary.of(speeds[n]),
            ratios={jobs[r].loop.name: Summary.of(costs[r] / costs[n]) for r in range(baselines)},
            model=job.model,
            peak=job.peak,
            scoreboard=job.scoreboard,
        )
        for n, job in enumerate(jobs)
    ]

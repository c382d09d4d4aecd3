"""The plan of a layer: its kernel, tile and schedule; a tuned one if known, else the fastest by the cost model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import msgspec

from bitsynth.errors import NoKernel, SpecError
from bitsynth.host.placement import widest
from bitsynth.isa.load import Isa, load, load_table, run_by
from bitsynth.kernel.program import Kernel
from bitsynth.layers import depthwise
from bitsynth.layers.candidates import (
    CHANNELS,
    Candidate,
    Fits,
    cached_entry,
    candidates,
    cpu_for,
    home_of,
    require_cpu,
    runs_here,
    sets_for,
)
from bitsynth.layers.cost import Estimate
from bitsynth.layers.depthwise import DepthwiseEstimate
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.pool import check_threads
from bitsynth.layers.schedule import DEPTHWISE, LayerSchedule
from bitsynth.layers.scheduled_kernel import LayerKernel, scheduled_kernel, with_quickest_rows
from bitsynth.layers.spec import LayerSpec
from bitsynth.layers.tuned import TuningTask, find_tuned
from bitsynth.layers.widening import OF_BYTES, find_problem, list_widenings, widen_operands
from bitsynth.progress import Progress, to_stderr
from bitsynth.schedule import predicted
from bitsynth.schedule.quickest import pipeline_for, quickest
from bitsynth.spec.matmul import INT32_MAX, MatmulSpec, affine
from bitsynth.spec.options import KernelOptions, synth_command
from bitsynth.store.matmul import MATMUL

_PREDICTED_WITHIN = 1.5
"""Cycles are predicted for methods within this factor of the best estimate; shipped kernels are 0.8 to 1.25."""

_LAST_ROW = 1.05
"""Factor of the predicted cycles of a kernel whose last row has a scalar pass.

Compiled by gcc 12.2 it takes 3 % more than is predicted, where others take 1 % (A1W1, K = 576), and more in short sums.
"""


def choose_by_prediction(ranked: Sequence[Estimate]) -> Estimate:
    """Return the best of estimates ranked by cycles: the first, or a close one with fewer predicted cycles."""
    firsts = {_kind(x.candidate): x for x in reversed(ranked)}.values()
    close = [each for each in firsts if each.cycles <= _PREDICTED_WITHIN * ranked[0].cycles]
    if len(close) == 1 or not all(has_rules(each) for each in close):
        return ranked[0]
    return min(
        map(predict, close),
        key=lambda each: each.cycles * (_LAST_ROW if each.candidate.entry.kernel.scalar_pass else 1),
    )


def _kind(candidate: Candidate) -> tuple[str, int, str]:
    """Return the properties that bounds do not rank: method, step length, processor-specific kernel."""
    return candidate.method, candidate.kernel_options.k_step, candidate.model


def has_rules(estimate: Estimate) -> bool:
    """Return whether the processor of an estimate has issue rules, by which cycles are predicted."""
    return load_table(estimate.candidate.isa).cpu[estimate.cpu_name].issue is not None


def predict(estimate: Estimate) -> Estimate:
    """Return the estimate with its sums on the scoreboard, and as many of its rows as are quickest there."""
    kernel = msgspec.structs.replace(estimate.candidate.entry.kernel, rows=estimate.rows)
    return replace(
        estimate, rows=quickest(kernel, estimate.cpu_name).rows, accumulation_model=_predict_accumulation, counted=True
    )


def _predict_accumulation(isa: Isa, kernel: Kernel, cpu: str, depth: int) -> float:
    """Return cycles per 128 multiply-accumulates as the kernel is run on `cpu`."""
    return predicted.cycles_per_128_mac(isa, pipeline_for(kernel, cpu), cpu, depth)


OPTIONS = KernelOptions(channels=CHANNELS[0])
"""Options of a kernel that any layer can use: the cheapest of all methods."""


def advice(spec: LayerSpec, isa: str) -> str:
    """Return advice for layers whose widths have no kernel on `isa`, which may be "auto"."""
    command = synth_command(spec.product(widest(isa)), OPTIONS)
    return f"run `{command}`, or make the layer with solve=True"


def solve_missing(spec: LayerSpec, isa: str, schedule: LayerSchedule | None, progress: Progress) -> None:
    """Find, prove and cache the kernel of `schedule`, or one for `spec` if it has none on `isa`.

    NoKernel if no sketch has one, Undecided if the solver's budget is spent.
    """
    if schedule:
        wanted = schedule.isa, schedule.kernel_options
        spec = widen_operands(spec, schedule.operands)
        is_solved = cached_entry(schedule, spec.act, spec.wgt) is not None
    else:
        wanted = widest(isa), OPTIONS
        is_solved = any(True for _ in candidates(spec.act, spec.wgt, isa))
    if is_solved:
        return
    progress(f"solving {spec.act} x {spec.wgt} for layers on {wanted[0]}")
    from bitsynth.synth.synthesize import synthesize

    synthesis = synthesize(spec.product(wanted[0]), wanted[1], progress=progress)
    MATMUL.store(synthesis.proved_entry)


GIVEN = "as given"
_KEPT: ContextVar[dict[Any, LayerPlan] | None] = ContextVar("kept plans", default=None)
"""Memo of plans while `plans_kept` is entered, by the arguments of `plan`."""


@dataclass(frozen=True)
class LayerPlan:
    """A layer decided: the schedule that runs `spec`, its origin in words, and the cached kernel that it names.

    The decision was made for `isa`, `threads` and `cpu`, "" if the processor is not known. `computed` is `spec` as the
    kernel sees it, with wider operands if the schedule says so. SpecError if the kernel is not cached, or its sums may
    leave int32.
    """

    spec: LayerSpec
    schedule: LayerSchedule
    origin: str = GIVEN
    isa: str = "auto"
    threads: int = 1
    cpu: str = ""
    computed: LayerSpec = field(init=False, compare=False, repr=False)
    kernel: LayerKernel = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_threads(self.threads)
        object.__setattr__(self, "computed", widen_operands(self.spec, self.schedule.operands))
        kernel = scheduled_kernel(self.schedule, self.computed.act, self.computed.wgt, self.cpu)
        object.__setattr__(self, "kernel", kernel)
        if self.spec.geometry.depth > self.k_max:
            spec = self.product
            raise SpecError(
                f"sums of {self.spec.geometry.depth} products may leave int32; "
                f"{spec.act} x {spec.wgt} takes {self.k_max}"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the decisions: the kernel is looked up, and checked, by whoever unpickles it."""
        return _rebuild, (self.spec, self.schedule, self.origin, self.isa, self.threads, self.cpu)

    @property
    def product(self) -> MatmulSpec:
        """The product that is computed: the kernel's, but for a zero point of weights, which that does not know."""
        return self.computed.product(self.kernel.spec.isa)

    @property
    def k_max(self) -> int:
        """The most products in a sum, IC / groups * KH * KW, for which no sum can leave int32."""
        spec = self.product
        return (INT32_MAX >> affine(spec).shift) // spec.max_product

    @property
    def processor(self) -> str:
        """The processor whose cycles were counted: `cpu`, or the set's first processor with the needed features."""
        processors = self.kernel.cost.cycles
        return self.cpu if self.cpu in processors else next(iter(processors))


def expected_cycles(plan: LayerPlan) -> float:
    """Return the cycles that the cost model expects of a plan's accumulators, packing included, for a typical image."""
    spec, schedule, kernel = plan.computed, plan.schedule, plan.kernel
    if isinstance(kernel, depthwise.DepthwiseKernel):
        return DepthwiseEstimate(kernel, spec, plan.processor).cycles
    options = KernelOptions(method=schedule.method, channels=schedule.channels, k_step=schedule.k_step)
    candidate = Candidate(kernel.entry, options, schedule.operands)
    algorithm = "im2col" if schedule.gather == "im2col" else "direct"
    rows = schedule.rows or kernel.entry.kernel.rows
    return Estimate(candidate, plan.spec, algorithm, rows, plan.processor, schedule.columns_first).cycles


def plan(
    spec: LayerSpec,
    *,
    isa: str = "auto",
    cpu: str = "",
    threads: int = 1,
    schedule: LayerSchedule | None = None,
    solve: bool | Progress = False,
) -> LayerPlan:
    """Decide how `spec` is run on `isa`, or ("auto") on the best set this processor has, by `threads` threads.

    It is to be fast on the processor `cpu`; if that is "" on the one its schedule was tuned on, else on this one, if it
    runs the set and is known, else on the first that the set names. Nothing is compiled or run. A `schedule` of your
    own has an instruction set that the processors of `isa` run; with "auto" it may have any. To `solve` is to find,
    prove and cache a kernel if none is cached that fits, which takes minutes at times; a `Progress` hears of it, else
    stderr. NoKernel if there is none then, SpecError for bad input.
    """
    check_threads(threads)
    if not isinstance(isa, str):
        load(isa)
    _check_schedule(schedule, isa)
    require_cpu(isa, cpu)
    if type(solve) is not bool and not callable(solve):
        raise SpecError(f"solve is True, False or a function that shows progress, not {solve!r}")
    if solve is not False and not _is_depthwise(spec, isa, schedule):
        solve_missing(spec, isa, schedule, to_stderr if solve is True else solve)
    if schedule:
        return LayerPlan(spec, schedule, GIVEN, isa, threads, cpu or cpu_for(isa))
    plans, asked = _KEPT.get(), (spec, isa, cpu, threads)
    if plans is not None and asked in plans:
        return plans[asked]
    chosen, origin, where = _choose(spec, isa, threads, cpu)
    layer_plan = LayerPlan(spec, chosen, origin, isa, threads, where)
    if plans is not None:
        plans[asked] = layer_plan
    return layer_plan


@contextmanager
def plans_kept() -> Iterator[None]:
    """Decide once for layers that are alike, as a network has them by the thousand, while this is entered.

    Kernels that are cached meanwhile are not taken for these. Entered again inside, it remembers what was decided.
    """
    if _KEPT.get() is not None:
        yield
        return
    token = _KEPT.set({})
    try:
        yield
    finally:
        _KEPT.reset(token)


def _is_depthwise(spec: LayerSpec, isa: str, schedule: LayerSchedule | None) -> bool:
    """Return whether the layer runs on a depthwise kernel, or can without a schedule of its own."""
    return schedule.method == DEPTHWISE if schedule else bool(depthwise.list_estimates(spec, isa))


def _rebuild(spec: LayerSpec, schedule: LayerSchedule, origin: str, isa: str, threads: int, cpu: str = "") -> LayerPlan:
    """Return the plan that was pickled, or another one if this machine does not have its kernel, or cannot run that.

    With "auto" that one is for this machine's processor.
    """
    asked = "" if isa == "auto" else cpu
    if schedule.method == DEPTHWISE:
        given = LayerPlan(spec, schedule, origin, isa, threads, cpu) if origin == GIVEN else None
        return given or plan(spec, isa=isa, cpu=asked, threads=threads)
    wide = widen_operands(spec, schedule.operands)
    entry = cached_entry(schedule, wide.act, wide.wgt)
    if origin == GIVEN or (entry and schedule.isa in sets_for(isa) and runs_here(entry, isa)):
        return LayerPlan(spec, schedule, origin, isa, threads, cpu)
    return plan(spec, isa=isa, cpu=asked, threads=threads)


def _check_schedule(schedule: Any, isa: str) -> None:
    """Raise SpecError if the object is no schedule, or one for a set that the processors of `isa` do not run."""
    if not isinstance(schedule, LayerSchedule | None):
        raise SpecError(f"a schedule is a LayerSchedule, not {schedule!r}")
    if schedule and isa not in ("auto", schedule.isa) and schedule.isa not in (sets := run_by(load_table(isa))):
        raise SpecError(f"isa is {isa}, the schedule's {schedule.isa}; want a schedule of {' or '.join(sets)}")


def _choose(spec: LayerSpec, isa: str, threads: int, cpu: str) -> tuple[LayerSchedule, str, str]:
    """Return the tuned schedule, else the one for one thread, else the default; its origin in words; its processor."""
    default, rows, usual = default_schedule(spec, isa, cpu=cpu), spec.out_rows, cpu or cpu_for(isa)
    if default.method == DEPTHWISE:
        return default, "default", usual
    here = home_of(default.isa) if isa == "auto" else isa
    task = TuningTask(here, spec.act.bits, spec.wgt.bits, spec.geometry, spec.typical_image, threads)
    passed_over: dict[str, None] = {}
    for n in dict.fromkeys((threads, 1)):
        for record, why_not in find_tuned(msgspec.structs.replace(task, threads=n), cpu):
            if missed := why_not or _misfit(spec, record.schedule):
                passed_over[f"what was tuned on {record.processor} {missed}"] = None
                continue
            origin = f"tuned on {record.processor}, {record.ratio:.2f} of the default's time"
            where = cpu or record.cpu
            if n == threads:
                return record.schedule, origin, where
            return record.schedule.among(threads, rows), f"{origin} with one thread", where
    return default.among(threads, rows), "; ".join(["default", *passed_over]), usual


def _misfit(spec: LayerSpec, schedule: LayerSchedule) -> str:
    """Return why a layer of these widths, but of other encodings, does not have the schedule; "" if it does."""
    why = find_problem(spec, schedule.operands) if schedule.operands else None
    return f"has wider operands: {why}" if why else ""


def default_schedule(spec: LayerSpec, isa: str, threads: int = 1, cpu: str = "") -> LayerSchedule:
    """Return the schedule of fewest expected cycles of `cpu`, or this processor; raise NoKernel without a kernel.

    Cycles of schedules are estimated; if methods are close, their cycles are predicted.
    """
    cpu = cpu or cpu_for(isa)
    estimates: list[Estimate | DepthwiseEstimate] = [*depthwise.list_estimates(spec, isa, cpu=cpu)[:1]]
    try:
        every = rank(spec, isa, cpu=cpu)
    except NoKernel:
        if not estimates:
            raise
    else:
        estimates.append(choose_by_prediction(every))
    best = with_quickest_rows(spec, min(estimates, key=lambda x: x.cycles).schedule, cpu)
    return best.among(threads, spec.out_rows)


def default_of(task: TuningTask) -> LayerSchedule:
    """Return the schedule that a task is compared with: what its layer has without tuning."""
    return default_schedule(task.layer(), task.isa, task.threads)


def rank(spec: LayerSpec, isa: str, fits: Fits | None = None, cpu: str = "") -> list[Estimate]:
    """Return all ways to run `spec` by cached kernels that `fits`, fastest estimate first; raise NoKernel if none.

    By default kernels fit that run here (`candidates`). Kernels of fip are only for out-of-order processors whose tiles
    are chosen by predicted cycles. Cycles are counted on `cpu`, or on the set's first processor if the set lacks `cpu`.
    """
    every = [*candidates(spec.act, spec.wgt, isa, fits), *_of_wider_operands(spec, isa, fits)]
    usable = [x for x in every if cpu in x.entry.cost.cycles or cpu not in load_table(x.isa).cpu]
    usable = [x for x in usable if x.model in ("ops", cpu) and predicted.serves(load(x.isa), x.method, cpu)]
    if not usable:
        where = isa if isa != "auto" else "any instruction set this processor runs"
        raise NoKernel(f"no kernel of {spec.act} x {spec.wgt} for layers on {where}; {advice(spec, isa)}")
    pixels = prod(spec.geometry.output(*spec.typical_image))
    estimates = [
        Estimate(candidate, spec, algorithm, rows, cpu)
        for candidate in usable
        for algorithm in conv_algorithms(spec.geometry)
        for rows in tile_rows(candidate.entry.kernel, pixels)
    ]
    # Otherwise tiles of columns share the pointers to their pixels, and accumulation hides the bytes that are read.
    far = [x for x in estimates if x.column_tiles > 1 and (x.loads_block or x.streams_weights)]
    estimates += [replace(x, columns_first=True) for x in far]
    return sorted(estimates, key=lambda x: x.cycles)


def _of_wider_operands(spec: LayerSpec, isa: str, fits: Fits | None) -> Iterator[Candidate]:
    """Yield the kernels of wider operands, but none that differs from an earlier one in its operands alone."""
    seen = set()
    for operands, wide in list_widenings(spec):
        for candidate in candidates(wide.act, wide.wgt, isa, fits, OF_BYTES):
            same = candidate.isa, candidate.kernel_options, *candidate.entry.cost.cycles.values()
            if same not in seen:
                seen.add(same)
                yield replace(candidate, operands=operands)


def conv_algorithms(geometry: Geometry) -> tuple[str, ...]:
    """Return the places rows may come from: a window of one pixel is its own patch."""
    if geometry.kernel == (1, 1):
        return ("direct",) if geometry.stride == (1, 1) else ("im2col",)
    return "direct", "im2col"


def tile_rows(kernel: Kernel, pixels: int) -> list[int]:
    """Return the rows of a tile to try: fewer waste less of an image's last tile, but load weights more often.

    An image of few pixels, such as a dense layer's, fills a tile that has no more rows than pixels.
    """
    fewest = max(1, 3 * kernel.rows // 4)
    tried = [*([pixels] if pixels < fewest else []), *range(fewest, kernel.rows + 1)]
    return [rows for rows in tried if rows % kernel.together == 0]

"""Surveys the cost of every pair of widths on a processor: the best kernel of each method, compared with int8 and fp32.

Kernels are planned and priced by the cost model; nothing is proved, and nothing is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import msgspec

from bitsynth.errors import ToolError
from bitsynth.host import features
from bitsynth.isa import baseline_loops
from bitsynth.isa.load import Isa, load
from bitsynth.processes.worker import WorkerEnded, answers
from bitsynth.progress import Progress, silent
from bitsynth.schedule import predicted
from bitsynth.spec.options import METHODS, model_of
from bitsynth.synth import planner
from bitsynth.synth.planner import Job, PlannedKernel, plan
from bitsynth.synth.synthesize import put_taken_first

MACS = 128
INT8 = "int8"


@dataclass(frozen=True)
class PeakBaseline:
    """The fastest loop of a kind on the processor, at its peak of `peak` multiply-accumulates a cycle."""

    name: str
    what: str
    peak: float
    source: str

    @property
    def cycles(self) -> float:
        """Cycles per 128 multiply-accumulates."""
        return MACS / self.peak


@dataclass(frozen=True)
class Cell:
    """One pair of widths: the plan that synthesis takes, others with a kernel, cheapest first, and those without."""

    act_bits: int
    w_bits: int
    plans: tuple[PlannedKernel, ...]

    @property
    def best(self) -> PlannedKernel | None:
        """The plan that synthesis takes, None if there is none."""
        return next((p for p in self.plans if p.cycles is not None), None)

    def times(self, baseline: PeakBaseline | None) -> float | None:
        """Return the speed of the best kernel relative to the baseline's; None if either is unknown."""
        best = self.best
        return baseline.cycles / best.cycles if baseline and best and best.cycles else None


@dataclass(frozen=True)
class Map:
    """The cells of an instruction set on one of its processors, and the baselines that they are compared with."""

    isa: str
    cpu: str
    int8: PeakBaseline | None
    fp32: PeakBaseline | None
    cells: tuple[Cell, ...]

    def winner(self, cell: Cell) -> tuple[str, float] | None:
        """Return the fastest way and its cycles: a method, or int8 if that is faster; None if neither is known."""
        times = cell.times(self.int8)
        if self.int8 and (times is None or times < 1):
            return INT8, self.int8.cycles
        best = cell.best
        return (best.method, best.cycles) if best and best.cycles else None


def survey(
    isa_name: str,
    cpu: str = "",
    act_bits: Sequence[int] = range(1, 9),
    w_bits: Sequence[int] = range(1, 5),
    *,
    methods: Sequence[str] = METHODS,
    workers: int | None = None,
    progress: Progress = silent,
) -> Map:
    """Plan a kernel of each method for every pair, by default for the set's first processor, on all cores.

    Of fip for processors that synthesis tries it for. One worker works in this process. `progress` hears how many of
    all plans are done. SpecError for a set, a processor or bits that do not exist.
    """
    isa = load(isa_name)
    cpu = model_of(isa, cpu) or next(iter(isa.table.cpu))
    tried = [m for m in methods if predicted.serves(isa, m, cpu)]
    jobs = [(isa_name, cpu, a, w, m) for m in tried for w in sorted(w_bits) for a in sorted(act_bits)]
    for job in jobs:
        planner.spec(job)
    plans: list[PlannedKernel] = []
    for planned in _plan_jobs(jobs, workers or features.cores()):
        plans.append(planned)
        progress(f"{len(plans)} of {len(jobs)} plans", len(plans), len(jobs))
    cells = _cells(plans, predicted.compares(isa, cpu))
    return Map(isa_name, cpu, _baseline(isa, cpu, "int8"), _baseline(isa, cpu, "fp32"), cells)


def _baseline(isa: Isa, cpu: str, function: str) -> PeakBaseline | None:
    """Return the fastest baseline of a kind with a peak on the processor."""
    candidates = [b for b in baseline_loops.load(isa) if b.table.function == function and cpu in b.table.peak]
    best = max(candidates, key=lambda b: b.table.peak[cpu], default=None)
    return PeakBaseline(best.name, best.table.doc, best.table.peak[cpu], best.table.source) if best else None


def _cells(plans: Sequence[PlannedKernel], by_scoreboard: bool) -> tuple[Cell, ...]:
    """Return plans by widths, in order; plans of one pair of widths are ranked `by_scoreboard` or by bounds."""

    def widths(p: PlannedKernel) -> tuple[int, int]:
        return p.act_bits, p.w_bits

    by_widths = groupby(sorted(plans, key=widths), key=widths)
    return tuple(Cell(a, w, _rank(list(some), by_scoreboard)) for (a, w), some in by_widths)


def _rank(plans: Sequence[PlannedKernel], by_scoreboard: bool) -> tuple[PlannedKernel, ...]:
    """Return plans of one pair of widths: first the one that synthesis takes, last those without a kernel."""
    predicted = [p for p in plans if p.cycles is not None]
    predicted.sort(key=lambda p: (p.scoreboard if by_scoreboard else p.cycles, p.method))
    lacking = sorted((p for p in plans if p.cycles is None), key=lambda p: p.method)
    return *(put_taken_first(predicted, lambda p: p.scoreboard) if predicted else ()), *lacking


def _plan_jobs(jobs: Sequence[Job], workers: int) -> Iterator[PlannedKernel]:
    """Yield the plans of all jobs as they come."""
    if workers == 1:
        yield from map(plan, jobs)
        return
    try:
        for line in answers(planner.COMMAND, [msgspec.json.encode(job) for job in jobs], workers):
            yield msgspec.json.decode(line, type=PlannedKernel)
    except WorkerEnded as ended:
        raise ToolError(f"a process that plans {ended}") from None

"""The cost of every pair of widths on a processor: the best kernel of each method, beside int8 and fp32.

Kernels are planned and priced by the cost model; nothing is proved, and nothing is kept.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby
from multiprocessing import resource_tracker
from typing import Any

from bitsynth.errors import BitsynthError, SpecError
from bitsynth.isa import baseline_loops
from bitsynth.isa.load import Isa, load
from bitsynth.progress import Progress, silent
from bitsynth.schedule import cost
from bitsynth.solver.budget import Budget
from bitsynth.spec.matmul import MatmulSpec
from bitsynth.spec.options import METHODS, KernelOptions
from bitsynth.synth import synthesize

MACS = 128
LIMIT = 120
"""Seconds a method may take for one pair of widths, if the system has alarms."""
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
class PlannedKernel:
    """The cheapest kernel of one method: cycles per 128 multiply-accumulates, or None and the reason."""

    act_bits: int
    w_bits: int
    method: str
    cycles: float | None
    tile: str
    why: str
    seconds: float


@dataclass(frozen=True)
class Cell:
    """One pair of widths: plans with a kernel, cheapest first, then those without."""

    act_bits: int
    w_bits: int
    plans: tuple[PlannedKernel, ...]

    @property
    def best(self) -> PlannedKernel | None:
        """The plan of fewest cycles, None if there is none."""
        return next((p for p in self.plans if p.cycles is not None), None)

    def times(self, baseline: PeakBaseline | None) -> float | None:
        """The speed of the best kernel relative to the baseline's; None if either is unknown."""
        best = self.best
        return baseline.cycles / best.cycles if baseline and best and best.cycles else None


@dataclass(frozen=True)
class Map:
    """The cells of an instruction set on one of its processors, and the baselines beside them."""

    isa: str
    cpu: str
    int8: PeakBaseline | None
    fp32: PeakBaseline | None
    cells: tuple[Cell, ...]

    def winner(self, cell: Cell) -> tuple[str, float] | None:
        """The fastest way and its cycles: a method, or int8 if that is faster; None if neither is known."""
        times = cell.times(self.int8)
        if self.int8 and (times is None or times < 1):
            return INT8, self.int8.cycles
        best = cell.best
        return (best.method, best.cycles) if best and best.cycles else None


_Job = tuple[str, str, int, int, str]


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

    One worker works in this process. `progress` hears how many of all plans are done. SpecError for a set, a
    processor or bits that do not exist.
    """
    isa = load(isa_name)
    cpu = cpu or next(iter(isa.table.cpu))
    if cpu not in isa.table.cpu:
        raise SpecError(f"unknown cpu {cpu!r}; {isa_name} knows {', '.join(isa.table.cpu)}")
    jobs = [(isa_name, cpu, a, w, m) for m in methods for w in sorted(w_bits) for a in sorted(act_bits)]
    for job in jobs:
        _spec(job)
    plans: list[PlannedKernel] = []
    for plan in _planned(jobs, workers or len(_cores())):
        plans.append(plan)
        progress(f"{len(plans)} of {len(jobs)} plans", len(plans), len(jobs))
    return Map(isa_name, cpu, _baseline(isa, cpu, "int8"), _baseline(isa, cpu, "fp32"), _cells(plans))


def _spec(job: _Job) -> MatmulSpec:
    isa, _, act_bits, w_bits, _ = job
    return MatmulSpec.plain(isa, act_bits, w_bits)


def _baseline(isa: Isa, cpu: str, function: str) -> PeakBaseline | None:
    """The fastest baseline of a kind among those that have a peak on the processor."""
    known = [b for b in baseline_loops.load(isa) if b.table.function == function and cpu in b.table.peak]
    best = max(known, key=lambda b: b.table.peak[cpu], default=None)
    return PeakBaseline(best.name, best.table.doc, best.table.peak[cpu], best.table.source) if best else None


def _cells(plans: Sequence[PlannedKernel]) -> tuple[Cell, ...]:
    """Plans by widths, in the order of these and of their cycles."""
    ranked = sorted(plans, key=lambda p: (p.act_bits, p.w_bits, p.cycles is None, p.cycles or 0, p.method))
    return tuple(Cell(a, w, tuple(some)) for (a, w), some in groupby(ranked, key=lambda p: (p.act_bits, p.w_bits)))


def _cores() -> Sequence[int]:
    """The cores this process may run on."""
    return [*os.sched_getaffinity(0)] if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)


def _planned(jobs: Sequence[_Job], workers: int) -> Iterator[PlannedKernel]:
    """The plans of all jobs as they come."""
    if workers == 1:
        yield from map(_plan, jobs)
        return
    with ExitStack() as stack:
        with _unheard():
            spawn = multiprocessing.get_context("spawn")
            pool = stack.enter_context(spawn.Pool(min(workers, len(jobs)), _serve_parent))
        yield from pool.imap_unordered(_plan, jobs)


@contextmanager
def _unheard() -> Iterator[None]:
    """Hold back interrupts until the end of the block, whatever thread gets them; processes started in it hear none."""
    if not _alarms():
        yield
        return
    resource_tracker.ensure_running()  # it would let interrupts through again
    heard: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda signum, frame: heard.append(signum))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
        if heard:
            signal.raise_signal(signal.SIGINT)


def _alarms() -> bool:
    """Whether signals can be held back and timed here."""
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()


def _serve_parent() -> None:
    """Leave interrupts to the process that started this one, also if they cannot be held back, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def _plan(job: _Job) -> PlannedKernel:
    """The cheapest kernel of one method for one pair of widths."""
    isa, cpu, act_bits, w_bits, method = job
    options = KernelOptions(method, model=cpu)
    start = time.perf_counter()
    cycles, size, why = None, "", ""
    try:
        with _limited(LIMIT):
            found, _ = synthesize.candidates(options.isa(isa), _spec(job), options, Budget())
        kernel = found[0].kernel
        cycles = cost.figure(options.isa(isa), kernel, cpu)
        size = f"{kernel.rows}x{kernel.columns}x{kernel.k_step}"
    except BitsynthError as error:
        why = str(error)
    except TimeoutError:
        why = f"not planned within {LIMIT} s"
    return PlannedKernel(act_bits, w_bits, method, cycles, size, why, round(time.perf_counter() - start, 2))


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """TimeoutError after so many seconds, if there are alarms. They go off as interrupts, which stop a solver too.

    An interrupt in a finalizer is lost, so the alarm goes off again each second; ctypes makes another exception of one.
    """
    if not _alarms():
        yield
        return
    rung: list[int] = []
    hook = sys.unraisablehook

    def ring(signum: int, frame: Any) -> None:
        rung.append(signum)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    sys.unraisablehook = lambda what: None if rung else hook(what)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1)
    try:
        yield
    except BaseException:
        if not rung:
            raise
        raise TimeoutError from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = hook

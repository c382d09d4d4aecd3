"""Synthesizes a kernel: spec -> sketches -> program -> proof, with a report of the stages."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from bitsynth.errors import NoKernel, Refuted, SpecError
from bitsynth.isa import cost_models
from bitsynth.isa.load import Isa, load
from bitsynth.isa.step import to_builtins
from bitsynth.kernel.program import Kernel
from bitsynth.progress import Progress, silent
from bitsynth.proof.proved import Proved
from bitsynth.proof.recheck import recheck
from bitsynth.schedule import cost, predicted
from bitsynth.schedule.quickest import scoreboard
from bitsynth.schedule.tiles import k_in_lanes, n_in_lanes
from bitsynth.sketches import paper
from bitsynth.sketches.lanes import tables
from bitsynth.sketches.popcount import compute
from bitsynth.solver.budget import DEFAULT_RLIMIT, Budget
from bitsynth.spec.matmul import MatmulSpec
from bitsynth.spec.options import METHODS, PREDICTED, KernelOptions
from bitsynth.store.entry import Entry, ProvedEntry, RunnerUp

ANY = KernelOptions()


@dataclass(frozen=True)
class SynthesisStage:
    """One line of the report: the stage, its result, and the seconds it took."""

    name: str
    found: str
    verdict: str
    seconds: float


@dataclass(frozen=True)
class Synthesis:
    """A proved kernel, ready to be cached, and the stages that led to it."""

    proved_entry: ProvedEntry
    stages: tuple[SynthesisStage, ...]

    @property
    def entry(self) -> Entry:
        """The text of the kernel."""
        return self.proved_entry.entry

    @property
    def seconds(self) -> float:
        """The seconds that all stages took."""
        return sum(s.seconds for s in self.stages)


@dataclass(frozen=True)
class MethodResult:
    """The cheapest kernel of one method, not proved yet; `claims` say why nothing in its sketch is cheaper."""

    method: str
    kernel: Kernel
    claims: tuple[str, ...]
    bound: float
    stages: tuple[SynthesisStage, ...]


def synthesize(
    spec: MatmulSpec,
    options: KernelOptions = ANY,
    *,
    rlimit: int = DEFAULT_RLIMIT,
    progress: Progress = silent,
) -> Synthesis:
    """Return the cheapest kernel for `spec`'s widths among the methods of `options`, proved for every input.

    `rlimit` is the solver's budget in resource units; `progress` hears what is done. NoKernel if the sketches are
    empty, Undecided if the budget is spent, Refuted if the second checker does not accept the kernel.
    """
    if rlimit < 1:
        raise SpecError(f"the budget must be at least 1 resource unit, not {rlimit}")
    isa, budget = options.isa(spec.isa), Budget(rlimit, progress)
    results, others = candidates(isa, spec.core, options, budget, progress)
    best = results[0]
    progress("prove: lemmas and obligations")
    clock = _Clock()
    proved = Proved.by_solver(best.kernel, budget)
    lemmas = len(proved.lemmas) + len(proved.obligations)
    proof = clock.stage("prove", f"{lemmas} lemmas, K up to {spec.core.k_max:,}", "proved, checker agrees")
    proved_entry = ProvedEntry(proved, options, best.claims, best.bound, others)
    recheck(proved_entry.entry.name, to_builtins(proved_entry.entry), spec)
    return Synthesis(proved_entry, (*(s for c in results for s in c.stages), proof))


def solve_again(entry: Entry, *, rlimit: int = DEFAULT_RLIMIT, progress: Progress = silent) -> Synthesis:
    """Return the entry's sketches solved from scratch; Refuted if they do not give what the entry claims."""
    forget()
    synthesis = synthesize(entry.kernel.core, entry.options, rlimit=rlimit, progress=progress)
    entry_again, isa = synthesis.entry, load(entry.kernel.isa)
    claimed = {
        "method": entry_again.method == entry.method,
        "claims of minimality": entry_again.certificate.minimality == entry.certificate.minimality,
        "lower bound": entry_again.cost.lower_bound == entry.cost.lower_bound,
        "cost": len({cost.figure(isa, x.kernel, entry.model) for x in (entry_again, entry)}) == 1,
        "runners-up": entry_again.runners_up == entry.runners_up,
    }
    if wrong := [what for what, same in claimed.items() if not same]:
        raise Refuted(
            f"{entry.name}: solved again, the sketches give other {' and '.join(wrong)} than the file claims. Its "
            "proof is not in doubt; `bitsynth synth --fresh` writes it anew"
        )
    return synthesis


def candidates(
    isa: Isa, spec: MatmulSpec, options: KernelOptions, budget: Budget, progress: Progress = silent
) -> tuple[list[MethodResult], tuple[RunnerUp, ...]]:
    """Return a kernel of every method that has one, cheapest first, and the outcome of the other methods.

    Kernels of the methods `PREDICTED` are first only if they are predicted to be quicker than each other kernel.
    NoKernel, with the reason of each method, if there is none.
    """
    results: list[MethodResult] = []
    lacking: list[RunnerUp] = []
    for method in _methods(isa, options):
        progress(f"{method}: looking for kernels")
        try:
            results.append(_candidate(isa, spec, options, method, budget, progress))
        except NoKernel as why:
            lacking.append(RunnerUp(method, None, str(why)))
    if not results:
        raise NoKernel("; ".join(x.why for x in lacking))
    results.sort(key=lambda c: _across_methods(isa, c.kernel, options.model))
    results = put_taken_first(results, lambda c: scoreboard(c.kernel, [options.model]).get(options.model))
    others = (RunnerUp(c.method, round(cost.figure(isa, c.kernel, options.model), 4), "") for c in results[1:])
    return results, (*others, *lacking)


def _methods(isa: Isa, options: KernelOptions) -> tuple[str, ...]:
    """Return the methods to try: the one asked for, or all that the sketch knows.

    Pairs if there are issue rules of the processor asked for: bounds alone do not tell when they pay. The fast inner
    product if predicted cycles choose its tile: on in-order processors it is not the quickest.
    """
    if options.method:
        return (options.method,)
    methods = METHODS if options.sketch == "exact" else ("popcount",)
    cpu = isa.table.cpu.get(options.model)
    with_pairs = cpu is not None and cpu.issue is not None
    served = (method for method in methods if predicted.serves(isa, method, options.model))
    return tuple(method for method in served if method != "pairs" or with_pairs)


def _across_methods(isa: Isa, kernel: Kernel, model: str) -> tuple[float, ...]:
    """Return the sort key of kernels of different methods: the figure to a tenth, rounded up, then the bytes they read.

    `bitsynth synth` says so if a runner-up has the lower figure. On in-order processors the figure is predicted cycles;
    elsewhere it leaves loads out. The one case that bytes decide is A1W1 of AVX-512, where the popcount kernel is
    measured to be as fast as the lookup one or faster.
    """
    by_scoreboard = predicted.compares(isa, model)
    figure = scoreboard(kernel, [model])[model] if by_scoreboard else cost.figure(isa, kernel, model)
    return math.ceil(round(10 * figure, 6)), cost.bytes_per_128_mac(kernel)


def forget() -> None:
    """Drop everything solved, so that the next synthesis is cold."""
    compute.forget()
    tables.forget()


def _candidate(
    isa: Isa, spec: MatmulSpec, options: KernelOptions, method: str, budget: Budget, progress: Progress
) -> MethodResult:
    if options.sketch == "paper":
        return _paper_sketch(isa, spec, budget, progress)
    if method == "popcount":
        return _k_in_lanes(isa, spec, options, budget, progress)
    return _n_in_lanes(isa, spec, method, options, budget)


def _k_in_lanes(isa: Isa, spec: MatmulSpec, options: KernelOptions, budget: Budget, progress: Progress) -> MethodResult:
    clock = _Clock()
    solved = compute.solve(isa, spec, budget, progress)
    counts = f"{_many(solved.counts, 'popcount')}, {_many(solved.gates, 'gate')} a step"
    first = clock.stage("popcount", counts, f"minimal: {len(solved.claims)} claims, all unsat")
    progress("popcount: reductions and tiles")
    kernel = k_in_lanes.cheapest_kernel(isa, spec, solved.cover, options.model, options.channels, options.k_step)
    scale = 128 / (isa.word.lanes * kernel.k_step // kernel.slot_bytes)
    second = clock.stage("", _reduction(kernel), "minimal")
    return MethodResult("popcount", kernel, solved.claims, solved.bound * scale, (first, second))


def _n_in_lanes(isa: Isa, spec: MatmulSpec, method: str, options: KernelOptions, budget: Budget) -> MethodResult:
    clock = _Clock()
    solution = n_in_lanes.cheapest_kernel(isa, spec, method, options.model, budget, options.channels)
    stage = clock.stage(method, f"{solution.term}; {_reduction(solution.kernel)}", "minimal")
    return MethodResult(method, solution.kernel, solution.claims, solution.bound, (stage,))


def _paper_sketch(isa: Isa, spec: MatmulSpec, budget: Budget, progress: Progress) -> MethodResult:
    """Solve the two sketches of CGO 2020 with its cost, program length (`sketches.paper`)."""
    clock = _Clock()
    solution = paper.solve(isa, budget, progress)
    first = clock.stage("compute", f"{len(solution.pair)} instructions a plane pair", "minimal, shorter ones unsat")
    progress("reduce: trees of the paper's instruction list")
    kernel = k_in_lanes.single_pass_kernel(
        isa, spec, paper.build(isa, spec, solution, cost_models.metric(isa.name, "length"))
    )
    second = clock.stage("reduce", _reduction(kernel), "minimal")
    bound = float(paper.lower_bound(spec, solution.pair))
    return MethodResult("popcount", kernel, solution.claims, bound, (first, second))


class _Clock:
    """Stages from the time between calls."""

    def __init__(self) -> None:
        self.last = time.perf_counter()

    def stage(self, name: str, summary: str, verdict: str) -> SynthesisStage:
        """Return the stage that ended now: its name, the result and the verdict."""
        before, self.last = self.last, time.perf_counter()
        return SynthesisStage(name, summary, verdict, self.last - before)


def _many(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _reduction(kernel: Kernel) -> str:
    """Return the accumulators' types, innermost first, and how often each is emptied."""
    nests = {
        " -> ".join(f"{loop.accs[0].type.split('x')[0]} x{loop.trip_count:,}" for loop in p.loops)
        for p in kernel.passes
    }
    return " or ".join(sorted(nests)) + " -> s32"


class _OfMethod(Protocol):
    @property
    def method(self) -> str: ...


Found = TypeVar("Found", bound=_OfMethod)


def put_taken_first(kernels: Sequence[Found], predicted: Callable[[Found], float | None]) -> list[Found]:
    """Return the kernels, cheapest first, except that the one to take is first.

    A kernel of a method in `PREDICTED` is taken if its `predicted` cycles are fewer than all others' by its share
    there, or if no others' are known.
    """

    def is_taken(kernel: Found) -> bool:
        if kernel.method not in PREDICTED:
            return True
        others = [x for other in kernels if other is not kernel and (x := predicted(other)) is not None]
        mine = predicted(kernel) if others else None
        return mine is None or mine * PREDICTED[kernel.method] < min(others)

    first = next(filter(is_taken, kernels), kernels[0])
    return sorted(kernels, key=lambda kernel: kernel is not first)

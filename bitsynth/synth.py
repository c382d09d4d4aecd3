"""The line: spec -> sketch -> program -> proof, and what was found along the way."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from bitsynth import cache, prove
from bitsynth.cache import Entry
from bitsynth.errors import SpecError
from bitsynth.isa import load
from bitsynth.program import Kernel
from bitsynth.schedule import cost, tile
from bitsynth.sketches import compute, paper
from bitsynth.sketches.solver import DEFAULT_RLIMIT, Budget
from bitsynth.spec import MatmulSpec

Progress = Callable[[str], None]
SKETCHES = ("exact", "paper")


@dataclass(frozen=True)
class Stage:
    """One line of the report: what was done, what came out, and how long it took."""

    name: str
    found: str
    verdict: str
    seconds: float


@dataclass(frozen=True)
class Synthesis:
    """A proved kernel, ready to be cached, and the stages that led to it."""

    entry: Entry
    stages: tuple[Stage, ...]

    @property
    def seconds(self) -> float:
        return sum(s.seconds for s in self.stages)


def synthesize(
    spec: MatmulSpec,
    *,
    sketch: str = "exact",
    model: str = "ops",
    rlimit: int = DEFAULT_RLIMIT,
    progress: Progress = lambda what: None,
) -> Synthesis:
    """The cheapest kernel of the sketch for `spec`'s widths, proved for every input.

    Raises NoKernel where the sketch is empty, Undecided where the budget is spent.
    """
    if sketch not in SKETCHES:
        raise SpecError(f"unknown sketch {sketch!r}; known: {', '.join(SKETCHES)}")
    if rlimit < 1:
        raise SpecError(f"the budget must be at least 1 resource unit, not {rlimit}")
    cost.metric(spec.isa, model)
    budget = Budget(rlimit, progress)
    if sketch == "paper":
        return _paper(spec.core, budget, progress)
    return _exact(spec.core, model, budget, progress)


def _exact(spec: MatmulSpec, model: str, budget: Budget, progress: Progress) -> Synthesis:
    isa = load.load(spec.isa)
    clock = _Clock()
    solved = compute.solve(isa, spec, budget, progress)
    found = f"{_many(solved.counts, 'popcount')}, {_many(solved.gates, 'gate')} a step"
    stages = [clock.stage("compute", found, f"minimal: {len(solved.claims)} claims, all unsat")]
    progress("reduce: reductions and tiles")
    kernel = tile.choose(isa, spec, solved.cover, model)
    stages.append(clock.stage("reduce", _reduction(kernel), "minimal"))
    progress("prove: lemmas and instruction uses")
    scale = 128 / (isa.word.lanes * kernel.k_step // kernel.slot_bytes)
    entry, stage = _proved(
        spec, kernel, clock, budget, sketch="exact", model=model, minimality=solved.claims, bound=solved.bound * scale
    )
    return Synthesis(entry, (*stages, stage))


def _paper(spec: MatmulSpec, budget: Budget, progress: Progress) -> Synthesis:
    """CGO 2020's two sketches with its cost, program length (`sketches.paper`)."""
    isa = load.load(spec.isa)
    clock = _Clock()
    found = paper.solve(isa, budget, progress)
    stages = [clock.stage("compute", f"{len(found.pair)} instructions a plane pair", "minimal, shorter ones unsat")]
    progress("reduce: trees of the paper's instruction list")
    kernel = tile.around(isa, spec, paper.build(isa, spec, found, cost.metric(isa.name, "length")))
    stages.append(clock.stage("reduce", _reduction(kernel), "minimal"))
    progress("prove: lemmas and instruction uses")
    bound = float(paper.lower_bound(spec, found.pair))
    entry, stage = _proved(
        spec, kernel, clock, budget, sketch="paper", model="length", minimality=found.claims, bound=bound
    )
    return Synthesis(entry, (*stages, stage))


def _proved(
    spec: MatmulSpec,
    kernel: Kernel,
    clock: _Clock,
    budget: Budget,
    *,
    sketch: str,
    model: str,
    minimality: tuple[str, ...],
    bound: float,
) -> tuple[Entry, Stage]:
    entry, uses = cache.make_entry(kernel, spec, sketch=sketch, model=model, minimality=minimality, bound=bound)
    prove.discharge(load.load(spec.isa), uses, budget)
    lemmas = len(entry.certificate.lemmas) + len(uses)
    return entry, clock.stage("prove", f"{lemmas} lemmas, K up to {spec.k_max:,}", "proved, checker agrees")


class _Clock:
    """Stages from the time between calls."""

    def __init__(self) -> None:
        self.last = time.perf_counter()

    def stage(self, name: str, found: str, verdict: str) -> Stage:
        before, self.last = self.last, time.perf_counter()
        return Stage(name, found, verdict, self.last - before)


def _many(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _reduction(kernel: Kernel) -> str:
    """The accumulators' types and how often they are flushed."""
    kinds = sorted({acc.type.split("x")[0] for p in kernel.passes for acc in p.step.accs})
    periods = sorted({p.flush_every for p in kernel.passes})
    return f"u8 -> {', '.join(kinds)} -> s32, flush every {' or '.join(map(str, periods))}"

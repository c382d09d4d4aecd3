"""Tune on this machine: a study in a file, a process that measures, and the result where layers look for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bitsynth.build import host
from bitsynth.build.runners import runs_natively
from bitsynth.build.toolchain import preferred
from bitsynth.errors import NoKernel, SpecError
from bitsynth.isa.load import load
from bitsynth.layers import tuned as store
from bitsynth.layers.tuned import Problem, Tuned
from bitsynth.tuning.process import started
from bitsynth.tuning.space import space
from bitsynth.tuning.study import open_study
from bitsynth.tuning.tune import Progress, Result, tune


@dataclass(frozen=True)
class Outcome:
    """What was found, what is stored of it and where, and the study's file."""

    tuned: Tuned
    result: Result
    stored: Path
    study: Path


def require(problem: Problem) -> None:
    """SpecError or NoKernel where the problem makes no sense, this processor cannot time it, or results are broken."""
    table = load(problem.isa).table
    problem.geometry.output(*problem.image)
    if not runs_natively(table):
        raise SpecError(f"this processor ({host.arch()}) does not run {problem.isa}, and an emulator tells no time")
    problem.default()
    store.find(problem)


def tuned(
    problem: Problem, trials: int, timeout_s: float, study_file: Path | None, folder: Path | None, progress: Progress
) -> Outcome:
    """Work on the study of `problem` until it has `trials`, and store its best in `folder`, the user's by default."""
    found, compiler = space(problem), preferred(load(problem.isa)).version
    path = study_file or store.user_folder() / "studies" / f"{problem.isa}-a{problem.act_bits}w{problem.w_bits}.journal"
    study = open_study(path, problem, found, f"{found.seal} {compiler}")
    with started(problem, found.priors[0], timeout_s) as measurer:
        result = tune(study, measurer, trials, timeout_s, progress)
    entry = store.entry_of(problem, result.schedule)
    if entry is None:
        raise NoKernel(f"the kernel of {result.schedule} is gone from the cache; tune again")
    times = result.timing.nanoseconds, result.timing.default_nanoseconds
    best = Tuned(problem, result.schedule, entry.name, *times, compiler)
    return Outcome(best, result, store.store(best, folder or store.user_folder()), path)

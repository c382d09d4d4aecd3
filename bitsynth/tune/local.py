"""Tune on this machine: a study in a file, a process that measures, and the result where layers look for it."""

from __future__ import annotations

from pathlib import Path

from bitsynth.host.facts import here
from bitsynth.host.placement import require_native
from bitsynth.isa.load import load
from bitsynth.layers.tuned import Problem
from bitsynth.tune.loop import Progress, tune
from bitsynth.tune.outcome import Outcome, best, compiler, stored, study_file
from bitsynth.tune.process import started
from bitsynth.tune.space import space
from bitsynth.tune.study import open_study


def require(problem: Problem) -> None:
    """SpecError or NoKernel where this processor cannot time the problem."""
    require_native(load(problem.isa).table, "name a board that runs it with --device")
    problem.default()


def tuned(
    problem: Problem, trials: int, timeout_s: float, study: Path | None, folder: Path | None, progress: Progress
) -> Outcome:
    """Work on the study of `problem` until it has `trials`, and store its best in `folder`, the user's by default."""
    found, kind = space(problem), here().kind
    path = study or study_file(problem, kind)
    opened = open_study(path, problem, found, f"{found.seal} {compiler(problem)} {kind}")
    with started(problem, found.priors[0], timeout_s) as measurer:
        result = tune(opened, measurer, trials, progress)
    mine = best(problem, result, found.priors[0], kind)
    return Outcome(mine, result, stored(mine, folder), path)

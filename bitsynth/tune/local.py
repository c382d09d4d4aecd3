"""Tuning on this machine: a study in a file, a process that measures, and the result where layers look for it."""

from __future__ import annotations

from pathlib import Path

from bitsynth.host.facts import here
from bitsynth.host.placement import require_native
from bitsynth.isa.load import load
from bitsynth.layers.planning import default_of
from bitsynth.layers.tuned import TuningTask
from bitsynth.progress import Progress
from bitsynth.tune.loop import tune
from bitsynth.tune.outcome import TuningRun, best_record, compiler, store_record, study_file
from bitsynth.tune.process_measurer import started
from bitsynth.tune.space import space
from bitsynth.tune.study import open_study


def require_measurable(task: TuningTask) -> None:
    """Raise SpecError or NoKernel if this processor cannot time the task."""
    require_native(load(task.isa).table, "name a board that runs it with --device")
    default_of(task)


def tune_task(
    task: TuningTask, trials: int, timeout_s: float, study: Path | None, folder: Path | None, progress: Progress
) -> TuningRun:
    """Work on the study of `task` until it has `trials`, and store its best in `folder`, the user's by default."""
    schedules, kind = space(task), here().kind
    path = study or study_file(task, kind)
    opened = open_study(path, task, schedules, f"{schedules.fingerprint} {compiler(task)} {kind}")
    with started(task, schedules.priors[0], timeout_s) as measurer:
        result = tune(opened, measurer, trials, progress)
    mine = best_record(task, result, schedules.priors[0], kind)
    return TuningRun(mine, result, store_record(mine, folder), path)

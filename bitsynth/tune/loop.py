"""Tunes one task: runs trials until the study has enough, times the best and the default once more, and records it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from bitsynth import paths
from bitsynth.errors import ToolError
from bitsynth.host.facts import Facts
from bitsynth.isa.load import load
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.layers.tuned import TuningRecord, TuningTask, store
from bitsynth.progress import Progress
from bitsynth.toolchain.compiler import get_preferred
from bitsynth.tune.measurer import Measurer, Timing, TrialFailed
from bitsynth.tune.study import Study

ROUNDS = 15
FINAL_ROUNDS = 45
FINALISTS = 3
Ranked = list[tuple[LayerSchedule, Timing]]


@dataclass(frozen=True)
class TuningResult:
    """The schedule to take and its times; the number of trials of the study, and why failed trials failed."""

    schedule: LayerSchedule
    timing: Timing
    trials: int
    failures: tuple[str, ...]


def tune(study: Study, measurer: Measurer, trials: int, progress: Progress) -> TuningResult:
    """Measure until `study` has `trials`, and choose; ToolError if the default schedule cannot be measured.

    Refuted, at once, if a schedule gives other results than it should.
    """
    study.enqueue_priors()
    explore(study, measurer, trials, progress)
    return choose(study, measurer, trials, progress)


def explore(study: Study, measurer: Measurer, trials: int, progress: Progress) -> None:
    """Measure until `study` has `trials`; several threads may at once, each with a measurer of its own."""
    while True:
        done, ranked = study.finished, study.rank()
        with study.trial(trials, measurer.longest_s) as running:
            if running is None:
                return
            progress(f"{done + 1} of {trials}{_best(ranked)}, now {running.schedule}", done, trials)
            try:
                running.finish(measurer.measure(running.schedule, ROUNDS))
            except TrialFailed as why:
                _require_default(study, running.schedule, why)
                running.fail(str(why))


def _best(ranked: Ranked) -> str:
    return f", best {ranked[0][1].nanoseconds / 1e6:.4f} ms, {ranked[0][1].ratio:.2f} of default" if ranked else ""


def _require_default(study: Study, schedule: LayerSchedule, why: TrialFailed) -> None:
    if schedule == study.space.priors[0]:
        raise ToolError(f"the default schedule, {schedule}, cannot be measured: {why}") from None


def choose(study: Study, measurer: Measurer, trials: int, progress: Progress) -> TuningResult:
    """Return the fastest of the best few, measured anew, as noise chose them too; the default if none is faster."""
    ranked = study.rank()
    progress(f"the best once more{_best(ranked)}", trials, trials)
    schedule, timing = _fastest(study, measurer, ranked)
    return TuningResult(schedule, timing, study.finished, tuple(study.failures))


def _fastest(study: Study, measurer: Measurer, ranked: Ranked) -> tuple[LayerSchedule, Timing]:
    default = study.space.priors[0]
    timings = []
    for schedule in dict.fromkeys([default, *(s for s, _ in ranked[:FINALISTS])]):
        try:
            timings.append((schedule, measurer.measure(schedule, FINAL_ROUNDS)))
        except TrialFailed as why:
            _require_default(study, schedule, why)
    best, timing = min(timings[1:], key=lambda x: x[1].ratio, default=timings[0])
    if best != default and timing.ratio < 1:
        return best, timing
    return default, Timing(timing.default_nanoseconds, timing.default_nanoseconds)


@dataclass
class Share:
    """A board's part of a study, its facts before and after, if it reported them, and why it was lost if it was."""

    host: str
    before: Facts = field(default_factory=Facts)
    after: Facts = field(default_factory=Facts)
    trials: int = 0
    lost: str = ""


@dataclass(frozen=True)
class TuningRun:
    """The result, its record and where it is stored, and the study's file; who measured, unless this machine did."""

    tuned: TuningRecord
    result: TuningResult
    stored: Path
    study: Path
    shares: tuple[Share, ...] = ()


def compiler(task: TuningTask) -> str:
    """Return the compiler of trials."""
    return get_preferred(load(task.isa)).version


def study_file(task: TuningTask, processor: str) -> Path:
    """Return the default file of trials: one an instruction set, widths and kind of `processor`."""
    kind = re.sub(r"[^a-z0-9]+", "-", f"-{processor}".lower()).rstrip("-")
    return paths.user_schedules() / "studies" / f"{task.isa}-a{task.act_bits}w{task.w_bits}{kind}.journal"


def best_record(
    task: TuningTask, result: TuningResult, default: LayerSchedule, processor: str, board: str = ""
) -> TuningRecord:
    """Return the result as it is stored; NoKernel if a kernel is gone."""
    mine, compared = (task.entry(schedule) for schedule in (result.schedule, default))
    return TuningRecord(
        task,
        result.schedule,
        mine.name,
        mine.kernel.digest,
        result.timing.nanoseconds,
        default,
        compared.kernel.digest,
        result.timing.default_nanoseconds,
        compiler(task),
        processor,
        board,
    )


def store_record(tuned: TuningRecord, folder: Path | None) -> Path:
    """Store a record in `folder`, the user's by default."""
    return store(tuned, folder or paths.user_schedules())

"""The outcome of tuning: the result where layers look for it, the study's file, and the boards' shares."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from bitsynth import paths
from bitsynth.host.facts import Facts
from bitsynth.isa.load import load
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.layers.tuned import TuningRecord, TuningTask, store
from bitsynth.toolchain.compiler import preferred
from bitsynth.tune.loop import TuningResult


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
    return preferred(load(task.isa)).version


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

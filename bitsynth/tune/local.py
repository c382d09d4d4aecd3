"""Tuning on this machine: a study in a file, and a process that measures.

The process may crash or hang: it is killed, and the next trial starts another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bitsynth.errors import Refuted
from bitsynth.host.facts import here
from bitsynth.host.placement import require_native
from bitsynth.isa.load import load
from bitsynth.layers.planning import default_of
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.layers.tuned import TuningTask
from bitsynth.processes.child import TooLate
from bitsynth.processes.worker import Worker, WorkerEnded, command_of
from bitsynth.progress import Progress
from bitsynth.tune.loop import TuningRun, best_record, compiler, store_record, study_file, tune
from bitsynth.tune.measurer import Timing, TrialFailed
from bitsynth.tune.space import space
from bitsynth.tune.study import open_study
from bitsynth.tune.worker import Answer, Question, Start

COMMAND = tuple(command_of("bitsynth.tune.worker"))


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
    with start_measurer(task, schedules.priors[0], timeout_s) as measurer:
        result = tune(opened, measurer, trials, progress)
    mine = best_record(task, result, schedules.priors[0], kind)
    return TuningRun(mine, result, store_record(mine, folder), path)


@contextmanager
def start_measurer(
    task: TuningTask, default: LayerSchedule, timeout_s: float, command: Sequence[str] = COMMAND
) -> Iterator[ProcessMeasurer]:
    """Yield a measurer of `task`, whose process is killed in the end."""
    process = ProcessMeasurer(Start(task, default), timeout_s, command)
    try:
        yield process
    finally:
        process.kill()


class ProcessMeasurer:
    """A worker process that runs `command` and is asked for times, each within `timeout_s`."""

    def __init__(self, start: Start, timeout_s: float, command: Sequence[str]) -> None:
        self.start, self.timeout_s, self.command = start, timeout_s, command
        self._worker: Worker | None = None

    @property
    def longest_s(self) -> float:
        """Seconds after which `measure` is through."""
        return self.timeout_s

    def measure(self, schedule: LayerSchedule, rounds: int) -> Timing:
        """Return the times of the default and of `schedule`; TrialFailed if the worker gives none."""
        try:
            answer = msgspec.json.decode(self._ask(Question(schedule, rounds)), type=Answer)
        except msgspec.DecodeError as error:
            self.kill()
            raise TrialFailed(f"its worker gave no answer: {error}") from None
        if answer.refuted:
            raise Refuted(answer.refuted)
        if answer.failed:
            raise TrialFailed(answer.failed)
        return Timing(answer.nanoseconds, answer.default_nanoseconds)

    def _ask(self, question: Question) -> bytes:
        """Return the line that answers; TrialFailed if the worker ends or takes too long, which ends it."""
        if self._worker is None:
            self._worker = Worker(self.command)
            self._worker.send(msgspec.json.encode(self.start))
        try:
            return self._worker.ask(msgspec.json.encode(question), self.timeout_s)
        except TooLate:
            why = f"took longer than {self.timeout_s:g} s"
        except WorkerEnded as ended:
            why = f"its worker {ended}"
        self.kill()
        raise TrialFailed(why)

    def kill(self) -> None:
        """End the worker and what it started."""
        if self._worker:
            self._worker.close()
        self._worker = None

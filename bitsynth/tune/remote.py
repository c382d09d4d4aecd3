"""Tuning on boards: a study in a file that all of them work on, and the result where layers look for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bitsynth.device import Device, Facts
from bitsynth.layers.tuned import TuningTask
from bitsynth.progress import Progress
from bitsynth.tune.board_measurer import BoardMeasurer, default_work
from bitsynth.tune.boards import Boards
from bitsynth.tune.loop import TuningResult, choose, explore
from bitsynth.tune.operands import TaskOperands
from bitsynth.tune.outcome import Share, TuningRun, best_record, compiler, store_record, study_file
from bitsynth.tune.space import space
from bitsynth.tune.study import Study, open_study


def require_measurable(boards: Boards, task: TuningTask) -> None:
    """Raise NoKernel if no kernel is for all of `boards`."""
    space(task, boards.have, boards.cpu(task.isa))


def tune_task(
    boards: Boards,
    task: TuningTask,
    trials: int,
    timeout_s: float,
    study: Path | None,
    folder: Path | None,
    progress: Progress,
) -> TuningRun:
    """Work on the study of `task` until it has `trials`, and store its best in `folder`, the user's by default.

    The study is of one kind of processor. A board that disappears loses its trial; ToolError if none is left.
    """
    cpu = boards.cpu(task.isa)
    schedules, path = space(task, boards.have, cpu), study or study_file(task, boards.kind)
    opened = open_study(path, task, schedules, f"{schedules.fingerprint} {compiler(task)} {boards.kind}")
    opened.enqueue_priors()
    work = _Work(opened, TaskOperands(task, cpu), trials, timeout_s, progress)
    boards.each(work.explore)
    result, facts = boards.one(work.choose)
    mine = best_record(task, result, schedules.priors[0], boards.kind, str(facts))
    return TuningRun(mine, result, store_record(mine, folder), path, work.shares(boards.lost))


class _Work:
    """The work of every board, in a thread of its own."""

    def __init__(self, study: Study, operands: TaskOperands, trials: int, timeout_s: float, progress: Progress) -> None:
        self.study, self.operands, self.trials, self.timeout_s = study, operands, trials, timeout_s
        self.progress, self._shares = progress, dict[Device, Share]()
        self._default = default_work(operands, study.space.priors[0])

    def explore(self, device: Device) -> None:
        """Run trials until there are enough."""
        share = self._shares[device] = Share(device.host)
        share.before = share.after = device.facts_now()
        measurer = self._measurer(device)
        try:
            explore(self.study, measurer, self.trials, self._progress_of(device))
        finally:
            share.trials = measurer.measured
        share.after = device.facts_now()

    def choose(self, device: Device) -> tuple[TuningResult, Facts]:
        """Return the result, and the facts of the board after it."""
        return choose(self.study, self._measurer(device), self.trials, self._progress_of(device)), device.facts_now()

    def shares(self, lost: Mapping[Device, str]) -> tuple[Share, ...]:
        """Return the share of each board."""
        return tuple(replace(share, lost=lost.get(device, "")) for device, share in self._shares.items())

    def _measurer(self, device: Device) -> BoardMeasurer:
        return BoardMeasurer(device, self.operands, self._default, self.timeout_s)

    def _progress_of(self, device: Device) -> Progress:
        return lambda message, done=0, total=None: self.progress(f"{device.host}: {message}", done, total)

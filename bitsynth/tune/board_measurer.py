"""A measurer on a board: the default schedule and another one in a program that is compiled here and runs there."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bitsynth.device import Device, LayerTimes
from bitsynth.device.device import RunFailed
from bitsynth.device.job import Sampling, Work
from bitsynth.device.program import Program, compile_program
from bitsynth.device.ssh import ANSWER_SECONDS, TimedOut
from bitsynth.errors import NoKernel, SpecError, ToolError
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.processes.tool import deadline
from bitsynth.tune.measurer import Timing, TrialFailed
from bitsynth.tune.operands import TaskOperands

SAMPLE_NS = 1_000_000


def default_work(operands: TaskOperands, schedule: LayerSchedule) -> Work:
    """Return the default schedule's layer and its output, which all others must give too."""
    return Work("the default schedule", operands.layer(schedule), operands.codes, operands.exact())


class BoardMeasurer:
    """A measurer on `device`; `measured` counts the schedules. ToolError if the board is at fault."""

    def __init__(self, device: Device, operands: TaskOperands, default: Work, timeout_s: float) -> None:
        self.device, self.operands, self.default, self.timeout_s = device, operands, default, timeout_s
        self.measured = 0

    @property
    def longest_s(self) -> float:
        """Seconds after which `measure` is through."""
        return self.timeout_s + ANSWER_SECONDS

    def measure(self, schedule: LayerSchedule, rounds: int) -> Timing:
        """Return the fastest of `rounds` alternating samples of each, which other load on the board disturbs least."""
        end = time.monotonic() + self.timeout_s
        work, program = self._compile(schedule, end)
        try:
            default, mine = self._run(program, work, rounds, end)
        except RunFailed as why:
            raise TrialFailed(str(why)) from None
        except TimedOut:
            self.device.facts_now()  # A board that is gone says nothing about the schedule.
            raise TrialFailed(f"{self.device.host}: took longer than {self.timeout_s:g} s") from None
        self.measured += 1
        return Timing(min(mine.ns), min(default.ns))

    def _run(self, program: Program, work: Sequence[Work], rounds: int, end: float) -> list[LayerTimes]:
        sampling = Sampling(rounds, together=len(work), sample_ns=SAMPLE_NS, times_float=False)
        return self.device.run(program, work, self.operands.task.threads, sampling, end)

    def _compile(self, schedule: LayerSchedule, end: float) -> tuple[Sequence[Work], Program]:
        try:
            work = self.default, self._work(schedule)
            with deadline(end):
                return work, compile_program(w.layer for w in work)
        except (SpecError, NoKernel, ToolError) as why:
            raise TrialFailed(str(why)) from None

    def _work(self, schedule: LayerSchedule) -> Work:
        return Work(str(schedule), self.operands.layer(schedule), self.operands.codes, self.default.output)

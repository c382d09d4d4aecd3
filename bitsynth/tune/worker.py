"""A process that measures: `python -m bitsynth.tune.worker`.

It reads and writes lines of JSON. The first line that it reads is what is tuned (`Start`), every other one a
`Question`, which it answers with one line. It ends when its input does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from bitsynth.bench.call_times import sample_calls
from bitsynth.errors import BitsynthError, Refuted
from bitsynth.layers import Conv2d
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.layers.tuned import TuningTask
from bitsynth.processes.worker import take_stdout
from bitsynth.tune.measurer import TaskOperands, Timing

SAMPLES = 3
SAMPLE_NS = 1_000_000


class Start(msgspec.Struct, frozen=True):
    """The first line: the task that is tuned, and the default schedule, with which all others are compared."""

    task: TuningTask
    default: LayerSchedule


class Question(msgspec.Struct, frozen=True):
    """A schedule to be measured."""

    schedule: LayerSchedule
    rounds: int


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Nanoseconds of both schedules, or why the one asked for `failed` or was `refuted` by wrong results."""

    nanoseconds: float = 0
    default_nanoseconds: float = 0
    failed: str = ""
    refuted: str = ""


def serve(lines: Iterable[bytes], answer: Callable[[bytes], object]) -> None:
    """Answer every line after the first."""
    lines = iter(lines)
    start = msgspec.json.decode(next(lines), type=Start)
    timer: LayerTimer | None = None
    for line in lines:
        asked = msgspec.json.decode(line, type=Question)
        try:
            timer = timer or LayerTimer(start.task, start.default)
            timing = timer.measure(asked.schedule, asked.rounds)
            result = Answer(timing.nanoseconds, timing.default_nanoseconds)
        except Refuted as error:
            result = Answer(refuted=str(error))
        except BitsynthError as error:
            result = Answer(failed=str(error))
        answer(msgspec.json.encode(result))


class LayerTimer:
    """Times the layer of a task with the `default` schedule and with others."""

    def __init__(self, task: TuningTask, default: LayerSchedule) -> None:
        self.operands = TaskOperands(task)
        self.codes, self.threads = self.operands.codes, task.threads
        self.default = self.operands.layer(default)
        self.expected = self.default.run(self.codes)
        self.calls = self._calibrate_calls()

    def _calibrate_calls(self) -> int:
        """Return the number of calls that take about SAMPLE_NS."""
        return max(1, round(SAMPLE_NS / self._time(self.default, 1)))

    def _time(self, layer: Conv2d, calls: int) -> float:
        out = np.empty_like(self.expected)
        run = layer.compiled.run_into
        return min(sample_calls(lambda: run(self.codes, out, calls), SAMPLES, self.threads)) / calls

    def measure(self, schedule: LayerSchedule, rounds: int) -> Timing:
        """Return the fastest of `rounds` alternating samples of each, which other load disturbs least."""
        layer = self.operands.layer(schedule)
        self._check(schedule, layer.run(self.codes))
        times = [[self._time(x, self.calls) for x in (self.default, layer)] for _ in range(rounds)]
        default, mine = np.min(times, axis=0)
        return Timing(float(mine), float(default))

    def _check(self, schedule: LayerSchedule, got: NDArray[Any]) -> None:
        if wrong := int((got != self.expected).sum()):
            where = tuple(int(i) for i in np.argwhere(got != self.expected)[0])
            raise Refuted(
                f"{schedule} gives other results than {self.default.schedule} in {wrong:,} of {got.size:,} sums: "
                f"{got[where]}, not {self.expected[where]}, at {where} of {self.operands.task}"
            )


if __name__ == "__main__":
    with take_stdout() as answer:
        serve(sys.stdin.buffer, answer)

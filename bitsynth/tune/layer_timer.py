"""Times a schedule and the default one in this process, after a check that both give the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.bench.sampling import sample_calls
from bitsynth.errors import Refuted
from bitsynth.layers import Conv2d
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.layers.tuned import TuningTask
from bitsynth.tune.measurer import Timing
from bitsynth.tune.operands import TaskOperands

SAMPLES = 3
SAMPLE_NS = 1_000_000


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

"""The protocol of measurers of schedules, and the operands on which they measure: seeded random ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bitsynth.layers import Conv2d
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.layers.tuned import TuningTask


@dataclass(frozen=True)
class Timing:
    """Nanoseconds per call of a schedule, and of the default schedule timed with it."""

    nanoseconds: float
    default_nanoseconds: float

    @property
    def ratio(self) -> float:
        """The ratio of the two, below 1 if faster than the default.

        Studies compare it, for it holds across machines and loads.
        """
        return self.nanoseconds / self.default_nanoseconds


class TrialFailed(Exception):
    """A schedule was not measured, and why: it is lost, the study goes on."""


class Measurer(Protocol):
    """A measurer of schedules of one task."""

    @property
    def longest_s(self) -> float:
        """Seconds after which `measure` returns, apart from the time to end the processes that it started."""
        ...

    def measure(self, schedule: LayerSchedule, rounds: int) -> Timing:
        """Time the default and `schedule` alternately, `rounds` times each; TrialFailed if that fails.

        Refuted if its results differ from the default schedule's in any bit.
        """
        ...


class TaskOperands:
    """Weights (OC, IC / groups, KH, KW) and codes of one image, channels last; layers are for `cpu`, as of `Conv2d`."""

    def __init__(self, task: TuningTask, cpu: str = "") -> None:
        self.task, self.cpu, g = task, cpu, task.geometry
        rng, spec = np.random.default_rng(0), task.spec()
        shape = g.out_channels, g.in_channels // g.groups, *g.kernel
        self.weight = rng.choice([spec.wgt.value(c) for c in spec.wgt.codes], shape)
        self.codes = rng.integers(0, 1 << task.act_bits, (1, *task.image, g.in_channels), np.uint8)

    def layer(self, schedule: LayerSchedule) -> Conv2d:
        """Return the layer by `schedule`."""
        p, g = self.task, self.task.geometry
        return Conv2d(
            self.weight,
            p.act_bits,
            p.w_bits,
            stride=g.stride,
            padding=g.padding,
            dilation=g.dilation,
            groups=g.groups,
            isa=p.isa,
            cpu=self.cpu,
            threads=p.threads,
            schedule=schedule,
        )

    def exact(self) -> NDArray[Any]:
        """Return the layer's sums by numpy, tap by tap, in doubles: they hold every int32."""
        g = self.task.geometry
        top, left, bottom, right = g.padding
        padded = np.pad(self.codes[0].astype(float), ((top, bottom), (left, right), (0, 0)))
        sums = np.zeros((g.groups, *g.output(*self.task.image), g.out_channels // g.groups))
        weight = self.weight.astype(float).reshape(g.groups, -1, *self.weight.shape[1:])
        for tap in np.ndindex(g.kernel):
            seen = padded[tuple(map(_tap_positions, tap, g.stride, g.dilation, sums.shape[1:3]))]
            by_group = seen.reshape(*seen.shape[:2], g.groups, -1).transpose(2, 0, 1, 3)
            sums += by_group @ weight[..., *tap].transpose(0, 2, 1)[:, None]
        return sums.transpose(1, 2, 0, 3).reshape(1, *sums.shape[1:3], -1).astype(np.int32)


def _tap_positions(tap: int, stride: int, dilation: int, outputs: int) -> slice:
    """Return the places where outputs find what one tap multiplies, along one axis."""
    first = tap * dilation
    return slice(first, first + stride * (outputs - 1) + 1, stride)

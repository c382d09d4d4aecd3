"""The protocol of measurers of schedules: a process of this machine (`process_measurer.py`), or a board."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bitsynth.layers.schedule import LayerSchedule


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
        """Seconds after which `measure` is through, but for what it takes to end what it started."""
        ...

    def measure(self, schedule: LayerSchedule, rounds: int) -> Timing:
        """Time the default and `schedule` alternately, `rounds` times each; TrialFailed if that fails.

        Refuted if its results are not those of the default schedule, to the bit.
        """
        ...

"""Subjects of a benchmark of layers: implementations that are compared, and how each is timed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from bitsynth.bench.sampling import sample_calls

Kind = Literal["fp32", "int8", "bitsynth", "packing"]


@dataclass(frozen=True, eq=False)
class Subject:
    """An implementation that is compared: its name and its kind."""

    name: str
    kind: Kind


class TimedSubject(Subject, ABC):
    """A subject that computes every layer, by the layer's name."""

    @abstractmethod
    def time(self, layer: str, repeats: int) -> list[int]:
        """Return nanoseconds of every one of `repeats` calls."""


@dataclass(frozen=True, eq=False)
class LocalSubject(TimedSubject):
    """A subject in this process: one function for each layer, on `threads` threads that must not spin between calls.

    A function that does its work `each` times counts as `each` calls, so that Python's overhead is not measured.
    """

    calls: Mapping[str, Callable[[], object]]
    threads: int
    each: int = 1

    def time(self, layer: str, repeats: int) -> list[int]:
        """Return nanoseconds of every one of `repeats` calls of `layer`."""
        return [t // self.each for t in sample_calls(self.calls[layer], repeats, self.threads)]

"""Chooses among the kernels of several methods, by predicted cycles where throughput bounds mislead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from bitsynth.spec.options import PREDICTED


class _OfMethod(Protocol):
    @property
    def method(self) -> str: ...


Found = TypeVar("Found", bound=_OfMethod)


def taken_first(kernels: Sequence[Found], predicted: Callable[[Found], float | None]) -> list[Found]:
    """Return the kernels, cheapest first, except that the one to take is first.

    One of `PREDICTED` is taken if its `predicted` cycles are fewer than all others' by its share there, or if those of
    no other are known.
    """

    def is_taken(kernel: Found) -> bool:
        if kernel.method not in PREDICTED:
            return True
        others = [x for other in kernels if other is not kernel and (x := predicted(other)) is not None]
        mine = predicted(kernel) if others else None
        return mine is None or mine * PREDICTED[kernel.method] < min(others)

    first = next(filter(is_taken, kernels), kernels[0])
    return sorted(kernels, key=lambda kernel: kernel is not first)

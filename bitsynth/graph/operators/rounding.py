"""Rounding of floats and fractions to integers, in every mode that quantizers have."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from bitsynth.graph.types import Tensor

Round = Callable[[Tensor], Tensor]


class RoundsItself(ABC):
    """Numbers of an arithmetic that has its own way to write each rounding mode."""

    @abstractmethod
    def round_by(self, mode: str) -> Any:
        """Return the numbers rounded to integers."""


def floor(t: Tensor) -> Tensor:
    """Return the greatest integers that are not above the numbers, in the type of the numbers."""
    if t.dtype == object:
        return np.asarray(np.vectorize(math.floor, otypes=[object])(t))
    return np.floor(t)


def ceil(t: Tensor) -> Tensor:
    """Return the least integers that are not below the numbers."""
    return -floor(-t)


def half_even(t: Tensor) -> Tensor:
    """Return the nearest integers; ties go to the even one."""
    if t.dtype != object:
        return np.rint(t)
    return np.asarray(np.vectorize(round, otypes=[object])(t))


def _nearest(t: Tensor, away: bool) -> Tensor:
    """Return the nearest integers; ties go away from 0 if `away`, else toward 0."""
    size = np.abs(t)
    below = floor(size)
    up = size >= below + _half(t) if away else size > below + _half(t)
    return np.where(t < 0, -(below + up), below + up)


def _half(t: Tensor) -> Tensor:
    """Return 1/2 in the type of the numbers."""
    return np.asarray(0.5, None if t.dtype == object else t.dtype)


def half_odd(t: Tensor) -> Tensor:
    """Return the nearest integers; ties go to the odd one, for codes that count from an odd integer."""
    return half_even(t + 1) - 1


def half_away(t: Tensor) -> Tensor:
    """Return the nearest integers; ties go away from 0."""
    return _nearest(t, True)


def half_toward(t: Tensor) -> Tensor:
    """Return the nearest integers; ties go toward 0."""
    return _nearest(t, False)


def away(t: Tensor) -> Tensor:
    """Return the next integers away from 0."""
    return np.where(t < 0, floor(t), ceil(t))


def toward(t: Tensor) -> Tensor:
    """Return the next integers toward 0."""
    return np.where(t < 0, ceil(t), floor(t))


def bipolar(t: Tensor) -> Tensor:
    """Return 1 for numbers of 0 or more, else -1."""
    return np.where(t >= 0, 1, -1)


ROUNDINGS: dict[str, Round] = {
    "ROUND": half_even,
    "HALF_EVEN": half_even,
    "CEIL": ceil,
    "FLOOR": floor,
    "UP": away,
    "DOWN": toward,
    "HALF_UP": half_away,
    "HALF_DOWN": half_toward,
    "HALF_ODD": half_odd,
    "BIPOLAR": bipolar,
}
"""Functions by their name in QONNX, and two more of this table. All are nondecreasing."""
QONNX_ROUNDINGS = tuple(name for name in ROUNDINGS if name not in ("HALF_ODD", "BIPOLAR"))
"""The modes that a file of QONNX may name."""

_AS_WRITTEN: dict[str, Round] = {
    "HALF_UP": lambda t: np.sign(t) * np.floor(np.abs(t) + np.asarray(0.5, t.dtype)),
    "HALF_DOWN": lambda t: np.sign(t) * np.ceil(np.abs(t) - np.asarray(0.5, t.dtype)),
}
"""The formulas of QONNX in floats, which round 0.49999997 up."""


def rounding(mode: str, reference: str) -> Round:
    """Return the function of a mode: of real numbers, or the formula that a float reference computes.

    TensorFlow Lite rounds by `std::round`, which is exact.
    """
    function = ROUNDINGS[mode] if reference in ("exact", "tflite") else _AS_WRITTEN.get(mode, ROUNDINGS[mode])
    return lambda t: t.round_by(mode) if isinstance(t, RoundsItself) else function(t)

"""Rounding to integers, of floats and of fractions, in every mode that quantizers have."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from bitsynth.graph.types import Tensor

Round = Callable[[Tensor], Tensor]


def floor(t: Tensor) -> Tensor:
    """The greatest integers that are not above the numbers, as numbers of their kind."""
    if t.dtype == object:
        return np.asarray(np.vectorize(math.floor, otypes=[object])(t))
    return np.floor(t)


def ceil(t: Tensor) -> Tensor:
    """The least integers that are not below the numbers."""
    return -floor(-t)


def half_even(t: Tensor) -> Tensor:
    """The nearest integers; of two the even one."""
    if t.dtype != object:
        return np.rint(t)
    return np.asarray(np.vectorize(round, otypes=[object])(t))


def _nearest(t: Tensor, away: bool) -> Tensor:
    """The nearest integers; of two the one that is farther from 0, if `away`."""
    size = np.abs(t)
    below = floor(size)
    up = size >= below + _half(t) if away else size > below + _half(t)
    return np.where(t < 0, -(below + up), below + up)


def _half(t: Tensor) -> Tensor:
    """One half, as a number of their kind: of fractions 1/2, which 0.5 is too."""
    return np.asarray(0.5, None if t.dtype == object else t.dtype)


def half_odd(t: Tensor) -> Tensor:
    """Return the nearest integers; of two the odd one, as codes that start at an odd integer round to even."""
    return half_even(t + 1) - 1


def half_away(t: Tensor) -> Tensor:
    """The nearest integers; of two the one farther from 0."""
    return _nearest(t, True)


def half_toward(t: Tensor) -> Tensor:
    """The nearest integers; of two the one nearer to 0."""
    return _nearest(t, False)


def away(t: Tensor) -> Tensor:
    """The next integers away from 0."""
    return np.where(t < 0, floor(t), ceil(t))


def toward(t: Tensor) -> Tensor:
    """The next integers toward 0."""
    return np.where(t < 0, ceil(t), floor(t))


def bipolar(t: Tensor) -> Tensor:
    """1 of what is 0 or more, else -1."""
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
"""By the name of QONNX, and two more of this table. None ever falls where its argument rises."""
QONNX_ROUNDINGS = tuple(name for name in ROUNDINGS if name not in ("HALF_ODD", "BIPOLAR"))
"""The names that a file of QONNX may have."""

_AS_WRITTEN: dict[str, Round] = {
    "HALF_UP": lambda t: np.sign(t) * np.floor(np.abs(t) + np.asarray(0.5, t.dtype)),
    "HALF_DOWN": lambda t: np.sign(t) * np.ceil(np.abs(t) - np.asarray(0.5, t.dtype)),
}
"""QONNX's formulas in floats, which round 0.49999997 up."""


def rounding(mode: str, reference: str) -> Round:
    """The function of a mode: of real numbers, or the formula that a float reference computes."""
    return ROUNDINGS[mode] if reference == "exact" else _AS_WRITTEN.get(mode, ROUNDINGS[mode])

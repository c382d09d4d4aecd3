"""Arithmetic of fractions: exact, slow, for the few numbers that intervals leave open."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from bitsynth.graph.arithmetic.arrays import OfArrays
from bitsynth.graph.arithmetic.base import Quantity
from bitsynth.graph.arithmetic.real_functions import FUNCTIONS
from bitsynth.graph.types import Edge, Integers, Tensor


class Fractions(OfArrays):
    """Object arrays of fractions."""

    reference = "exact"

    def number(self, value: Tensor, edge: Edge) -> Quantity:
        kind = edge.type
        made = self.constant(value)
        if not isinstance(kind, Integers):
            return made
        return (made - self.constant(kind.zero)) * self.constant(kind.scale)

    def constant(self, value: Any) -> Quantity:
        array = np.asarray(value)
        return array if array.dtype == object else _fractions(array)

    def typed(self, number: Quantity, dtype: str) -> Quantity:
        return number

    def matmul(self, a: Quantity, b: Quantity) -> Quantity:
        return np.matmul(a, b)

    def sum(self, a: Quantity, axes: tuple[int, ...]) -> Quantity:
        return a.sum(axes, keepdims=True)

    def call(self, name: str, a: Quantity) -> Quantity:
        return np.vectorize(FUNCTIONS[name], otypes=[object])(a)


class SomeFractions(Fractions):
    """Fractions of the numbers that a mask picks, in a row, and of what constants are there."""

    def __init__(self, mask: Tensor) -> None:
        self._mask = mask

    def constant(self, value: Any) -> Quantity:
        array = np.asarray(value)
        if array.dtype == object:
            return array
        return super().constant(np.broadcast_to(array, self._mask.shape)[self._mask])

    def steps(
        self, function: Callable[[Tensor], Tensor], number: Quantity, *, exactly: Callable[[Tensor], Tensor]
    ) -> Tensor:
        return super().steps(function, number, exactly=exactly).astype(object)


def _fractions(array: Tensor) -> Tensor:
    made = np.empty(array.shape, object)
    flat = made.reshape(-1)
    for k, value in enumerate(array.reshape(-1).tolist()):
        flat[k] = Fraction(value)
    return made

"""Arithmetic of IEEE floats of the file's types, for the references onnxruntime and onnx."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bitsynth.graph.arithmetic.base import ArrayArithmetic, Quantity
from bitsynth.graph.arithmetic.fractions import Fractions
from bitsynth.graph.arithmetic.intervals import Interval, Intervals
from bitsynth.graph.types import Edge, Integers, Tensor, cast, numpy_type

_INTERVALS, _FRACTIONS = Intervals(), Fractions()
Indices = tuple[Tensor, ...]
"""Indices of elements, one array for each axis."""


class Floats(ArrayArithmetic):
    """Arrays of floats; each operation, sum and function is rounded once to the type of its operands."""

    def __init__(self, reference: str) -> None:
        self.reference = reference

    def number(self, value: Tensor, edge: Edge) -> Quantity:
        kind = edge.type
        if not isinstance(kind, Integers):
            return value
        if not edge.is_float:
            return value - kind.zero.astype(np.int64)
        dtype = numpy_type(edge.dtype)
        return (value - kind.zero).astype(dtype) * kind.scale.astype(dtype)

    def constant(self, value: Any) -> Quantity:
        return np.asarray(value)

    def cast(self, number: Quantity, dtype: str) -> Quantity:
        return cast(number, dtype)

    def matmul(self, a: Quantity, b: Quantity) -> Quantity:
        outer = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        rows, columns = (np.broadcast_to(x, (*outer, *x.shape[-2:])) for x in (a, b.swapaxes(-1, -2)))

        def exactly(where: Indices) -> Tensor:
            first, second = rows[(*where[:-2], where[-2])], columns[(*where[:-2], where[-1])]
            return np.asarray((_FRACTIONS.constant(first) * _FRACTIONS.constant(second)).sum(-1))

        return round_once(_INTERVALS.matmul(a, b), np.result_type(a, b), exactly)

    def sum(self, a: Quantity, axes: tuple[int, ...]) -> Quantity:
        kept = [k for k in range(a.ndim) if k not in axes]
        rows = a.transpose(*kept, *axes).reshape(*(a.shape[k] for k in kept), -1)

        def exactly(where: Indices) -> Tensor:
            return np.asarray(_FRACTIONS.constant(rows[tuple(where[k] for k in kept)]).sum(-1))

        return round_once(_INTERVALS.sum(a, axes), a.dtype, exactly)

    def call(self, name: str, a: Quantity) -> Quantity:
        def exactly(where: Indices) -> Tensor:
            return np.asarray(_FRACTIONS.call(name, _FRACTIONS.constant(a[where])))

        return round_once(_INTERVALS.call(name, a), a.dtype, exactly)


def round_once(bounds: Interval, dtype: np.dtype[Any], exactly: Callable[[Indices], Tensor]) -> Tensor:
    """Round the real numbers within `bounds` to a float type, ties to even; the result is the same on every host.

    `exactly` returns fractions for the places where both bounds do not round to one number.
    """
    with np.errstate(all="ignore"):
        low, high = bounds.low.astype(dtype), bounds.high.astype(dtype)
    mask = np.asarray((low != high) & np.isfinite(low) & np.isfinite(high))
    if mask.any():
        low = np.array(low)
        where = mask.nonzero() if mask.ndim else ()
        low[where] = _nearest(exactly(where), dtype)
    return low


def _nearest(exact: Tensor, dtype: np.dtype[Any]) -> Tensor:
    """Round fractions to a float type, ties to even."""
    near = exact.astype(np.float64).astype(dtype)
    below = np.where(_FRACTIONS.constant(near) <= exact, near, np.nextafter(near, dtype.type(-np.inf)))
    above = np.nextafter(below, dtype.type(np.inf))
    middle = (_FRACTIONS.constant(below) + _FRACTIONS.constant(above)) / 2
    odd = below.view(f"u{below.itemsize}") & 1 == 1
    return np.where((exact > middle) | ((exact == middle) & odd), above, below)

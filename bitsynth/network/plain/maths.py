"""The arithmetic on terms of C: real numbers in float64, or the file's floats as the references have them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bitsynth.graph.arithmetic import Quantity
from bitsynth.graph.arithmetic.base import Arithmetic
from bitsynth.graph.types import Edge, Integers, Tensor, numpy_type
from bitsynth.network.plain.terms import LoopTerm
from bitsynth.network.plain.writer import REAL, WHOLE, Writer


class InC(Arithmetic):
    """Arithmetic on terms of a loop.

    Args:
        writer: The loop's.
        reference: The named reference that defines numbers.
    """

    def __init__(self, writer: Writer, reference: str) -> None:
        self.writer, self.reference = writer, reference

    @property
    def of_integers(self) -> Arithmetic:
        return InC(self.writer, "onnx") if self.reference == "exact" else self

    def number(self, value: Any, edge: Edge) -> Quantity:
        kind = edge.type
        if not isinstance(kind, Integers):
            return self.real(value) if self.reference == "exact" else value
        plain = kind.zero.astype(np.int64)
        centred = value if not plain.any() else value - plain
        if self.reference == "exact":
            return self._scale(value if not kind.is_centred else centred, kind)
        if not edge.is_float:
            return centred
        dtype = numpy_type(edge.dtype)
        if not kind.is_centred:
            return (value - kind.zero).astype(dtype) * self.constant(kind.scale.astype(dtype))
        number = centred.astype(dtype)
        return number if (kind.scale == 1).all() else number * self.constant(kind.scale.astype(dtype))

    def _scale(self, value: LoopTerm, kind: Integers) -> LoopTerm:
        scaled = self.real(value)
        if not kind.is_centred:
            scaled = scaled - self.constant(kind.zero)
        return scaled if (kind.scale == 1).all() else scaled * self.constant(kind.scale)

    def real(self, value: LoopTerm) -> LoopTerm:
        """Return a term as a real number."""
        return self.writer.cast(value, REAL)

    def constant(self, value: Any) -> Quantity:
        if isinstance(value, LoopTerm):
            return self.real(value) if self.reference == "exact" else value
        constant = self.writer.constant(np.asarray(value))
        return self.real(constant) if self.reference == "exact" else constant

    def cast(self, number: Quantity, dtype: str) -> Quantity:
        if self.reference == "exact":
            return number
        return self.writer.cast(number, numpy_type(dtype))

    def move(self, apply: Callable[..., Tensor], *numbers: Quantity) -> Quantity:
        raise TypeError("elements of a loop do not move")

    def steps(
        self, function: Callable[[Tensor], Tensor], number: Quantity, *, exactly: Callable[[Tensor], Tensor]
    ) -> Tensor:
        rounded: Any = function(number)
        whole: Any = rounded.astype(WHOLE)
        return whole if rounded.value is not None else replace(whole, whole=rounded)  # type: ignore[no-any-return]

    def matmul(self, a: Quantity, b: Quantity) -> Quantity:
        raise TypeError("a loop over elements has no sums")

    def sum(self, a: Quantity, axes: tuple[int, ...]) -> Quantity:
        raise TypeError("a loop over elements has no sums")

    def max(self, a: Quantity, axes: tuple[int, ...]) -> Quantity:
        raise TypeError("a loop over elements has no maxima")

    def maximum(self, a: Quantity, b: Quantity) -> Quantity:
        return np.maximum(a, b)

    def minimum(self, a: Quantity, b: Quantity) -> Quantity:
        return np.minimum(a, b)

    def call(self, name: str, a: Quantity) -> Quantity:
        return self.writer.call(name, a)


def within(term: LoopTerm, edge: Edge) -> LoopTerm:
    """Return the integers of an edge, bounded by its range."""
    kind = edge.integers
    return term.within(kind.least, kind.most)

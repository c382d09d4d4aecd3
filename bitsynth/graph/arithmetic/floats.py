"""Arithmetic of IEEE floats, as the file's types have them: that of ONNX Runtime and of ONNX's reference."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from bitsynth.graph.arithmetic.base import Arithmetic, Quantity
from bitsynth.graph.types import Edge, Integers, Tensor, cast, numpy_type

_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sqrt": np.sqrt,
    "exp": np.exp,
    "tanh": np.tanh,
    "sigmoid": lambda a: 1 / (1 + np.exp(-a)),
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
}


class Floats(Arithmetic):
    """Arrays of numpy, each operation rounded to the type at hand."""

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

    def typed(self, number: Quantity, dtype: str) -> Quantity:
        return cast(number, dtype)

    def move(self, apply: Callable[..., Tensor], *numbers: Quantity) -> Quantity:
        return apply(*numbers)

    def steps(
        self, function: Callable[[Tensor], Tensor], number: Quantity, *, exactly: Callable[[Tensor], Tensor]
    ) -> Tensor:
        return function(number).astype(np.int64)

    def matmul(self, a: Quantity, b: Quantity) -> Quantity:
        return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.result_type(a, b))

    def maximum(self, a: Quantity, b: Quantity) -> Quantity:
        return np.maximum(a, b)

    def minimum(self, a: Quantity, b: Quantity) -> Quantity:
        return np.minimum(a, b)

    def sum(self, a: Quantity, axes: tuple[int, ...]) -> Quantity:
        return a.astype(np.float64).sum(axes, keepdims=True).astype(a.dtype)

    def max(self, a: Quantity, axes: tuple[int, ...]) -> Quantity:
        return a.max(axes, keepdims=True)

    def call(self, name: str, a: Quantity) -> Quantity:
        return _FUNCTIONS[name](a.astype(np.float64)).astype(a.dtype)

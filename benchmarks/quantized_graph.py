"""Runs QONNX graphs whose matrix products are integers: codes in a kernel, scales outside.

A quantizer's output is kept as integers with a scale and the operand that holds them.
`MatMul` takes two of these outputs; every other node is float32 arithmetic in numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import SpecError
from bitsynth.spec.matmul import Encoding, MatmulOperand

Array = NDArray[Any]
Attributes = dict[str, Any]
ROUNDINGS: dict[str, Callable[[Array], Array]] = {"ROUND": np.rint, "FLOOR": np.floor, "CEIL": np.ceil}


@dataclass(frozen=True)
class Quantized:
    """The values `integers * scale`; `operand` holds the integers."""

    integers: NDArray[np.int64]
    scale: NDArray[np.float32]
    operand: MatmulOperand

    @property
    def values(self) -> Array:
        """The values as floats."""
        return (self.integers * self.scale).astype(np.float32)


Value = Array | Quantized
Product = Callable[[str, Quantized, Quantized], NDArray[np.integer[Any]]]


class Graph:
    """The nodes and constants of one model."""

    def __init__(self, path: Path) -> None:
        import onnx

        try:
            graph = onnx.load(str(path)).graph
        except Exception as error:
            raise SpecError(f"{path} is not an ONNX model: {error}") from None
        self.path = path
        self.constants = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
        self.nodes = list(graph.node)
        self.outputs = [o.name for o in graph.output]
        self.inputs = [i.name for i in graph.input if i.name not in self.constants]
        self.attribute = onnx.helper.get_attribute_value

    def run(self, inputs: Array, product: Product) -> Array:
        """The first output for `inputs`; `product(node, a, w)` multiplies integers."""
        edges: dict[str, Value] = {**self.constants, self.inputs[0]: inputs}
        handlers: dict[str, Callable[..., Value]] = {**HANDLERS, "MatMul": partial(_matmul, product)}
        for node in self.nodes:
            if node.op_type not in handlers:
                raise SpecError(
                    f"{self.path}: no meaning for node {node.op_type}; known: {', '.join(sorted(handlers))}"
                )
            given = {a.name: self.attribute(a) for a in node.attribute}
            given["where"] = f"{node.op_type} {node.output[0]}"
            edges[node.output[0]] = handlers[node.op_type](given, *(edges[name] for name in node.input))
        return values(edges[self.outputs[0]])


def values(value: Value) -> Array:
    """Plain numbers."""
    return value.values if isinstance(value, Quantized) else value


def _matmul(product: Product, given: Attributes, a: Value, w: Value) -> Array:
    if not isinstance(a, Quantized) or not isinstance(w, Quantized):
        raise SpecError(f"{given['where']}: both operands must come from quantizers")
    if a.scale.size != 1 or w.scale.size not in (1, w.integers.shape[1]):
        raise SpecError(f"{given['where']}: wants one scale for activations and one a column for weights")
    scale = (a.scale.reshape(1, 1) * w.scale.reshape(1, -1)).astype(np.float32)
    return product(given["where"], a, w).astype(np.float32) * scale


def _quant(given: Attributes, x: Value, scale: Array, zero_point: Array, bits: Array) -> Quantized:
    width, signed, narrow = int(bits), bool(given["signed"]), bool(given["narrow"])
    if np.any(zero_point) or width != bits:
        raise SpecError(f"{given['where']}: zero point {zero_point} with {bits} bits; wants 0 and a whole number")
    rounding = given["rounding_mode"].decode()
    if rounding not in ROUNDINGS:
        raise SpecError(f"{given['where']}: unknown rounding {rounding}; known: {', '.join(ROUNDINGS)}")
    low = -(1 << (width - 1)) + narrow if signed else 0
    high = (1 << (width - 1)) - 1 if signed else (1 << width) - 1 - narrow
    ternary = (signed, narrow, width) == (True, True, 2)
    encoding = Encoding.TERNARY if ternary else Encoding.SIGNED if signed else Encoding.UNSIGNED
    integers = np.clip(ROUNDINGS[rounding](values(x) / scale), low, high).astype(np.int64)
    return Quantized(integers, np.asarray(scale, np.float32), MatmulOperand(width, encoding))


def _bipolar(given: Attributes, x: Value, scale: Array) -> Quantized:
    integers = np.where(values(x) >= 0, 1, -1).astype(np.int64)
    return Quantized(integers, np.asarray(scale, np.float32), MatmulOperand(1, Encoding.BIPOLAR))


def _batch_norm(given: Attributes, x: Value, *statistics: Array) -> Array:
    numbers = values(x)
    shape = (1, -1) + (1,) * (numbers.ndim - 2)
    gain, bias, mean, variance = (s.reshape(shape) for s in statistics)
    return (numbers - mean) / np.sqrt(variance + np.float32(given.get("epsilon", 1e-5))) * gain + bias


def _transpose(given: Attributes, x: Value) -> Value:
    if not isinstance(x, Quantized):
        return x.transpose(given.get("perm"))
    if x.scale.size != 1:
        raise SpecError(f"{given['where']}: of a quantizer with several scales is not supported")
    return replace(x, integers=x.integers.transpose(given.get("perm")))


def _reshape(given: Attributes, x: Value, shape: Array) -> Array:
    numbers = values(x)
    return numbers.reshape([numbers.shape[i] if n == 0 else int(n) for i, n in enumerate(shape)])


def _unsqueeze(given: Attributes, x: Value, axes: Array | None = None) -> Array:
    return np.expand_dims(values(x), tuple(given["axes"] if axes is None else axes))


def _arithmetic(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda given, *args: function(*map(values, args))


HANDLERS: dict[str, Callable[..., Value]] = {
    "Add": _arithmetic(np.add),
    "BatchNormalization": _batch_norm,
    "BipolarQuant": _bipolar,
    "Concat": lambda given, *args: np.concatenate(list(map(values, args)), given["axis"]),
    "Div": _arithmetic(np.divide),
    "Flatten": lambda given, x: values(x).reshape(int(np.prod(values(x).shape[: given.get("axis", 1)])), -1),
    "Gather": lambda given, x, index: np.take(values(x), values(index), given.get("axis", 0)),
    "Mul": _arithmetic(np.multiply),
    "Pow": _arithmetic(np.power),
    "Quant": _quant,
    "Relu": lambda given, x: np.maximum(values(x), 0),
    "Reshape": _reshape,
    "Shape": lambda given, x: np.array(values(x).shape, np.int64),
    "Sub": _arithmetic(np.subtract),
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}

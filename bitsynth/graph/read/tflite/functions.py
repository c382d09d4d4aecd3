"""TensorFlow Lite nodes of one int8 code: softmax in fixed point, tables, and functions with a slope below 0."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bitsynth.graph.operators.pools import high_product
from bitsynth.graph.read.file_node import FileNode, Quantizer, Reader
from bitsynth.graph.read.tflite.floats import read_softmax_axes
from bitsynth.graph.read.tflite.shared import (
    CODES,
    CodeGrid,
    centre,
    code_limits,
    codes_of,
    quantize_multipliers,
    rescale,
    shift_right,
)
from bitsynth.graph.types import Tensor, limits

# Softmax in fixed point: numbers of 5 bits before the point and 26 after, and powers of e in 31 bits.


def _read_softmax(node: FileNode) -> tuple[str, ...]:
    given, result, beta = codes_of(node, "in0"), codes_of(node, "out0"), float(node.get("Beta", 1.0))
    if result.one_scale != np.float32(1 / 256) or result.one_zero != limits(CODES)[0]:
        raise node.fail("its result is not on the scale of 1 / 256 from -128, which the format prescribes")
    if not math.isfinite(beta) or beta <= 0:
        raise node.fail(f"beta is {beta}; it must be above 0")
    low, high = limits(CODES)
    powers = _powers(np.float64(given.one_scale), beta)
    return (node.add("softmax_codes", node.edge(0), axes=read_softmax_axes(node), powers=powers, low=low, high=high),)


_POINT = 26
_QUARTERS = {-2: 1672461947, -1: 1302514674, 0: 790015084, 1: 290630308, 2: 39332535, 3: 720401, 4: 242}
"""e^-(2^k) in 31 bits, by k (gemmlowp, `exp_on_negative_values`)."""


def _powers(scale: float, beta: float) -> Tensor:
    """Return e^-(scale * beta * d) in 31 bits for d = 0 .. 255, 0 where the kernel leaves codes out.

    As `PreprocessSoftmaxScaling` and `CalculateInputRadius` (kernels/internal/quantization_util.cc) prepare it, and
    `exp_on_negative_values` (gemmlowp, fixedpoint.h) computes it.
    """
    multiplier, exponent = quantize_multipliers(min(beta * scale * (1 << _POINT), float((1 << 31) - 1)))
    left = max(0, int(exponent))
    radius = math.floor(((1 << 5) - 1) * 2.0 ** (_POINT - left))
    distances = np.arange(256)
    numbers = high_product(-np.minimum(distances, radius) << left, multiplier)
    return np.where(distances > radius, 0, _power(numbers))


def _power(x: Tensor) -> Tensor:
    """Return e^x in 31 bits for x <= 0 with 26 bits after the point."""
    quarter = 1 << (_POINT - 2)
    part = (x & (quarter - 1)) - quarter
    power, rest = _power_above_quarter(part << 5), part - x
    for k, factor in _QUARTERS.items():
        power = np.where(rest >> (_POINT + k) & 1, high_product(power, np.asarray(factor)), power)
    return np.where(x == 0, (1 << 31) - 1, power)


def _power_above_quarter(x: Tensor) -> Tensor:
    """Return e^x in 31 bits for -1/4 <= x < 0: a polynomial around -1/8."""
    at = x + (1 << 28)
    square = high_product(at, at)
    cube, fourth = high_product(square, at), high_product(square, square)
    inner = high_product(shift_right(fourth, 2) + cube, np.asarray(715827883)) + square
    constant = np.asarray(1895147668)
    return constant + high_product(constant, at + shift_right(inner, 1))


# Functions of one code, as tables.


def add_table(node: FileNode, table: Tensor) -> str:
    """Return the edge of a function of codes, given for -128 .. 127."""
    plain = node.add("view", node.edge(0), scale=1.0, zero=0.0, dtype=CODES)
    return node.add("lookup", plain, table=table.astype(np.int64), first=limits(CODES)[0], dtype=CODES)


def _function_reader(function: Callable[[Tensor], Tensor]) -> Reader:
    """Return the reader of a function that the kernels have as a table of 256 codes, computed in float32.

    As `LUTPopulate` (kernels/internal/common.h).
    """

    def read(node: FileNode) -> tuple[str, ...]:
        given, result = codes_of(node, "in0"), codes_of(node, "out0")
        low, high = limits(CODES)
        numbers = given.one_scale * np.arange(low - given.one_zero, high + 1 - given.one_zero).astype(np.float32)
        results = function(numbers).astype(np.float32) * (np.float32(1) / result.one_scale)
        rounded = np.sign(results) * np.floor(np.abs(results.astype(np.float64)) + 0.5)
        table = np.clip(rounded.astype(np.int64) + result.one_zero, low, high)
        return (add_table(node, table),)

    return read


def _read_hard_swish(node: FileNode) -> tuple[str, ...]:
    """Read HARD_SWISH as the table of what its kernel computes in 16-bit fixed point.

    As `HardSwish` (kernels/internal/reference/hard_swish.h) with the parameters of kernels/activations.cc.
    """
    given, result = codes_of(node, "in0"), codes_of(node, "out0")
    low, high = limits(CODES)
    hires = np.float32(1 / 128) * given.one_scale
    factor, exponent = _short_multiplier(np.float64(hires / result.one_scale))
    gate_factor, gate_exponent = _short_multiplier(np.float64(hires / np.float32(3 / 32768)))
    if exponent > 0:
        raise node.fail("the scale of its input is more than 128 times its result's scale")
    x = (np.arange(low, high + 1) - given.one_zero) << 7
    gate = _saturate(x << max(gate_exponent - 1, 0))
    gate = _short_product(gate, gate_factor)
    gate = _saturate(gate << 1) if gate_exponent > 0 else gate
    gate = shift_right(gate, -gate_exponent) if gate_exponent < 0 else gate
    product = ((gate + (1 << 15)) >> 1) * _short_product(x, factor)
    halved = np.sign(product) * (np.abs(product) >> 15)
    numbers = shift_right(halved, -exponent) if exponent < 0 else halved
    return (add_table(node, np.clip(numbers + result.one_zero, low, high)),)


def _short_multiplier(factor: np.float64) -> tuple[int, int]:
    """Return a factor as a multiplier of 15 bits and an exponent (DownScaleInt32ToInt16Multiplier)."""
    multiplier, exponent = quantize_multipliers(factor)
    return min((int(multiplier) + (1 << 15)) >> 16, (1 << 15) - 1), int(exponent)


def _short_product(a: Tensor, b: int) -> Tensor:
    """Return a * b / 2^15 to nearest, ties up (SaturatingRoundingDoublingHighMul of int16)."""
    return np.asarray((a * b + (1 << 14)) >> 15)


def _saturate(x: Tensor) -> Tensor:
    return np.clip(x, -(1 << 15), (1 << 15) - 1)


def _sigmoid(x: Tensor) -> Tensor:
    return np.asarray((1 / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32))


def _tanh(x: Tensor) -> Tensor:
    return np.asarray(np.tanh(x.astype(np.float64)).astype(np.float32))


def _relu_reader(name: str) -> Reader:
    """Return the reader of RELU, RELU6 or RELU_N1_TO_1: codes on another scale, clipped."""

    def read(node: FileNode) -> tuple[str, ...]:
        given, result = codes_of(node, "in0"), codes_of(node, "out0")
        number = {"RELU": 1, "RELU_N1_TO_1": 2, "RELU6": 3}[name]
        low, high = code_limits(_with_activation(node, number), result)
        factor = np.float64(given.one_scale / result.one_scale)
        return (rescale(node, centre(node, 0), factor, zero=result.one_zero, within=(low, high)),)

    return read


def _with_activation(node: FileNode, number: int) -> FileNode:
    return replace(node, attributes={**node.attributes, "FusedActivationFunction": number})


def _read_leaky_relu(node: FileNode) -> tuple[str, ...]:
    """Read LEAKY_RELU: codes below the zero point times alpha, on the scale of the result; others without."""
    given, result = codes_of(node, "in0"), codes_of(node, "out0")
    alpha = np.float32(node.get("Alpha", 0.0))
    above = np.float64(given.one_scale / result.one_scale)
    below = np.float64(given.one_scale * alpha / result.one_scale)
    if not 0 <= below < math.inf:
        raise node.fail(f"alpha is {alpha}; it must be 0 or more for codes")
    plain, nothing = centre(node, 0), node.constant(np.zeros((), np.int32))
    parts = [rescale(node, node.add(cut, plain, nothing), factor) for cut, factor in (("max", above), ("min", below))]
    return (_shift_and_clip(node, node.add("add", *parts), result),)


def _shift_and_clip(node: FileNode, edge: str, result: CodeGrid) -> str:
    """Return the edge of integers plus the zero point of the result, as codes."""
    low, high = limits(CODES)
    quantizer = Quantizer("ROUND", (low, high), 1.0, np.asarray(result.one_zero))
    return quantizer.add(node, edge, real="float64", dtype=CODES)


def _read_prelu(node: FileNode) -> tuple[str, ...]:
    """Read PRELU: codes below the zero point times the codes of the slopes, on the scale of the result."""
    given, slopes, result = codes_of(node, "in0"), codes_of(node, "in1"), codes_of(node, "out0")
    plain, nothing = centre(node, 0), node.constant(np.zeros((), np.int32))
    above = rescale(node, node.add("max", plain, nothing), np.float64(given.one_scale) / np.float64(result.one_scale))
    product = node.add("mul", node.add("min", plain, nothing), centre(node, 1, slopes))
    factor = np.float64(given.one_scale) * np.float64(slopes.one_scale) / np.float64(result.one_scale)
    return (_shift_and_clip(node, node.add("add", above, rescale(node, product, factor)), result),)


FUNCTION_READERS: dict[str, Reader] = {
    "HARD_SWISH": _read_hard_swish,
    "LEAKY_RELU": _read_leaky_relu,
    "LOGISTIC": _function_reader(_sigmoid),
    "PRELU": _read_prelu,
    "RELU": _relu_reader("RELU"),
    "RELU6": _relu_reader("RELU6"),
    "RELU_N1_TO_1": _relu_reader("RELU_N1_TO_1"),
    "SOFTMAX": _read_softmax,
    "TANH": _function_reader(_tanh),
}
"""By operator."""

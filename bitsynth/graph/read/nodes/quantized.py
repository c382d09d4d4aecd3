"""Quantized nodes: QuantizeLinear of standard ONNX and what computes on its codes; nodes of vendors' tools.

Of vendors: OpenVINO, Vitis AI and Quark; requantization of Quantlab, Deeploy and DORY by multiply, add and shift.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bitsynth.graph.read.file import dtype_of
from bitsynth.graph.read.file_node import (
    MAX_FOLDING_ERROR,
    FileNode,
    Quantizer,
    Reader,
    align_parameter,
    cast_to,
    compare_with_zero,
    quantize_to,
    require_positive,
)
from bitsynth.graph.read.nodes.products_and_pools import add_convolution, reshape_to_channels
from bitsynth.graph.types import Integers, Tensor, cast, full_range, is_float
from bitsynth.graph.types import limits as limits_of


def _align_to_axis(node: FileNode, parameter: Tensor, what: str) -> Tensor:
    """Return a scale or zero point that broadcasts to the first input: one for all, or along an axis, or by block."""
    if parameter.size == 1 and parameter.ndim <= 1:
        return parameter.reshape(())
    shape, axis = node.shape(), node.axis(node.get("axis", 1))
    if parameter.ndim == 1 and parameter.size == shape[axis]:
        return parameter.reshape([-1 if k == axis else 1 for k in range(len(shape))])
    block = int(node.get("block_size", 0))
    if block > 0 and parameter.ndim == len(shape):
        repeated = np.repeat(parameter, block, axis)
        if repeated.shape[axis] >= shape[axis]:
            blocks = repeated.take(range(shape[axis]), axis)
            if blocks.shape == shape:
                return blocks
    raise node.fail(f"{what} of shape {parameter.shape} does not fit axis {axis} of {shape}")


def zero_point_of(node: FileNode, index: int) -> Tensor:
    """Return a zero point; 0 if it is left out."""
    return node.value(index, "zero point") if node.has(index) else np.zeros((), np.int64)


def read_quantize_linear(node: FileNode) -> tuple[str, ...]:
    """Read QuantizeLinear of any version and domain."""
    named = node.get("output_dtype", 0)
    dtype = node.input(2).dtype if node.has(2) else dtype_of(named) if named else "uint8"
    if is_float(dtype) or full_range(dtype).bits > 16:
        raise node.fail(f"results of type {dtype} are not compiled; known: integers of 2 to 16 bits")
    if node.graph.in_floats(node.edge(1)) is None:
        return (_quantize_by_computed_scale(node, dtype),)
    scale = require_positive(node, _align_to_axis(node, node.value(1, "scale"), "scale"))
    zero = _align_to_axis(node, zero_point_of(node, 2), "zero point")
    x = node.edge(0) if node.input(0).is_float else cast_to(node, node.edge(0), str(scale.dtype))
    real = dtype_of(node.get("precision")) if node.get("precision") else ""
    return (quantize_to(node, x, scale, zero, dtype, real=real),)


def _quantize_by_computed_scale(node: FileNode, dtype: str) -> str:
    """Return the edge of a quantizer whose scale is computed at run time, as division, rounding and clipping."""
    low, high = limits_of(dtype)
    codes = node.add("round", node.add("div", node.edge(0), node.edge(1)), rounding="ROUND")
    if node.has(2):
        codes = node.add("add", codes, cast_to(node, node.edge(2), node.input(0).dtype))
    return cast_to(node, node.add("clip", codes, low=float(low), high=float(high)), dtype)


def read_dequantize_linear(node: FileNode) -> tuple[str, ...]:
    """Read DequantizeLinear of any version and domain."""
    node.integers(0)
    raw = node.value(1, "scale")
    scale = require_positive(node, _align_to_axis(node, raw, "scale"))
    zero = _align_to_axis(node, zero_point_of(node, 2), "zero point")
    named = node.get("output_dtype", 0)
    dtype = dtype_of(named) if named else str(raw.dtype)
    return (node.add("view", node.edge(0), scale=scale.astype(np.float64), zero=zero.astype(np.float64), dtype=dtype),)


def subtract_zero_point(node: FileNode, index: int, zero_index: int, axis: int | None = None) -> str:
    """Return the edge of an input's integers minus their zero point, as int32; several zero points lie along `axis`."""
    node.integers(index)
    if not node.has(zero_index):
        return _view_from_zero(node, index, np.zeros(()))
    edge, shape, rank = node.edge(zero_index), node.shape(zero_index), len(node.shape(index))
    if len(shape) == 1 and shape[0] > 1 and axis is not None:
        edge = node.reshape(edge, tuple(shape[0] if k == axis % rank else 1 for k in range(rank)))
    zero = node.graph.value(edge)
    if zero is None:
        return node.add("sub", cast_to(node, node.edge(index), "int32"), cast_to(node, edge, "int32"))
    return _view_from_zero(node, index, zero.reshape(()) if zero.size == 1 else zero)


def _view_from_zero(node: FileNode, index: int, zero: Tensor) -> str:
    """Return the edge of an input's integers minus constant zero points, which a view does without arithmetic."""
    return node.add("view", node.edge(index), scale=1.0, zero=zero.astype(np.float64), dtype="int32")


def scale_of(node: FileNode, index: int) -> Tensor:
    """Return a constant scale; SpecError unless it is above 0."""
    return require_positive(node, node.value(index, "scale"))


def requantize(
    node: FileNode,
    sums: str,
    factors: tuple[Tensor, Tensor, Tensor],
    zero: Tensor,
    dtype: str,
    *,
    zero_first: bool = False,
) -> str:
    """Return the edge of accumulators as codes: times the scales of both factors, over the scale of the result.

    The zero point is added after rounding, or before it with `zero_first`.
    """
    low, high = limits_of(dtype)
    return node.add(
        "requantize",
        sums,
        factors=factors,
        zero=zero.reshape(()).astype(np.int64) if zero.size == 1 else zero.astype(np.int64),
        low=low,
        high=high,
        rounding="ROUND",
        zero_first=zero_first,
        out_scale=1.0,
        out_zero=0.0,
        dtype=dtype,
    )


def align_per_channel(scale: Tensor, rank: int, axis: int) -> Tensor:
    """Return a scale that broadcasts along `axis` of an edge of `rank` axes."""
    if scale.size == 1:
        return scale.reshape(())
    return scale if scale.ndim > 1 else scale.reshape([-1 if k == axis % rank else 1 for k in range(rank)])


def out_dtype(node: FileNode, index: int) -> str:
    """Return the type of the results: the type of their zero point, else of the first input."""
    return node.input(index).dtype if node.has(index) else node.input(0).dtype


def read_qlinear_conv(node: FileNode) -> tuple[str, ...]:
    """Read QLinearConv: a convolution of codes, a bias, and requantization."""
    rank = len(node.shape())
    sums = add_convolution(node, subtract_zero_point(node, 0, 2), subtract_zero_point(node, 3, 5, 0), dtype="int32")
    if node.has(8):
        sums = node.add("add", sums, reshape_to_channels(node, node.edge(8), rank))
    factors = (
        scale_of(node, 1).reshape(()),
        align_per_channel(scale_of(node, 4), rank, 1),
        scale_of(node, 6).reshape(()),
    )
    return (requantize(node, sums, factors, zero_point_of(node, 7), out_dtype(node, 7)),)


def _read_qlinear_matmul(node: FileNode) -> tuple[str, ...]:
    rank = max(len(node.shape(0)), len(node.shape(3)))
    sums = node.add("matmul", subtract_zero_point(node, 0, 2, -2), subtract_zero_point(node, 3, 5, -1), dtype="int32")
    factors = (
        align_per_channel(scale_of(node, 1), rank, -2),
        align_per_channel(scale_of(node, 4), rank, -1),
        scale_of(node, 6).reshape(()),
    )
    return (requantize(node, sums, factors, zero_point_of(node, 7), out_dtype(node, 7)),)


def _read_conv_integer(node: FileNode) -> tuple[str, ...]:
    return (add_convolution(node, subtract_zero_point(node, 0, 2), subtract_zero_point(node, 1, 3, 0), dtype="int32"),)


def _read_matmul_integer(node: FileNode) -> tuple[str, ...]:
    return (
        node.add("matmul", subtract_zero_point(node, 0, 2, -2), subtract_zero_point(node, 1, 3, -1), dtype="int32"),
    )


def read_dynamic_quantize_linear(node: FileNode) -> tuple[str, ...]:
    """Read DynamicQuantizeLinear: scale and zero point are computed from the input's range, as ONNX defines them.

    The scale of zeros alone is 1, so that nothing is divided by 0.
    """
    axes, zero = tuple(range(len(node.shape()))), node.constant_like(0.0)
    extremes = [
        node.add(m, node.add(r, node.edge(0), axes=axes), zero)
        for m, r in (("max", "reduce_max"), ("min", "reduce_min"))
    ]
    high, low = (node.reshape(x, ()) for x in extremes)
    alike = cast_to(node, compare_with_zero(node, node.add("sub", low, high), strict=False), node.input(0).dtype)
    scale = node.add("add", node.add("div", node.add("sub", high, low), node.constant_like(255.0)), alike)
    start = node.add("clip", node.add("neg", node.add("div", low, scale)), low=0.0, high=255.0)
    point = node.add("round", start, rounding="ROUND")
    codes = node.add("add", node.add("round", node.add("div", node.edge(0), scale), rounding="ROUND"), point)
    cut = node.add("clip", codes, low=0.0, high=255.0)
    result = node.add("cast", node.add("round", cut, rounding="ROUND"), dtype="uint8")
    return result, scale, node.add("cast", point, dtype="uint8")


READERS: dict[str, Reader] = {
    "ConvInteger": _read_conv_integer,
    "DequantizeLinear": read_dequantize_linear,
    "DynamicQuantizeLinear": read_dynamic_quantize_linear,
    "MatMulInteger": _read_matmul_integer,
    "QLinearConv": read_qlinear_conv,
    "QLinearMatMul": _read_qlinear_matmul,
    "QuantizeLinear": read_quantize_linear,
}


_MAX_FAKE_LEVELS = 1 << 16


def _read_fake_quantize(node: FileNode) -> tuple[str, ...]:
    """Read FakeQuantize: `levels` numbers from input_low to input_high become numbers from output_low to
    output_high."""
    levels = int(node.get("levels", 256))
    if not 2 <= levels <= _MAX_FAKE_LEVELS:
        raise node.fail(f"levels is {levels}; it must be 2 to {_MAX_FAKE_LEVELS}")
    names = "input_low", "input_high", "output_low", "output_high"
    ends = [align_parameter(node, node.value(k, name), name).astype(np.float64) for k, name in enumerate(names, 1)]
    scales = [require_positive(node, (ends[k + 1] - ends[k]) / (levels - 1), names[k + 1]) for k in (0, 2)]
    zeros = [_round_zero_points(-ends[k] / scale, levels) for k, scale in zip((0, 2), scales, strict=True)]
    low = _least_code(zeros, levels)
    rounding = "HALF_ODD" if low % 2 else "ROUND"  # ties go to the even level, counted from the lowest
    quantizer = Quantizer(rounding, (low, low + levels - 1), scales[0], zeros[0] + low, zero_first=True)
    return (quantizer.add(node, node.edge(0), grid=(scales[1], zeros[1] + low)),)


def _round_zero_points(zero: Tensor, levels: int) -> Tensor:
    """Return zero points as whole numbers, if roundings of the limits explain the difference; else as they are."""
    nearest = np.rint(zero)
    return nearest if (abs(zero - nearest) <= MAX_FOLDING_ERROR * levels).all() else zero


def _least_code(zeros: list[Tensor], levels: int) -> int:
    """Return the least code: minus the zero point if all `zeros` are equal and a signed type fits, else 0."""
    bits = (levels - 1).bit_length()
    first = zeros[0].reshape(-1)[0]
    alike = all((zero == first).all() for zero in zeros) and first == np.rint(first)
    fits = alike and 0 < first <= 1 << (bits - 1) and levels - 1 - first < 1 << (bits - 1)
    return -int(first) if fits else 0


_QUANTIZE_LINEAR: dict[str, Reader] = {
    **dict.fromkeys(("ExtendedQuantizeLinear", "VitisQuantizeLinear", "QuantizeLinear"), read_quantize_linear),
    **dict.fromkeys(("ExtendedDequantizeLinear", "VitisDequantizeLinear", "DequantizeLinear"), read_dequantize_linear),
}
_MAX_LEVELS = 1 << 32


def _read_requant_shift(node: FileNode) -> tuple[str, ...]:
    """Read RequantShift: (x * mul + add) / div, rounded to nearest with ties up, clipped to `n_levels`.

    `RequantShift.forward` of quantlib, which exports the node, and `RequantShift_s32_s8_NCHW` of Deeploy, which runs
    it, both add half of `div` before they divide and round down.
    """
    divisor = _whole_attribute(node, node.get("div", 1), "div")
    levels = _whole_attribute(node, node.get("n_levels", node.get("n_levels_out", 256)), "n_levels")
    if divisor < 1 or divisor & (divisor - 1) or not 2 <= levels <= _MAX_LEVELS:
        raise node.fail(f"div is {divisor} and n_levels {levels}; they must be a power of two, and 2 to {_MAX_LEVELS}")
    signed = bool(_whole_attribute(node, node.get("signed", 0), "signed"))
    if signed and levels % 2:
        half = levels // 2
        raise node.fail(
            f"is signed with {levels} levels, which Quantlab cuts to {-half - 1} to {half} and Deeploy to {-half} to "
            f"{half - 1}; write an even number of levels"
        )
    low = -(levels // 2) if signed else 0
    mul, add = (_whole_parameter(node, k, what) for k, what in ((1, "mul"), (2, "add")))
    return (rescale(node, node.edge(0), mul, add, divisor, (low, low + levels - 1), half=True),)


def _whole_attribute(node: FileNode, value: Any, what: str) -> int:
    """Return an attribute, a number or an array of one number, as a whole number; SpecError if it is none."""
    numbers = np.asarray(value, np.float64).reshape(-1)
    if numbers.size != 1 or numbers[0] != np.rint(numbers[0]):
        raise node.fail(f"{what} is {value}; it needs one whole number")
    return int(numbers[0])


def _whole_parameter(node: FileNode, index: int, what: str) -> Tensor:
    """Return `mul` or `add`, whole numbers of any type: one, one a channel, or an array that broadcasts.

    Deeploy reads the elements of an array in order, one a channel: (C, 1, 1) is such an array for sequences too.
    """
    numbers, shape = node.value(index, what), node.shape()
    if (numbers != np.rint(numbers)).any():
        raise node.fail(f"{what} is {numbers.reshape(-1)[:3]}; it needs whole numbers")
    a_channel = len(shape) > 1 and numbers.size == shape[1] == max(numbers.shape, default=1)
    if a_channel and (numbers.ndim == 1 or numbers.ndim >= len(shape)):
        numbers = numbers.reshape(1, -1, *[1] * (len(shape) - 2))
    return align_parameter(node, numbers, what)


ANY_DOMAIN_READERS: dict[str, Reader] = {"RequantShift": _read_requant_shift}


def is_dory_add(node: FileNode) -> bool:
    """Return whether an Add has the attributes with which Quantlab marks sums for DORY."""
    return any(f"{part}_rq" in node.attributes for part in ("in1", "in2", "out"))


def read_dory_add(node: FileNode) -> tuple[str, ...]:
    """Read an Add of a DORY network, which requantizes its operands and its result.

    DORY's kernels clip each operand to its type, signed or not, and the sum to `out_n_levels`. The sum is signed if
    `out_signed` says so, or else if an operand is.
    """
    signed = [_is_signed(node, k) for k in range(2)]
    operands = [_requantize_operand(node, node.edge(k), f"in{k + 1}", signed[k]) for k in range(2)]
    total = node.add("add", *operands)
    has_sign = bool(node.get("out_signed", any(signed)))
    if node.get("out_rq"):
        return (_requantize_operand(node, total, "out", has_sign),)
    low, high = _level_limits(node, "out", has_sign)
    return (node.add("clip", total, low=low, high=high),)


def _is_signed(node: FileNode, index: int) -> bool:
    """Return whether an operand of DORY's sum is signed: its integers may be below 0, or else `out_signed` is set."""
    kind = node.input(index).type
    return kind.least < 0 if isinstance(kind, Integers) else bool(node.get("out_signed", 0))


def _level_limits(node: FileNode, part: str, signed: bool) -> tuple[int, int]:
    """Return the least and the greatest integer of an operand or the result of DORY's sum."""
    levels = int(node.get(f"{part}_n_levels", 256))
    low = -(levels // 2) if signed else 0
    return low, low + levels - 1


def _requantize_operand(node: FileNode, edge: str, part: str, signed: bool) -> str:
    """Return an operand or the result of DORY's sum: times `mul`, plus `add`, shifted right, clipped to `n_levels`.

    The shift rounds down: where it is to round to nearest, the exporter has added half a step to `add`.
    """
    if not node.get(f"{part}_rq"):
        return edge
    mul, add, shift = (int(node.get(f"{part}_{name}", value)) for name, value in (("mul", 1), ("add", 0), ("shift", 0)))
    return rescale(node, edge, np.asarray(mul), np.asarray(add), 1 << shift, _level_limits(node, part, signed))


def rescale(
    node: FileNode, edge: str, mul: Tensor, add: Tensor, divisor: int, limits: tuple[int, int], *, half: bool = False
) -> str:
    """Return the edge of floor((x * mul + add) / divisor + (1/2 if `half`)), clipped to limits.

    The result is the same under every reference for integers of at most 53 bits: floats are multiplied in float64.

    Args:
        node: The node of the file that is read.
        edge: The integers x, in a float or an integer type of the file.
        mul: Whole numbers that broadcast to the edge.
        add: Whole numbers that broadcast to the edge.
        divisor: A power of two.
        limits: The least and the greatest result.
        half: Whether to round to nearest, with ties up; else down.
    """
    dtype = node.graph.edges[edge].dtype
    wide = "float64" if is_float(dtype) else "int64"
    x = edge if is_float(dtype) else cast_to(node, edge, wide)
    product = node.add("mul", x, node.constant(cast(mul, wide)))
    total = node.add("add", product, node.constant(cast(add, wide)))
    holds = is_float(dtype) or (limits_of(dtype)[0] <= limits[0] and limits[1] <= limits_of(dtype)[1])
    return Quantizer("FLOOR", limits, float(divisor), 0.5 if half else 0.0, zero_first=True).add(
        node, total, real="float64", dtype=dtype if holds else "int32"
    )


VENDOR_READERS: dict[str, dict[str, Reader]] = {
    "org.openvinotoolkit": {"FakeQuantize": _read_fake_quantize},
    "com.vai.quantize": _QUANTIZE_LINEAR,
    "com.amd.quark": _QUANTIZE_LINEAR,
}
"""Readers of operators of vendors, by domain and operator."""

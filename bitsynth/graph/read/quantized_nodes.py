"""Quantized nodes of standard ONNX: QuantizeLinear and what computes on its codes."""

from __future__ import annotations

import numpy as np

from bitsynth.graph.read.file import dtype_of
from bitsynth.graph.read.file_node import FileNode, Reader, cast_to, compare_with_zero, quantize_to, require_positive
from bitsynth.graph.read.product_and_pool_nodes import add_convolution, reshape_to_channels
from bitsynth.graph.types import Tensor, full_range, is_float, limits


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
    low, high = limits(dtype)
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
    """Return the edge of an input's integers minus their zero point, as int32; several of these lie along `axis`."""
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
    low, high = limits(dtype)
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
    """Return the type of the results: that of their zero point, else that of the first input."""
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

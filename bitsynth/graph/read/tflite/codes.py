"""TensorFlow Lite nodes of int8 codes, as its reference kernels compute them: products, sums, pools and moves.

The table at the end has the reader of each operator, of codes and of floats.

A product's sums become codes by the row `multiply_shift`, with the multipliers of `shared.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from bitsynth.graph.read.file_node import (
    FileNode,
    Quantizer,
    Reader,
    to_channels_first,
    to_channels_last,
    with_channels_last,
)
from bitsynth.graph.read.nodes.products_and_pools import (
    count_elements,
    read_max_pool,
    reshape_to_channels,
    window_of,
)
from bitsynth.graph.read.tflite import floats
from bitsynth.graph.read.tflite.functions import FUNCTION_READERS
from bitsynth.graph.read.tflite.shared import (
    CODES,
    MULTIPLIER_BITS,
    CodeGrid,
    along,
    as_matrix,
    by_type,
    centre,
    code_limits,
    codes_of,
    multiply,
    quantize_multipliers,
    require_rank,
    rescale,
    with_sizes,
)
from bitsynth.graph.types import Tensor, limits

_SUM_SHIFT = 20
"""The bits that codes are shifted to the left before they are added (kernels/add.cc)."""


def _weights(node: FileNode, channels: int) -> CodeGrid:
    """Return the grid of weights; SpecError unless their zero points are 0, and scales one or one a channel."""
    codes = codes_of(node, "in1", many_scales=True)
    if codes.zero.any():
        raise node.fail("weights have a zero point, which the format does not allow")
    if codes.scale.size not in (1, channels):
        raise node.fail(f"{codes.scale.size} scales of weights for {channels} channels")
    if node.input(1).dtype not in (CODES, "int4"):
        raise node.fail(f"weights of {node.input(1).dtype} are not compiled with codes; known: int8 and int4")
    return codes


def _bias(node: FileNode, sums: str, rank: int) -> str:
    """Return the edge of sums plus the bias."""
    if not node.has(2):
        return sums
    if node.input(2).dtype != "int32" or len(node.shape(2)) != 1:
        raise node.fail(f"a bias of {node.input(2).dtype} and shape {node.shape(2)} is not compiled; it must be int32")
    return node.add("add", sums, reshape_to_channels(node, node.edge(2), rank))


def product_factors(read: CodeGrid, weights: CodeGrid, result: CodeGrid) -> Tensor:
    """Return the real factors of a convolution's sums (PopulateConvolutionQuantizationParams)."""
    return np.float64(read.one_scale) * weights.scale.astype(np.float64) / np.float64(result.one_scale)


def _convolution_reader(arrange: Callable[[FileNode], str]) -> Reader:
    """Return the reader of a convolution whose weights `arrange` brings to (out, in, height, width)."""

    def read(node: FileNode) -> tuple[str, ...]:
        require_rank(node, 4)
        arranged = arrange(node)
        channels = node.graph.edges[arranged].shape[0]
        given, weights, result = codes_of(node, "in0"), _weights(node, channels), codes_of(node, "out0")
        image = node.add(
            "view", to_channels_first(node, node.edge(0)), scale=1.0, zero=np.float64(given.one_zero), dtype="int32"
        )
        plain = node.add("view", arranged, scale=1.0, zero=0.0, dtype="int32")
        sums = _bias(node, floats.convolve(node, image, plain, dtype="int32"), 4)
        factors = along(product_factors(given, weights, result), 4, 1)
        codes = rescale(node, sums, factors, zero=result.one_zero, within=code_limits(node, result))
        return (to_channels_last(node, codes),)

    return read


def _read_fully_connected(node: FileNode) -> tuple[str, ...]:
    """Read FULLY_CONNECTED: sums times a factor in float64, rounded half away from 0.

    The reference kernel of LiteRT 2.3 gives these codes; all other kernels give codes of fixed-point arithmetic. This
    was found by experiment, on 2,000,000 sums with ties between codes and close to them.
    """
    rows, sizes = as_matrix(node)
    given, result = codes_of(node, "in0"), codes_of(node, "out0")
    weights = _weights(node, node.shape(1)[0])
    centred = node.add("view", rows, scale=1.0, zero=np.float64(given.one_zero), dtype="int32")
    turned = node.add("transpose", node.edge(1), order=(1, 0))
    sums = node.add("matmul", centred, node.add("view", turned, scale=1.0, zero=0.0, dtype="int32"), dtype="int32")
    sums = _bias(node, sums, 2)
    numbers = node.add("cast", sums, dtype="float64")
    scaled = node.add("mul", numbers, node.constant(along(product_factors(given, weights, result), 2, 1)))
    quantizer = Quantizer("HALF_UP", code_limits(node, result), 1.0, np.asarray(result.one_zero))
    codes = quantizer.add(node, scaled, real="float64", dtype=CODES)
    return (node.reshape(codes, sizes),)


def _sum_reader(op: str) -> Reader:
    """Return the reader of ADD or SUB: operands on a scale of 2^-20 of the greater one, sums on the result's scale.

    As kernels/add.cc and kernels/internal/reference/integer_ops/add.h.
    """

    def read(node: FileNode) -> tuple[str, ...]:
        one, other, result = (codes_of(node, where) for where in ("in0", "in1", "out0"))
        twice = 2 * np.float64(max(one.one_scale, other.one_scale))
        terms = [
            rescale(node, centre(node, k), np.float64(codes.one_scale) / twice, left=_SUM_SHIFT)
            for k, codes in enumerate((one, other))
        ]
        factor = twice / (np.float64(1 << _SUM_SHIFT) * np.float64(result.one_scale))
        total = node.add(op, *terms)
        return (rescale(node, total, factor, zero=result.one_zero, within=code_limits(node, result)),)

    return read


def _read_mul(node: FileNode) -> tuple[str, ...]:
    one, other, result = (codes_of(node, where) for where in ("in0", "in1", "out0"))
    factor = np.float64(one.one_scale * other.one_scale / result.one_scale)
    product = node.add("mul", centre(node, 0), centre(node, 1))
    return (rescale(node, product, factor, zero=result.one_zero, within=code_limits(node, result)),)


def _require_same(node: FileNode, *inputs: int) -> CodeGrid:
    """Return the grid of all codes; SpecError unless inputs and outputs have one scale and zero point."""
    result = codes_of(node, "out0")
    for where in (*(f"in{k}" for k in inputs), *(f"out{k}" for k in range(1, len(node.outputs)))):
        if not codes_of(node, where).is_same(result):
            raise node.fail("moves codes between different scales, which the format does not allow")
    return result


def _clip(node: FileNode, edge: str, codes: CodeGrid) -> str:
    """Return the edge of codes clipped by the node's fused activation."""
    low, high = code_limits(node, codes)
    return edge if (low, high) == limits(CODES) else node.add("clip", edge, low=low, high=high)


def _read_average_pool(node: FileNode) -> tuple[str, ...]:
    """Read AVERAGE_POOL_2D: sums over the elements in the image, rounded to nearest, ties away from 0."""
    codes = _require_same(node, 0)
    pool = floats.pool_window(node)
    plain = node.add("view", node.edge(0), scale=1.0, zero=0.0, dtype="int32")
    kernel = (int(node.get("FilterHeight", 0)), int(node.get("FilterWidth", 0)))
    sums = node.add("sum_pool", plain, window=window_of(pool, kernel))
    counts = count_elements(window_of(pool, kernel), node.shape()[2:], padded=False)
    low, high = code_limits(node, codes)
    return (_divide(node, sums, counts, low, high),)


def _divide(node: FileNode, sums: str, counts: Tensor, low: int, high: int) -> str:
    """Return the edge of sums over counts, rounded to nearest, ties away from 0."""
    quantizer = Quantizer("HALF_UP", (low, high), np.asarray(counts, np.float64), 0)
    return quantizer.add(node, sums, real="float64", dtype=CODES)


def _read_mean(node: FileNode) -> tuple[str, ...]:
    """Read MEAN: sums times a multiplier that is divided by their number (kernels/reduce.cc)."""
    given, result = codes_of(node, "in0"), codes_of(node, "out0")
    axes, sizes = floats.reduced_axes(node)
    count = math.prod(node.shape()[k] for k in axes)
    multiplier, exponent = quantize_multipliers(np.float64(given.one_scale) / np.float64(result.one_scale))
    shift = min(count.bit_length() - 1, 32, MULTIPLIER_BITS + int(exponent))
    sums = node.add("reduce_sum", centre(node, 0), axes=axes)
    codes = multiply(
        node, sums, (multiplier << shift) // count, exponent - shift, zero=result.one_zero, within=limits(CODES)
    )
    return (node.reshape(codes, sizes),)


def _read_resize_bilinear(node: FileNode) -> tuple[str, ...]:
    """Read RESIZE_BILINEAR: four neighbours with weights of 10 bits along each axis, rounded half away from 0."""
    _require_same(node, 0)
    align, half = bool(node.get("AlignCorners", 0)), bool(node.get("HalfPixelCenters", 0))
    sides = [
        _neighbours(size, out, align=align, half=half)
        for size, out in zip(node.shape()[1:3], floats.sizes_of(node), strict=True)
    ]
    image = node.add("view", to_channels_first(node, node.edge(0)), scale=1.0, zero=0.0, dtype="int32")
    total = floats.add_corners(node, image, sides)
    return (to_channels_last(node, _divide(node, total, np.asarray(1 << 20), *limits(CODES))),)


def _neighbours(size: int, out: int, *, align: bool, half: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return both neighbours of each element along an axis, and their weights, which add up to 2^10.

    As `ResizeBilinearInteger` (kernels/internal/reference/resize_bilinear.h).
    """
    one, k = 1 << 10, np.arange(out)
    scale = (one * (size - 1) + (out - 1) // 2) // (out - 1) if align and out > 1 else (one * size + out // 2) // out
    at = k * scale + scale // 2 - (one >> 1) if half else k * scale
    first = np.maximum(at // one, 0)
    second = np.minimum(-(-at // one), size - 1)
    part = (at - one * first).astype(np.int32)
    return np.minimum(first, size - 1), np.maximum(second, 0), one - part, part


def _read_transpose_conv(node: FileNode) -> tuple[str, ...]:
    channels = node.shape(1)[0] if node.shape(1) else 0
    given, weights, result = codes_of(node, "in2"), _weights(node, channels), codes_of(node, "out0")
    image = node.add("view", node.edge(2), scale=1.0, zero=np.float64(given.one_zero), dtype="int32")
    plain = node.add("view", node.edge(1), scale=1.0, zero=0.0, dtype="int32")
    sums = floats.transpose_convolution(node, image, plain)
    factors = along(product_factors(given, weights, result), 4, 1)
    codes = rescale(node, sums, factors, zero=result.one_zero, within=code_limits(node, result))
    return (to_channels_last(node, codes),)


def _read_max_pool(node: FileNode) -> tuple[str, ...]:
    codes = _require_same(node, 0)
    return (_clip(node, read_max_pool(floats.pool_window(node))[0], codes),)


def _read_concatenation(node: FileNode) -> tuple[str, ...]:
    codes = _require_same(node, *range(len(node.inputs)))
    return (_clip(node, floats.join(node, [node.edge(k) for k in range(len(node.inputs))]), codes),)


def _read_pad(node: FileNode) -> tuple[str, ...]:
    codes = _require_same(node, 0)
    fill = int(node.value(2, "the padding").reshape(-1)[0]) if node.has(2) else codes.one_zero
    return (floats.pad(node, float(fill)),)


def _read_rescaled(node: FileNode) -> tuple[str, ...]:
    """Read QUANTIZE of codes: another scale and zero point."""
    given, result = codes_of(node, "in0"), codes_of(node, "out0")
    factor = np.float64(given.one_scale) / np.float64(result.one_scale)
    return (rescale(node, centre(node, 0), factor, zero=result.one_zero, within=limits(CODES)),)


def _read_quantize(node: FileNode) -> tuple[str, ...]:
    """Read QUANTIZE: of floats number / scale, rounded half away from 0, plus the zero point."""
    if node.input(0).dtype == CODES and node.get("out0.type") == CODES:
        return _read_rescaled(node)
    if node.input(0).dtype != "float32" or node.get("out0.type") != CODES:
        raise node.fail(f"from {node.input(0).dtype} to {node.get('out0.type')} is not compiled; known: to int8")
    codes = codes_of(node, "out0")
    quantizer = Quantizer("HALF_UP", limits(CODES), codes.one_scale, np.asarray(codes.one_zero))
    return (quantizer.add(node, node.edge(0), real="float32", dtype=CODES),)


def _read_dequantize(node: FileNode) -> tuple[str, ...]:
    """Read DEQUANTIZE of codes, or of weights in float16."""
    if node.input(0).dtype == "float16":
        return (node.add("cast", node.edge(0), dtype="float32"),)
    if node.input(0).dtype not in (CODES, "int4") or node.get("out0.type") != "float32":
        raise node.fail(f"from {node.input(0).dtype} is not compiled; known: from int8 and float16")
    codes = codes_of(node, "in0", many_scales=True)
    scale, zero = (along(x, len(node.shape()), codes.axis) for x in (codes.scale, codes.zero))
    grid = {"scale": scale.astype(np.float64), "zero": zero.astype(np.float64)}
    return (node.add("view", node.edge(0), **grid, dtype="float32"),)


CODE_READERS: dict[str, Reader] = {
    **FUNCTION_READERS,
    "ADD": _sum_reader("add"),
    "AVERAGE_POOL_2D": with_channels_last(_read_average_pool),
    "CONV_2D": _convolution_reader(floats.convolution_weights),
    "DEPTHWISE_CONV_2D": _convolution_reader(floats.depthwise_weights),
    "FULLY_CONNECTED": _read_fully_connected,
    "MAX_POOL_2D": with_channels_last(_read_max_pool),
    "MEAN": _read_mean,
    "MUL": _read_mul,
    "RESIZE_BILINEAR": _read_resize_bilinear,
    "SUB": _sum_reader("sub"),
    "TRANSPOSE_CONV": _read_transpose_conv,
}
"""Readers for activations of int8, by operator."""
_MOVES_OF_CODES: dict[str, Reader] = {
    "CONCATENATION": _read_concatenation,
    "PAD": _read_pad,
    "PADV2": _read_pad,
}


def _mover(op: str, read: Reader) -> Reader:
    """Return the reader of a move for elements of any type."""

    def of_any(node: FileNode) -> tuple[str, ...]:
        at = 1 if op == "SPLIT" else 0
        if node.input(at).dtype == "int16":
            raise node.fail("activations of int16 are not compiled; known: float32 and int8")
        if node.input(at).dtype != CODES or node.get(f"in{at}.scale") is None:
            return read(node)
        if op in _MOVES_OF_CODES:
            return _MOVES_OF_CODES[op](node)
        _require_same(node, *(range(len(node.inputs)) if op == "PACK" else (at,)))
        return read(node)

    return of_any


def _readers() -> dict[str, Reader]:
    """Return the readers of all operators by name."""
    of_both = {
        op: by_type(floats.FLOAT_READERS.get(op), CODE_READERS.get(op))
        for op in sorted({*floats.FLOAT_READERS, *CODE_READERS})
    }
    if "TRANSPOSE_CONV" in of_both:
        of_both["TRANSPOSE_CONV"] = by_type(
            floats.FLOAT_READERS["TRANSPOSE_CONV"], CODE_READERS.get("TRANSPOSE_CONV"), at=2
        )
    moves = {op: _mover(op, read) for op, read in floats.MOVE_READERS.items()}
    more = {"DEQUANTIZE": _read_dequantize, "QUANTIZE": _read_quantize, **floats.OTHER_READERS}
    return {**of_both, **moves, **more}


READERS: dict[str, Reader] = {op: with_sizes(read) for op, read in _readers().items()}
"""By operator; each refuses a result of another shape than the file says."""

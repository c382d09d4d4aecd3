"""Nodes of com.microsoft: quantized operators of ONNX Runtime's tools, and operators that its optimizer fuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bitsynth.graph.read.file_node import (
    FileNode,
    Reader,
    cast_to,
    quantize_to,
    require_positive,
    transpose,
    with_channels_last,
    with_layout_attribute,
)
from bitsynth.graph.read.nodes import elementwise
from bitsynth.graph.read.nodes.constants_and_moves import concatenate
from bitsynth.graph.read.nodes.elementwise import read_gelu, read_swish, softmax_axes
from bitsynth.graph.read.nodes.products_and_pools import (
    add_average_pool,
    read_conv,
    read_gemm,
    read_max_pool,
    transpose_if,
)
from bitsynth.graph.read.nodes.quantized import (
    align_per_channel,
    out_dtype,
    read_dequantize_linear,
    read_dynamic_quantize_linear,
    read_qlinear_conv,
    read_quantize_linear,
    requantize,
    scale_of,
    subtract_zero_point,
    zero_point_of,
)
from bitsynth.graph.read.nodes.reductions_and_norms import read_layer_norm, read_rms_norm
from bitsynth.graph.types import Tensor, cast, limits


def _read_qgemm(node: FileNode) -> tuple[str, ...]:
    a, b = (
        transpose_if(node, 0, "transA", subtract_zero_point(node, 0, 2)),
        subtract_zero_point(node, 3, 5, 0 if node.get("transB") else 1),
    )
    sums = node.add("matmul", a, transpose_if(node, 3, "transB", b), dtype="int32")
    if node.has(6):
        sums = node.add("add", sums, node.edge(6))
    alpha = np.float32(node.get("alpha", 1.0))
    first = (scale_of(node, 1) * alpha).reshape(())
    second = align_per_channel(scale_of(node, 4), 2, 1)
    if not node.has(7):
        product = (first * second).astype(np.float32)
        return (node.add("mul", cast_to(node, sums, "float32"), node.constant(product)),)
    factors = first, second, scale_of(node, 7).reshape(())
    return (requantize(node, sums, factors, zero_point_of(node, 8), out_dtype(node, 8)),)


def _grid_of(node: FileNode, scale: int, zero: int) -> tuple[Tensor, Tensor]:
    """Return a scale and a zero point, each one number; the arguments are the inputs that hold them."""
    return scale_of(node, scale).reshape(()), zero_point_of(node, zero).reshape(())


def _dequantize(node: FileNode, index: int, scale: Tensor, zero: Tensor) -> str:
    """Return the edge of an input's codes as the numbers they stand for."""
    node.integers(index)
    return node.add(
        "view", node.edge(index), scale=scale.astype(np.float64), zero=zero.astype(np.float64), dtype=str(scale.dtype)
    )


def _read_qlinear_add(node: FileNode) -> tuple[str, ...]:
    for k in (0, 3):
        node.integers(k)
    grids = (*_grid_of(node, 1, 2), *_grid_of(node, 4, 5), *_grid_of(node, 6, 7))
    low, high = limits(node.input(0).dtype)
    codes = node.add(
        "add_codes",
        node.edge(0),
        node.edge(3),
        grids=grids,
        low=low,
        high=high,
        rounding="ROUND",
        out_scale=1.0,
        out_zero=0.0,
        dtype=node.input(0).dtype,
    )
    return (codes,)


def _function_reader(op: str, **defaults: Any) -> Reader:
    """Return the reader of a function of codes, which are dequantized, computed in floats and quantized."""

    def read(node: FileNode) -> tuple[str, ...]:
        numbers = _dequantize(node, 0, *_grid_of(node, 1, 2))
        numbers = node.add(op, numbers, **{k: float(node.get(k, v)) for k, v in defaults.items()})
        return (quantize_to(node, numbers, *_grid_of(node, 3, 4), node.input(0).dtype),)

    return read


def _read_qlinear_softmax(node: FileNode) -> tuple[str, ...]:
    """Read QLinearSoftmax as Softmax of dequantized codes.

    ONNX Runtime adds the powers in a fixed-point format that it does not document; it differs by at most one code.
    """
    numbers = _dequantize(node, 0, *_grid_of(node, 1, 2))
    numbers = node.add("softmax", numbers, axes=softmax_axes(node, int(node.get("opset", 13))))
    return (quantize_to(node, numbers, *_grid_of(node, 3, 4), node.input(0).dtype),)


def _read_qlinear_concat(node: FileNode) -> tuple[str, ...]:
    scale, zero = _grid_of(node, 0, 1)
    edges = []
    for k in range(2, len(node.inputs), 3):
        own = _grid_of(node, k + 1, k + 2)
        same = own[0] == scale and own[1] == zero
        edge = node.edge(k)
        if not same:
            edge = quantize_to(node, _dequantize(node, k, *own), scale, zero, node.input(1).dtype)
        edges.append(edge)
    if not edges:
        raise node.fail("has nothing to concatenate")
    rank = len(node.graph.edges[edges[0]].shape)
    return (concatenate(node, edges, node.axis(int(node.get("axis", 1)), rank)),)


def _read_qlinear_mul(node: FileNode) -> tuple[str, ...]:
    product = node.add("mul", subtract_zero_point(node, 0, 2), subtract_zero_point(node, 3, 5))
    factors = (scale_of(node, 1).reshape(()), scale_of(node, 4).reshape(()), scale_of(node, 6).reshape(()))
    return (requantize(node, product, factors, zero_point_of(node, 7), out_dtype(node, 7), zero_first=True),)


def _read_qlinear_average_pool(node: FileNode) -> tuple[str, ...]:
    means = add_average_pool(node, _dequantize(node, 0, *_grid_of(node, 1, 2)), str(scale_of(node, 1).dtype))
    return (quantize_to(node, means, *_grid_of(node, 3, 4), node.input(0).dtype, zero_first=True),)


def _read_qlinear_global_average_pool(node: FileNode) -> tuple[str, ...]:
    rank = len(node.shape())
    axes = tuple(range(1, rank - 1) if node.get("channels_last") else range(2, rank))
    sums = node.add("reduce_sum", subtract_zero_point(node, 0, 2), axes=axes)
    count = cast(np.prod([node.shape()[a] for a in axes]), str(scale_of(node, 3).dtype))
    over = (scale_of(node, 3) * count).reshape(())
    factors = scale_of(node, 1).reshape(()), np.ones((), over.dtype), over
    return (requantize(node, sums, factors, zero_point_of(node, 4), out_dtype(node, 4)),)


_ACTIVATION_PARAMETERS = {
    "Clip": ("min", "max"),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Sigmoid": (),
    "Softplus": (),
    "Tanh": (),
}
"""The attributes of activations that may be fused into a product, in the order of `activation_params`."""


def _with_inputs(node: FileNode, *edges: str) -> FileNode:
    """Return the node with other inputs."""
    return replace(node, inputs=edges)


def _add_activation(node: FileNode, edge: str) -> tuple[str, ...]:
    """Return the edge of the node's activation of an edge; the edge itself if the node has none."""
    name = node.get("activation", "")
    if not name:
        return (edge,)
    if name not in _ACTIVATION_PARAMETERS:
        raise node.fail(f"activation {name!r} is not known; known: {', '.join(_ACTIVATION_PARAMETERS)}")
    numbers = [float(n) for n in node.get("activation_params", ())]
    alone = {
        key: float(node.get(f"activation_{key}"))
        for key in _ACTIVATION_PARAMETERS[name]
        if f"activation_{key}" in node.attributes
    }
    attributes = dict(zip(_ACTIVATION_PARAMETERS[name], numbers, strict=False)) | alone
    return elementwise.READERS[name](replace(node, inputs=(edge,), attributes=attributes))


def _read_fused_conv(node: FileNode) -> tuple[str, ...]:
    (convolution,) = read_conv(node)
    return _add_activation(node, node.add("add", convolution, node.edge(3)) if node.has(3) else convolution)


def _read_fused_gemm(node: FileNode) -> tuple[str, ...]:
    return _add_activation(node, read_gemm(node)[0])


def _read_fused_matmul(node: FileNode) -> tuple[str, ...]:
    """Read FusedMatMul: alpha times the product of both inputs, whose last two axes may be swapped first."""
    if node.get("transBatchA") or node.get("transBatchB"):
        raise node.fail("transposes axes of the batch, which is not compiled")
    factors = []
    for k, name in enumerate(("transA", "transB")):
        rank = len(node.shape(k))
        order = (*range(rank - 2), rank - 1, rank - 2)
        factors.append(
            node.add("transpose", node.edge(k), order=order) if node.get(name) and rank > 1 else node.edge(k)
        )
    product = node.add("matmul", *factors)
    alpha = node.get("alpha", 1.0)
    return (product if alpha == 1.0 else node.add("mul", product, node.constant_like(alpha)),)


def _add_bias(node: FileNode) -> FileNode:
    """Return the node with the sum of its first two inputs as its only input."""
    return _with_inputs(node, node.add("add", node.edge(0), node.edge(1)) if node.has(1) else node.edge(0))


def _read_fast_gelu(node: FileNode) -> tuple[str, ...]:
    return read_gelu(replace(_add_bias(node), attributes={"approximate": "tanh"}))


def _read_quick_gelu(node: FileNode) -> tuple[str, ...]:
    return read_swish(replace(node, attributes={"alpha": node.get("alpha", 1.702)}))


def _skip_norm_reader(norm: Reader, *, bias: int) -> Reader:
    """Return the reader of a normalization of the sum of inputs 0, 1 and, if given, `bias`; the sum is output 3."""

    def read(node: FileNode) -> tuple[str, ...]:
        total = node.add("add", node.edge(0), node.edge(1))
        total = node.add("add", total, node.edge(bias)) if node.has(bias) else total
        rest = tuple(node.edge(k) for k in range(2, bias) if node.has(k))
        outputs = norm(replace(node, inputs=(total, *rest), attributes={"epsilon": node.get("epsilon", 1e-12)}))
        return outputs[0], *("",) * 2, total

    return read


def _read_matmul_integer_to_float(node: FileNode) -> tuple[str, ...]:
    """Read MatMulIntegerToFloat: a product of integers times the scales of both factors."""
    scales = [node.edge(2), node.edge(3)]
    return (
        _multiply_to_float(node, (subtract_zero_point(node, 0, 4, -2), subtract_zero_point(node, 1, 5, -1)), scales, 6),
    )


def _multiply_to_float(node: FileNode, factors: tuple[str, str], scales: list[str], bias: int) -> str:
    """Return the edge of a product of integers times `scales`, plus input `bias` if it is given."""
    sums = cast_to(node, node.add("matmul", *factors, dtype="int32"), "float32")
    product = node.add("mul", sums, node.add("mul", *scales))
    return node.add("add", product, node.edge(bias)) if node.has(bias) else product


def _read_dynamic_quantize_matmul(node: FileNode) -> tuple[str, ...]:
    """Read DynamicQuantizeMatMul: the first input is quantized by its own range at run time."""
    codes, scale, zero = read_dynamic_quantize_linear(_with_inputs(node, node.edge(0)))
    whole = [cast_to(node, edge, "int32") for edge in (codes, zero)]
    return (
        _multiply_to_float(
            node, (node.add("sub", *whole), subtract_zero_point(node, 1, 3, -1)), [scale, node.edge(2)], 4
        ),
    )


def _unpack_bits(packed: Tensor, bits: int) -> Tensor:
    """Return unsigned codes of `bits` bits that lie in bytes along the last axis, the lowest bits first."""
    shifts = np.arange(0, 8, bits)
    codes = packed.astype(np.uint8)[..., None] >> shifts.astype(np.uint8) & np.uint8((1 << bits) - 1)
    return codes.reshape(*packed.shape[:-1], packed.shape[-1] * len(shifts))


def _read_matmul_n_bits(node: FileNode) -> tuple[str, ...]:
    """Read MatMulNBits: a product with weights of 2, 4 or 8 bits, whose columns have a scale for each block of rows.

    Inputs are the numbers, codes (columns, blocks, bytes), scales (columns, blocks), and if they are given zero points,
    packed as the codes are or floats, the block of each row, and a bias.
    """
    depth, columns, bits, block = (int(node.get(name, 4 if name == "bits" else 0)) for name in _N_BITS_ATTRIBUTES)
    if bits not in (2, 4, 8) or min(depth, columns, block) < 1:
        raise node.fail(f"{columns} columns of {depth} numbers of {bits} bits, in blocks of {block}")
    blocks = -(-depth // block)
    codes = _unpack_bits(node.value(1, "weights").reshape(columns, -1), bits)
    if codes.shape[1] < depth or node.value(2, "scale").size != columns * blocks:
        raise node.fail(f"weights {node.shape(1)} and scales {node.shape(2)} do not fit {columns} x {depth}")
    scale = require_positive(node, node.value(2, "scale").reshape(columns, blocks))
    zero = np.full((1, 1), 1 << (bits - 1))
    if node.has(3):
        zero = node.value(3, "zero points")
        if not node.input(3).is_float:
            zero = _unpack_bits(zero.reshape(columns, -1), bits)[:, :blocks]
        zero = zero.reshape(columns, blocks)
    of_row = np.arange(depth) // block
    if node.has(4):
        of_row = node.value(4, "the blocks of rows").reshape(-1)
        if of_row.size != depth or (of_row < 0).any() or (of_row >= blocks).any():
            raise node.fail(f"has {of_row.size} blocks of rows, which must be {depth} numbers from 0 to {blocks - 1}")
    scale, zero = (x[:, of_row] if x.shape[1] > 1 else x for x in (scale, zero))
    weights = node.add(
        "view",
        node.constant(codes[:, :depth]),
        scale=scale.astype(np.float64),
        zero=zero.astype(np.float64),
        dtype=node.input(0).dtype,
    )
    product = node.add("matmul", node.edge(0), transpose(node, weights, (1, 0)))
    return (node.add("add", product, node.edge(5)) if node.has(5) else product,)


_N_BITS_ATTRIBUTES = ("K", "N", "bits", "block_size")


QUANTIZED_READERS: dict[str, Reader] = {
    "DequantizeLinear": read_dequantize_linear,
    "QGemm": _read_qgemm,
    "QLinearAdd": _read_qlinear_add,
    "QLinearAveragePool": with_layout_attribute(_read_qlinear_average_pool),
    "QLinearConcat": _read_qlinear_concat,
    "QLinearGlobalAveragePool": _read_qlinear_global_average_pool,
    "QLinearLeakyRelu": _function_reader("leaky_relu", alpha=0.01),
    "QLinearMul": _read_qlinear_mul,
    "QLinearSigmoid": _function_reader("sigmoid"),
    "QLinearSoftmax": _read_qlinear_softmax,
    "QuantizeLinear": read_quantize_linear,
}


FUSED_READERS: dict[str, Reader] = {
    "BiasGelu": lambda node: read_gelu(_add_bias(node)),
    "DynamicQuantizeMatMul": _read_dynamic_quantize_matmul,
    "FastGelu": _read_fast_gelu,
    "FusedConv": _read_fused_conv,
    "FusedGemm": _read_fused_gemm,
    "FusedMatMul": _read_fused_matmul,
    "Gelu": read_gelu,
    "MatMulNBits": _read_matmul_n_bits,
    "MatMulIntegerToFloat": _read_matmul_integer_to_float,
    "NhwcMaxPool": with_channels_last(read_max_pool),
    "QLinearConv": with_layout_attribute(read_qlinear_conv),
    "QuickGelu": _read_quick_gelu,
    "SkipLayerNormalization": _skip_norm_reader(read_layer_norm, bias=4),
    "SkipSimplifiedLayerNormalization": _skip_norm_reader(read_rms_norm, bias=3),
}
READERS = {**QUANTIZED_READERS, **FUSED_READERS}

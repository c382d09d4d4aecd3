"""TensorFlow Lite nodes of floats, and nodes that move elements of any type."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from bitsynth.graph.infer import MAX_ELEMENTS
from bitsynth.graph.read.file_node import (
    FileNode,
    Reader,
    cast_to,
    to_channels_first,
    to_channels_last,
    transpose,
    with_channels_last,
)
from bitsynth.graph.read.nodes.constants_and_moves import READERS as MOVES
from bitsynth.graph.read.nodes.constants_and_moves import concatenate
from bitsynth.graph.read.nodes.elementwise import READERS as ELEMENTWISE
from bitsynth.graph.read.nodes.products_and_pools import (
    READERS as PRODUCTS,
)
from bitsynth.graph.read.nodes.products_and_pools import (
    add_average_pool,
    add_convolution,
    read_max_pool,
    reshape_to_channels,
)
from bitsynth.graph.read.tflite.shared import (
    ACTIVATION_LIMITS,
    activation_of,
    as_matrix,
    require_rank,
    weights_first,
    with_window,
)
from bitsynth.graph.types import Shape

MAX_SIZE = 1 << 16
"""The greatest height or width of a resized image."""


def activate(node: FileNode, edge: str) -> str:
    """Return the edge after the node's fused activation."""
    name = activation_of(node)
    if name == "NONE":
        return edge
    if name == "TANH":
        return node.add("tanh", edge)
    low, high = ACTIVATION_LIMITS[name]
    return node.add("relu", edge) if name == "RELU" else node.add("clip", edge, low=low, high=high)


def convolve(node: FileNode, image: str, weights: str, **attributes: Any) -> str:
    """Return the edge of a convolution, channels first, by weights (O, I, H, W), which decide the number of groups."""
    channels, inner = node.graph.edges[image].shape[1], node.graph.edges[weights].shape[1]
    if not inner or channels % inner:
        raise node.fail(f"weights of {inner} channels do not fit an image of {channels}")
    first = replace(with_window(node), inputs=(image, *node.inputs[1:]))
    first = replace(first, attributes={**first.attributes, "group": channels // inner})
    return add_convolution(first, image, weights, **attributes)


def depthwise_weights(node: FileNode) -> str:
    """Return the edge of weights (1, H, W, O) of DEPTHWISE_CONV_2D as (O, 1, H, W)."""
    channels = node.shape()[-1] if node.shape() else 0
    if len(node.shape(1)) != 4 or node.shape(1)[0] != 1 or not channels or node.shape(1)[3] % channels:
        raise node.fail(f"weights {node.shape(1)} do not fit an image {node.shape()}")
    return weights_first(node, 1, (3, 0, 1, 2))


def convolution_weights(node: FileNode) -> str:
    """Return the edge of weights (O, H, W, I) of CONV_2D as (O, I, H, W)."""
    return weights_first(node, 1, (0, 3, 1, 2))


def _convolution_reader(weights: Any) -> Reader:
    def read(node: FileNode) -> tuple[str, ...]:
        require_rank(node, 4)
        product = convolve(node, to_channels_first(node, node.edge(0)), weights(node))
        if node.has(2):
            product = node.add("add", product, reshape_to_channels(node, node.edge(2), 4))
        return (to_channels_last(node, activate(node, product)),)

    return read


def _read_fully_connected(node: FileNode) -> tuple[str, ...]:
    rows, sizes = as_matrix(node)
    product = node.add("matmul", rows, node.add("transpose", node.edge(1), order=(1, 0)))
    if node.has(2):
        product = node.add("add", product, node.edge(2))
    return (node.reshape(activate(node, product), sizes),)


def pool_window(node: FileNode) -> FileNode:
    """Return a pool's node with its window as ONNX calls it."""
    kernel = [node.get("FilterHeight", 0), node.get("FilterWidth", 0)]
    pool = with_window(node, dilated=False)
    return replace(pool, attributes={**pool.attributes, "kernel_shape": kernel})


def _read_average_pool(node: FileNode) -> tuple[str, ...]:
    return (activate(node, add_average_pool(pool_window(node), node.edge(0), node.input(0).dtype)),)


def _read_max_pool(node: FileNode) -> tuple[str, ...]:
    return (activate(node, read_max_pool(replace(pool_window(node), outputs=node.outputs[:1]))[0]),)


def _binary_reader(op: str) -> Reader:
    def read(node: FileNode) -> tuple[str, ...]:
        return (activate(node, node.add(op, node.edge(0), node.edge(1))),)

    return read


def unary_reader(op: str, **attributes: Any) -> Reader:
    """Return the reader of an operator that is a row."""
    return lambda node: (node.add(op, node.edge(0), **attributes),)


def read_softmax_axes(node: FileNode) -> tuple[int, ...]:
    """Return the axis of SOFTMAX, the last one."""
    if not node.shape():
        raise node.fail("has an input without axes")
    return (len(node.shape()) - 1,)


def _read_softmax(node: FileNode) -> tuple[str, ...]:
    beta, x = float(node.get("Beta", 1.0)), node.edge(0)
    if not math.isfinite(beta) or beta <= 0:
        raise node.fail(f"beta is {beta}; it must be above 0")
    if beta != 1:
        x = node.add("mul", x, node.constant_like(beta))
    return (node.add("softmax", x, axes=read_softmax_axes(node)),)


def _read_leaky_relu(node: FileNode) -> tuple[str, ...]:
    return (node.add("leaky_relu", node.edge(0), alpha=float(node.get("Alpha", 0.0))),)


def _read_mean(node: FileNode) -> tuple[str, ...]:
    axes, sizes = reduced_axes(node)
    total = node.add("reduce_sum", node.edge(0), axes=axes)
    count = math.prod(node.shape()[k] for k in axes)
    return (node.reshape(node.add("div", total, node.constant_like(float(count))), sizes),)


def reduced_axes(node: FileNode) -> tuple[tuple[int, ...], Shape]:
    """Return the axes of a reduction, and the shape of its result."""
    axes = node.axes([int(k) for k in np.atleast_1d(node.value(1, "axes"))])
    shape = tuple(1 if k in axes else n for k, n in enumerate(node.shape()) if k not in axes or node.get("KeepDims", 0))
    return axes, shape


# Moves, of elements of any type.


def _read_reshape(node: FileNode) -> tuple[str, ...]:
    sizes = node.numbers("shape", 1) if node.has(1) else [int(n) for n in node.get("NewShape") or []]
    asked = replace(node, attributes={"shape": sizes or [], "allowzero": 1}, inputs=node.inputs[:1])
    return MOVES["Reshape"](asked) if sizes else (node.reshape(node.edge(0), ()),)


def _read_transpose(node: FileNode) -> tuple[str, ...]:
    order = tuple(node.axis(int(k)) for k in node.value(1, "the order"))
    if sorted(order) != list(range(len(node.shape()))):
        raise node.fail(f"{order} does not order {len(node.shape())} axes")
    return (transpose(node, node.edge(0), order),)


def _read_squeeze(node: FileNode) -> tuple[str, ...]:
    axes = [int(k) for k in node.get("SqueezeDims") or []]
    return MOVES["Squeeze"](replace(node, attributes={"axes": axes} if axes else {}))


def _read_expand_dims(node: FileNode) -> tuple[str, ...]:
    axis = node.axis(int(node.value(1, "axis").reshape(-1)[0]), len(node.shape()) + 1)
    return (node.reshape(node.edge(0), (*node.shape()[:axis], 1, *node.shape()[axis:])),)


def join(node: FileNode, edges: list[str]) -> str:
    """Return the edge of several along the node's axis."""
    return concatenate(node, edges, node.axis(int(node.get("Axis", 0))))


def _read_concatenation(node: FileNode) -> tuple[str, ...]:
    return (activate(node, join(node, [node.edge(k) for k in range(len(node.inputs))])),)


def _read_pack(node: FileNode) -> tuple[str, ...]:
    axis = node.axis(int(node.get("Axis", 0)), len(node.shape()) + 1)
    edges = [
        node.reshape(node.edge(k), (*node.shape(k)[:axis], 1, *node.shape(k)[axis:])) for k in range(len(node.inputs))
    ]
    return (concatenate(node, edges, axis),)


def _read_unpack(node: FileNode) -> tuple[str, ...]:
    axis = node.axis(int(node.get("Axis", 0)))
    sizes = tuple(n for k, n in enumerate(node.shape()) if k != axis)
    return tuple(node.reshape(e, sizes) for e in _cut(node, node.edge(0), axis, [1] * node.shape()[axis]))


def _cut(node: FileNode, edge: str, axis: int, parts: list[int]) -> tuple[str, ...]:
    """Return the edges of consecutive parts along an axis."""
    split = replace(node, attributes={"axis": axis, "split": parts}, inputs=(edge,))
    return MOVES["Split"](split)


def _read_split(node: FileNode) -> tuple[str, ...]:
    axis, count = node.axis(int(node.value(0, "axis").reshape(-1)[0]), len(node.shape(1))), len(node.outputs)
    size = node.shape(1)[axis]
    if size % count:
        raise node.fail(f"{size} elements cannot be split into {count} equal parts")
    return _cut(replace(node, inputs=node.inputs[1:]), node.edge(1), axis, [size // count] * count)


def _read_split_v(node: FileNode) -> tuple[str, ...]:
    axis = node.axis(int(node.value(2, "axis").reshape(-1)[0]))
    parts, size = [int(n) for n in node.value(1, "sizes").reshape(-1)], node.shape()[axis]
    parts = [size - sum(p for p in parts if p >= 0) if n == -1 else n for n in parts]
    return _cut(node, node.edge(0), axis, parts)


def _read_gather(node: FileNode) -> tuple[str, ...]:
    if node.get("BatchDims", 0):
        raise node.fail("batch dimensions are not compiled")
    return MOVES["Gather"](replace(node, attributes={"axis": int(node.get("Axis", 0))}))


def _read_slice(node: FileNode) -> tuple[str, ...]:
    begin, size = ([int(n) for n in node.value(k, what)] for k, what in ((1, "begin"), (2, "size")))
    rank = len(node.shape())
    if not len(begin) == len(size) == rank:
        raise node.fail(f"begin {begin} and size {size} do not fit {rank} axes")
    ends = [n if s == -1 else b + s for n, b, s in zip(node.shape(), begin, size, strict=True)]
    if any(not 0 <= b <= e <= n for b, e, n in zip(begin, ends, node.shape(), strict=True)):
        raise node.fail(f"begin {begin} and size {size} leave an input {node.shape()}")
    return (node.add("slice", node.edge(0), slices=tuple((b, e, 1) for b, e in zip(begin, ends, strict=True))),)


def _read_strided_slice(node: FileNode) -> tuple[str, ...]:
    shape, rank = node.shape(), len(node.shape())
    begin, end, step = ([int(n) for n in node.value(k, "a limit")] for k in (1, 2, 3))
    if node.get("EllipsisMask", 0) or node.get("NewAxisMask", 0) or node.get("Offset", 0):
        raise node.fail("ellipses, new axes and offsets are not compiled")
    if not len(begin) == len(end) == len(step) <= rank or 0 in step:
        raise node.fail(f"limits of {len(begin)} axes do not fit {rank}")
    slices: list[tuple[int | None, int | None, int]] = [(None, None, 1)] * rank
    dropped = []
    for k, (first, last, by) in enumerate(zip(begin, end, step, strict=True)):
        if int(node.get("ShrinkAxisMask", 0)) >> k & 1:
            place = first + shape[k] * (first < 0)
            if not 0 <= place < shape[k]:
                raise node.fail(f"element {first} of {shape[k]}")
            slices[k] = (place, place + 1, 1)
            dropped.append(k)
            continue
        start = None if int(node.get("BeginMask", 0)) >> k & 1 else first
        stop = None if int(node.get("EndMask", 0)) >> k & 1 else last
        slices[k] = (start, None if by < 0 and stop is not None and stop < -shape[k] else stop, by)
    cut = node.add("slice", node.edge(0), slices=tuple(slices))
    sizes = tuple(n for k, n in enumerate(node.graph.edges[cut].shape) if k not in dropped)
    return (node.reshape(cut, sizes),)


def pad(node: FileNode, fill: float) -> str:
    """Return the edge of the first input with a border of `fill`."""
    widths = node.value(1, "paddings")
    rank = len(node.shape())
    if widths.shape != (rank, 2) or (widths < 0).any():
        raise node.fail(f"paddings {widths.tolist()} do not fit {rank} axes")
    pads = [int(n) for n in (*widths[:, 0], *widths[:, 1])]
    return MOVES["Pad"](replace(node, inputs=node.inputs[:1], attributes={"pads": pads, "value": fill}))[0]


def _read_pad(node: FileNode) -> tuple[str, ...]:
    return (pad(node, float(node.value(2, "the padding").reshape(-1)[0]) if node.has(2) else 0.0),)


def resize_places(size: int, out: int, *, align: bool, half: bool) -> list[int]:
    """Return the index of the element that each element along an axis is a copy of, in float32.

    As `GetNearestNeighbor` (kernels/internal/reference/resize_nearest_neighbor.h).
    """
    scale = np.float32(size - 1) / np.float32(out - 1) if align and out > 1 else np.float32(size) / np.float32(out)
    offset = np.float32(0.5) if half else np.float32(0)
    places = []
    for k in range(out):
        at = (np.float32(k) + offset) * scale
        place = int(np.floor(at + np.float32(0.5))) if align else int(np.floor(at))
        places.append(max(0, min(place, size - 1)))
    return places


def sizes_of(node: FileNode) -> list[int]:
    """Return height and width of a resized image; SpecError if it would be too large."""
    require_rank(node, 4)
    sizes = [int(n) for n in node.value(1, "the size").reshape(-1)]
    if len(sizes) != 2 or not all(0 < n <= MAX_SIZE for n in sizes):
        raise node.fail(f"size {sizes} is not a height and a width")
    shape = (node.shape()[0], *sizes, node.shape()[3])
    if math.prod(shape) > MAX_ELEMENTS:
        raise node.fail(f"makes a tensor of shape {shape}, more than {MAX_ELEMENTS:,} elements")
    return sizes


def read_resize_nearest(node: FileNode) -> tuple[str, ...]:
    """Read RESIZE_NEAREST_NEIGHBOR of elements of any type."""
    align, half = bool(node.get("AlignCorners", 0)), bool(node.get("HalfPixelCenters", 0))
    places = {
        axis: np.array(resize_places(node.shape()[axis], size, align=align, half=half), np.int64)
        for axis, size in zip((1, 2), sizes_of(node), strict=True)
    }
    image = to_channels_first(node, node.edge(0))
    resized = node.add("resize", image, places={axis + 1: at for axis, at in places.items()})
    return (to_channels_last(node, resized),)


def _read_resize_bilinear(node: FileNode) -> tuple[str, ...]:
    """Read RESIZE_BILINEAR: the sum of four neighbours, each times both weights, in float32."""
    align, half = bool(node.get("AlignCorners", 0)), bool(node.get("HalfPixelCenters", 0))
    sides = [
        neighbours(size, out, align=align, half=half)
        for size, out in zip(node.shape()[1:3], sizes_of(node), strict=True)
    ]
    return (to_channels_last(node, add_corners(node, to_channels_first(node, node.edge(0)), sides)),)


Side = tuple[Any, Any, Any, Any]
"""Both neighbours of each element along an axis, and their weights."""


def add_corners(node: FileNode, image: str, sides: Sequence[Side]) -> str:
    """Return the edge of the sums of an image's four neighbours, each times the weights along rows and columns."""
    rows, columns = sides
    terms = []
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
        corner = node.add("resize", image, places={2: rows[row], 3: columns[column]})
        weights = rows[2 + row].reshape(1, 1, -1, 1) * columns[2 + column].reshape(1, 1, 1, -1)
        terms.append(node.add("mul", corner, node.constant(weights)))
    return reduce(lambda a, b: node.add("add", a, b), terms)


def neighbours(size: int, out: int, *, align: bool, half: bool) -> Side:
    """Return both neighbours of each element along an axis, and their weights in float32.

    As `ComputeInterpolationValues` (kernels/internal/reference/resize_bilinear.h).
    """
    one, half_pixel = np.float32(1), np.float32(0.5)
    scale = np.float32(size - 1) / np.float32(out - 1) if align and out > 1 else np.float32(size) / np.float32(out)
    k = np.arange(out, dtype=np.float32)
    at = (k + half_pixel) * scale - half_pixel if half else k * scale
    low = np.floor(at)
    first = np.maximum(low.astype(np.int64), 0)
    second = np.minimum(np.ceil(at).astype(np.int64), size - 1)
    part = np.maximum(at - first.astype(np.float32), 0)
    return np.minimum(first, size - 1), np.maximum(second, 0), one - part, part


def _read_transpose_conv(node: FileNode) -> tuple[str, ...]:
    """Read TRANSPOSE_CONV: the size of the result, weights (O, H, W, I), and the image."""
    return (to_channels_last(node, activate(node, transpose_convolution(node, node.edge(2), node.edge(1)))),)


def transpose_convolution(node: FileNode, image: str, weights: str) -> str:
    """Return the edge of a transposed convolution and its bias, channels first, as ConvTranspose of ONNX."""
    require_rank(node, 4, 2)
    require_rank(node, 4, 1)
    sizes = [int(n) for n in node.value(0, "the shape").reshape(-1)]
    (_, height, width, channels), (out, *kernel, inner) = node.shape(2), node.shape(1)
    strides = [int(node.get("StrideH", 0)), int(node.get("StrideW", 0))]
    if len(sizes) != 4 or inner != channels or sizes[3] != out or min(strides) < 1:
        raise node.fail(f"a shape {sizes} and weights {node.shape(1)} do not fit an image {node.shape(2)}")
    before, more = [], []
    for size, n, k, stride in zip(sizes[1:3], (height, width), kernel, strides, strict=True):
        same = int(node.get("Padding", 0)) == 0
        windows = -(-size // stride) if same else (size - k + stride) // stride
        if windows != n:
            raise node.fail(f"{n} pixels do not become {size}")
        total = max(0, (n - 1) * stride + k - size)
        before.append(total // 2)
        more.append(total - total // 2)
        if (n - 1) * stride + k < size:
            raise node.fail(f"{n} pixels do not reach {size}")
    first = to_channels_first(node, image)
    turned = node.add("transpose", weights, order=(3, 0, 1, 2))
    inputs = (first, turned, *((node.edge(3),) if node.has(3) else ()))
    return PRODUCTS["ConvTranspose"](
        replace(node, inputs=inputs, attributes={"strides": strides, "pads": [*before, *more]})
    )[0]


def _read_cast(node: FileNode) -> tuple[str, ...]:
    return (cast_to(node, node.edge(0), node.get("out0.type")),)


FLOAT_READERS: dict[str, Reader] = {
    "ABS": unary_reader("abs"),
    "ADD": _binary_reader("add"),
    "AVERAGE_POOL_2D": with_channels_last(_read_average_pool),
    "CONV_2D": _convolution_reader(convolution_weights),
    "DEPTHWISE_CONV_2D": _convolution_reader(depthwise_weights),
    "DIV": _binary_reader("div"),
    "EXP": unary_reader("exp"),
    "FULLY_CONNECTED": _read_fully_connected,
    "HARD_SWISH": unary_reader("hard_swish", alpha=1 / 6),
    "LEAKY_RELU": _read_leaky_relu,
    "LOGISTIC": unary_reader("sigmoid"),
    "MAX_POOL_2D": with_channels_last(_read_max_pool),
    "MAXIMUM": _binary_reader("max"),
    "MEAN": _read_mean,
    "MINIMUM": _binary_reader("min"),
    "MUL": _binary_reader("mul"),
    "NEG": unary_reader("neg"),
    "PRELU": ELEMENTWISE["PRelu"],
    "RELU": unary_reader("relu"),
    "RELU6": unary_reader("clip", low=0.0, high=6.0),
    "RELU_N1_TO_1": unary_reader("clip", low=-1.0, high=1.0),
    "RESIZE_BILINEAR": _read_resize_bilinear,
    "SOFTMAX": _read_softmax,
    "SQRT": unary_reader("sqrt"),
    "SUB": _binary_reader("sub"),
    "TANH": unary_reader("tanh"),
    "TRANSPOSE_CONV": _read_transpose_conv,
}
"""Readers for activations of float32, by operator."""
MOVE_READERS: dict[str, Reader] = {
    "CONCATENATION": _read_concatenation,
    "EXPAND_DIMS": _read_expand_dims,
    "GATHER": _read_gather,
    "PACK": _read_pack,
    "PAD": _read_pad,
    "PADV2": _read_pad,
    "RESHAPE": _read_reshape,
    "RESIZE_NEAREST_NEIGHBOR": read_resize_nearest,
    "SLICE": _read_slice,
    "SPLIT": _read_split,
    "SPLIT_V": _read_split_v,
    "SQUEEZE": _read_squeeze,
    "STRIDED_SLICE": _read_strided_slice,
    "TRANSPOSE": _read_transpose,
    "UNPACK": _read_unpack,
}
"""Readers of moves, for elements of any type, by operator."""
OTHER_READERS: dict[str, Reader] = {"CAST": _read_cast}

"""Conv, ConvTranspose, MatMul, Gemm, MaxPool and AveragePool of standard ONNX.

ConvTranspose becomes a convolution of stride 1 and a move. For a stride s and b elements cut off at the beginning,
output element s * t + r is phase r of pixel t. Input pixel t + o adds to it by the weight r + b - s * o, if there is
such a weight. All phases are computed as channels of pixel t, and then interleaved; no zeros are put between pixels.

FINN writes a convolution as Im2Col, whose patches are the rows of a MatMul. Here patches are a depthwise convolution,
whose weights pick one pixel each, so that the product after Im2Col can be recognized and written as one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Node
from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.graph.read.file_node import FileNode, Reader, to_channels_last
from bitsynth.graph.read.nodes.quantizer_recovery import recover_weight_codes
from bitsynth.graph.types import Shape, Tensor, cast

_MAX_WINDOW_SIZE = 1 << 20
_TO_CHANNELS_LAST = (0, 2, 3, 1)
_POINT_WINDOW = SlidingWindow((1, 1), (1, 1), (1, 1), (0, 0), (0, 0), ceil=False)


def window_of(node: FileNode, kernel: Shape, *, ceil: bool = False) -> SlidingWindow:
    """Return the window of the node's attributes over its first input; SpecError if it does not fit."""
    axes = len(kernel)
    if len(node.shape()) != axes + 2 or not axes:
        raise node.fail(f"a window {kernel} does not fit an image of shape {node.shape()}")
    strides, dilations = (_window_sizes(node, name, axes) for name in ("strides", "dilations"))
    pads = [int(n) for n in node.get("pads") or [0] * (2 * axes)]
    if len(pads) != 2 * axes or min(pads) < 0 or max(pads) > _MAX_WINDOW_SIZE or min(kernel) < 1:
        raise node.fail(f"pads {pads} do not fit a window {kernel}")
    auto = node.get("auto_pad", "NOTSET")
    begins, ends = tuple(pads[:axes]), tuple(pads[axes:])
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        begins, ends = _same_padding(node.shape()[2:], kernel, strides, dilations, upper=auto == "SAME_UPPER")
    elif auto == "VALID":
        begins = ends = (0,) * axes
    elif auto not in ("NOTSET", ""):
        raise node.fail(f"auto_pad {auto!r} is not known")
    return SlidingWindow(kernel, strides, dilations, begins, ends, ceil and auto in ("NOTSET", ""))


def _window_sizes(node: FileNode, name: str, axes: int) -> Shape:
    """Return strides or dilations; SpecError if they do not fit."""
    values = tuple(int(n) for n in node.get(name) or [1] * axes)
    if len(values) != axes or min(values) < 1 or max(values) > _MAX_WINDOW_SIZE:
        raise node.fail(f"{name} {values} must be {axes} numbers above 0")
    return values


def _same_padding(image: Shape, kernel: Shape, strides: Shape, dilations: Shape, *, upper: bool) -> tuple[Shape, Shape]:
    """Return the padding before and after each axis with which there are ceil(n / stride) windows."""
    begins, ends = [], []
    for n, k, s, d in zip(image, kernel, strides, dilations, strict=True):
        total = max(0, (-(-n // s) - 1) * s + d * (k - 1) + 1 - n)
        small, large = total // 2, total - total // 2
        begins.append(small if upper else large)
        ends.append(large if upper else small)
    return tuple(begins), tuple(ends)


def add_convolution(node: FileNode, x: str, w: str, **attributes: Any) -> str:
    """Return the edge of a convolution of `x` by weights `w`, with the node's attributes."""
    weights = node.graph.edges[w].shape
    kernel = node.get("kernel_shape")
    if kernel and tuple(kernel) != weights[2:]:
        raise node.fail(f"kernel_shape {tuple(kernel)} does not match weights {weights}")
    if 0 in weights:
        raise node.fail(f"weights {weights} have no elements")
    groups = int(node.get("group", 1))
    if groups < 1:
        raise node.fail(f"group is {groups}")
    return node.add("conv", x, w, window=window_of(node, weights[2:]), groups=groups, **attributes)


def reshape_to_channels(node: FileNode, edge: str, rank: int) -> str:
    """Return an edge (C,) as (1, C, 1, ...)."""
    (count,) = node.graph.edges[edge].shape
    return node.reshape(edge, (1, count, *[1] * (rank - 2)))


def read_conv(node: FileNode) -> tuple[str, ...]:
    """Read Conv: weights that are folded codes are recovered, and the bias is added."""
    convolution = add_convolution(node, node.edge(0), recover_weight_codes(node, 1, 0))
    if node.has(2):
        convolution = node.add("add", convolution, reshape_to_channels(node, node.edge(2), len(node.shape())))
    return (convolution,)


def read_max_pool(node: FileNode) -> tuple[str, ...]:
    """Read MaxPool, but for its indices."""
    if any(node.outputs[1:]):
        raise node.fail("its indices are used; only the maxima are compiled")
    window = window_of(node, _kernel_shape(node), ceil=bool(node.get("ceil_mode")))
    if any(pad >= reach for pad, reach in zip(window.begins + window.ends, window.reach * 2, strict=True)):
        raise node.fail(f"pads {window.begins + window.ends} leave windows {window.reach} of padding alone")
    return (node.add("max_pool", node.edge(0), window=window),)


def _kernel_shape(node: FileNode) -> Shape:
    """Return the kernel_shape of a pool; SpecError if it is left out."""
    if not node.get("kernel_shape"):
        raise node.fail("has no kernel_shape")
    return tuple(int(n) for n in node.get("kernel_shape"))


def add_window_sums(node: FileNode) -> str:
    """Return the edge of the sums of the node's windows."""
    return node.add("sum_pool", node.edge(0), window=window_of(node, _kernel_shape(node)))


def _read_average_pool(node: FileNode) -> tuple[str, ...]:
    return (add_average_pool(node, node.edge(0), node.input(0).dtype),)


def add_average_pool(node: FileNode, edge: str, dtype: str) -> str:
    """Return the edge of means over the node's windows of an edge, which has the shape of the first input."""
    window = window_of(node, _kernel_shape(node), ceil=bool(node.get("ceil_mode")))
    sums = node.add("sum_pool", edge, window=window)  # which refuses windows that would take hours, also to count
    counts = count_elements(window, node.shape()[2:], padded=bool(node.get("count_include_pad")))
    return node.add("div", sums, node.constant(cast(counts, dtype)))


def count_elements(window: SlidingWindow, image: Shape, *, padded: bool) -> Tensor:
    """Return how many elements each window averages; one number if all average the same."""
    ones = np.pad(np.ones(image), list(zip(window.begins, window.ends, strict=True)), constant_values=float(padded))
    if padded:
        none = (0,) * len(image)
        elements = SlidingWindow(window.kernel, window.strides, window.dilations, none, none, window.ceil).extract(
            ones[None, None]
        )
        wanted = window.count(image)
        elements = elements[(slice(None), slice(None), *(slice(0, n) for n in wanted))]
    else:
        elements = window.extract(np.ones((1, 1, *image)))
    counts = elements.sum(tuple(range(2 + len(image), 2 + 2 * len(image))))
    return np.asarray(counts.flat[0]) if (counts == counts.flat[0]).all() else counts


def _read_matmul(node: FileNode) -> tuple[str, ...]:
    """Read MatMul: of pixels or im2col it is a convolution."""
    weights = recover_weight_codes(node, 1, -1)
    return (match_product_of_pixels(node, node.edge(0), weights) or node.add("matmul", node.edge(0), weights),)


def read_gemm(node: FileNode) -> tuple[str, ...]:
    """Read Gemm: alpha * A @ B + beta * C."""
    a, b = (
        transpose_if(node, 0, "transA"),
        transpose_if(node, 1, "transB", recover_weight_codes(node, 1, 0 if node.get("transB") else -1)),
    )
    product = node.add("matmul", a, b)
    if node.get("alpha", 1.0) != 1.0:
        product = node.add("mul", product, node.constant_like(node.get("alpha")))
    if node.has(2) and node.get("beta", 1.0) != 0.0:
        bias = node.edge(2)
        if node.get("beta", 1.0) != 1.0:
            bias = node.add("mul", bias, node.constant_like(node.get("beta")))
        product = node.add("add", product, bias)
    return (product,)


def transpose_if(node: FileNode, index: int, attribute: str, edge: str = "") -> str:
    """Return the edge of a matrix, transposed if the node's attribute is set."""
    matrix = edge or node.edge(index)
    return node.add("transpose", matrix, order=(1, 0)) if node.get(attribute) else matrix


_MAX_STRIDE = 64
"""The greatest stride or dilation of ConvTranspose: weights grow with its square."""
_MAX_WEIGHTS = 1 << 28


@dataclass(frozen=True)
class _TransposedAxis:
    """One axis of ConvTranspose's image; the output has `size` elements, after `begin` elements are cut off."""

    image: int
    kernel: int
    stride: int
    dilation: int
    begin: int
    size: int

    @property
    def pixels(self) -> int:
        """Output pixels, each of `stride` phases."""
        return -(-self.size // self.stride)

    @property
    def first(self) -> int:
        """The first input pixel that adds to output pixel 0, counted from it."""
        return math.ceil((self.begin - self._reach + 1) / self.stride)

    @property
    def taps(self) -> Tensor:
        """(phases, pixels): the weight with which a pixel adds to a phase; `kernel` where it adds nothing."""
        last = (self.stride - 1 + self.begin) // self.stride
        phases, pixels = np.arange(self.stride)[:, None], np.arange(self.first, last + 1)[None]
        place = phases + self.begin - self.stride * pixels
        adds = (place >= 0) & (place < self._reach) & (place % self.dilation == 0)
        return np.where(adds, place // self.dilation, self.kernel)

    @property
    def pads(self) -> tuple[int, int]:
        """Pixels of padding before and after the image; negative if some pixels are not read."""
        return -self.first, self.pixels - self.image + self.first + self.taps.shape[1] - 1

    @property
    def _reach(self) -> int:
        """Elements from the first to the last weight of the dilated kernel."""
        return self.dilation * (self.kernel - 1) + 1


def _read_conv_transpose(node: FileNode) -> tuple[str, ...]:
    """Read ConvTranspose as a convolution of all phases and a move that interleaves them."""
    groups = int(node.get("group", 1))
    image, weights = node.shape(), node.shape(1)
    fits = 3 <= len(image) == len(weights) and groups >= 1 and 0 not in weights
    if not fits or image[1] != weights[0] or image[1] % groups:
        raise node.fail(f"weights {weights} of {groups} groups do not fit an image {image}")
    axes = _transposed_axes(node)
    kept, (begins, ends) = _cut_image(node, axes)
    ones = (1,) * len(axes)
    window = SlidingWindow(tuple(a.taps.shape[1] for a in axes), ones, ones, begins, ends, False)
    convolution = node.add("conv", kept, _phase_weights(node, axes, groups), window=window, groups=groups)
    phases = math.prod(a.stride for a in axes)
    if node.has(2):
        bias = node.add("gather", node.edge(2), places=np.repeat(np.arange(node.shape(2)[0]), phases), axis=0)
        convolution = node.add("add", convolution, reshape_to_channels(node, bias, len(image)))
    return (_slice_image(node, _interleave_phases(node, convolution, axes), [(0, a.size) for a in axes]),)


def _transposed_axes(node: FileNode) -> list[_TransposedAxis]:
    """Return the axes of the image; SpecError for attributes that do not fit."""
    image, kernel, count = node.shape()[2:], node.shape(1)[2:], len(node.shape()) - 2
    strides, dilations, more = (
        [int(n) for n in node.get(name) or [least] * count]
        for name, least in (("strides", 1), ("dilations", 1), ("output_padding", 0))
    )
    if not len(strides) == len(dilations) == len(more) == count:
        raise node.fail(f"strides {strides}, dilations {dilations}, output_padding {more} do not fit {count} axes")
    steps = [max(s, d) for s, d in zip(strides, dilations, strict=True)]
    if max(steps) > _MAX_STRIDE or min(strides + dilations) < 1:
        raise node.fail(f"strides {strides} and dilations {dilations} must be 1 to {_MAX_STRIDE}")
    if not all(0 <= m < s for m, s in zip(more, steps, strict=True)):
        raise node.fail(f"output_padding {more} must be below {steps}")
    whole = [
        s * (n - 1) + d * (k - 1) + 1 + m for n, k, s, d, m in zip(image, kernel, strides, dilations, more, strict=True)
    ]
    begins, sizes = _cut_ends(
        node, whole, [min(n, i * s) for n, i, s in zip(whole, image, strides, strict=True)], steps
    )
    return [_TransposedAxis(*given) for given in zip(image, kernel, strides, dilations, begins, sizes, strict=True)]


def _cut_ends(node: FileNode, whole: list[int], same: list[int], steps: list[int]) -> tuple[list[int], list[int]]:
    """Return how many elements are cut off at the beginning of each axis, and the size of the output.

    `whole` are the sizes without cuts, `same` the sizes with automatic padding. `output_shape` may ask for more than
    the whole, by fewer than a step; no product adds to the additional elements.
    """
    count, auto = len(whole), node.get("auto_pad", "NOTSET") or "NOTSET"
    pads, wanted = [int(n) for n in node.get("pads") or [0] * (2 * count)], node.get("output_shape")
    if auto not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise node.fail(f"auto_pad {auto!r} is not known")
    if wanted or auto.startswith("SAME"):
        wanted = [int(n) for n in wanted or same][-count:]
        if len(wanted) != count or not all(0 < n < m + s for n, m, s in zip(wanted, whole, steps, strict=True)):
            raise node.fail(f"output_shape {wanted} does not fit {whole} elements; export it with pads")
        cut = [max(m - n, 0) for n, m in zip(wanted, whole, strict=True)]
        return [n // 2 if auto == "SAME_UPPER" else n - n // 2 for n in cut], wanted
    if len(pads) != 2 * count or min(pads) < 0:
        raise node.fail(f"pads {pads} do not fit {count} axes")
    pads = [0] * (2 * count) if auto == "VALID" else pads
    sizes = [n - b - e for n, b, e in zip(whole, pads[:count], pads[count:], strict=True)]
    if min(sizes) < 1:
        raise node.fail(f"pads {pads} leave nothing of an image {node.shape()}")
    return pads[:count], sizes


def _phase_weights(node: FileNode, axes: list[_TransposedAxis], groups: int) -> str:
    """Return weights (C, O / groups, *kernel) as the weights of all phases, (O * phases, C / groups, *taps)."""
    if (size := math.prod(node.shape(1)[:2]) * math.prod(a.taps.size for a in axes)) > _MAX_WEIGHTS:
        raise node.fail(f"weights of all phases would be {size:,}, more than {_MAX_WEIGHTS:,}; use smaller strides")
    edge, (channels, out), count = recover_weight_codes(node, 1, 1), node.shape(1)[:2], len(axes)
    if any((a.taps == a.kernel).any() for a in axes):
        edge = node.add("pad", edge, pads=((0, 0), (0, 0), *((0, 1),) * count), mode="constant", fills=True)
    for k, a in reversed(list(enumerate(axes))):
        edge = node.add("gather", edge, places=a.taps, axis=2 + k)
    edge = node.reshape(edge, (groups, channels // groups, out, *(n for a in axes for n in a.taps.shape)))
    phases, taps = range(3, 3 + 2 * count, 2), range(4, 4 + 2 * count, 2)
    edge = node.add("transpose", edge, order=(0, 2, *phases, 1, *taps))
    rows = groups * out * math.prod(a.stride for a in axes)
    return node.reshape(edge, (rows, channels // groups, *(a.taps.shape[1] for a in axes)))


def _interleave_phases(node: FileNode, edge: str, axes: list[_TransposedAxis]) -> str:
    """Return the edge of phases, which are channels, as pixels of the output."""
    strides, count = tuple(a.stride for a in axes), len(axes)
    if set(strides) == {1}:
        return edge
    if count == 2 and len(set(strides)) == 1:
        return node.add("depth_to_space", edge, block=strides[0], mode="CRD")
    batch, channels, *pixels = node.graph.edges[edge].shape
    edge = node.reshape(edge, (batch, channels // math.prod(strides), *strides, *pixels))
    order = (0, 1, *(k for n in range(count) for k in (2 + count + n, 2 + n)))
    edge = node.add("transpose", edge, order=order)
    sizes = tuple(n * s for n, s in zip(pixels, strides, strict=True))
    return node.reshape(edge, (batch, channels // math.prod(strides), *sizes))


def _cut_image(node: FileNode, axes: list[_TransposedAxis]) -> tuple[str, tuple[Shape, Shape]]:
    """Return the image without the pixels that no output reads, and the padding that is left."""
    ends = [(max(-a.pads[0], 0), a.image - max(-a.pads[1], 0)) for a in axes]
    if any(first >= last for first, last in ends):
        raise node.fail(f"pads leave nothing of an image {node.shape()}; no pixel of it is read")
    before, after = (tuple(max(a.pads[k], 0) for a in axes) for k in (0, 1))
    return _slice_image(node, node.edge(0), ends), (before, after)


def _slice_image(node: FileNode, edge: str, ends: list[tuple[int, int]]) -> str:
    """Return the pixels between `ends` of all axes; the edge itself if these are all pixels."""
    if all((0, n) == end for n, end in zip(node.graph.edges[edge].shape[2:], ends, strict=True)):
        return edge
    every = (None, None, 1)
    return node.add("slice", edge, slices=(every, every, *((first, last, 1) for first, last in ends)))


def add_patches(node: FileNode, window: SlidingWindow) -> str:
    """Return the edge of im2col: each pixel has all pixels of its window, with all their channels, as channels."""
    channels, size = node.shape()[1], math.prod(window.kernel)
    weights = node.constant(cast(_one_pixel_weights(channels, window.kernel), node.input(0).dtype))
    by_channel = node.add("conv", node.edge(0), weights, window=window, groups=channels)
    return node.add("gather", by_channel, places=_order_by_pixel(channels, size), axis=1)


def _one_pixel_weights(channels: int, kernel: Shape) -> Tensor:
    """Return depthwise weights (C * size, 1, *kernel) that pick one pixel of the window each."""
    size = math.prod(kernel)
    return np.tile(np.eye(size), (channels, 1)).reshape(channels * size, 1, *kernel)


def _order_by_pixel(channels: int, size: int) -> Tensor:
    """Return the indices that sort channels of (channel, pixel) by (pixel, channel)."""
    return np.arange(channels * size).reshape(channels, size).T.reshape(-1)


def match_product_of_pixels(node: FileNode, x: str, weights: str) -> str | None:
    """Return the edge of a convolution for im2col, or for pixels, times a matrix; None of other products."""
    graph = node.graph
    moved = graph.maker(x, "transpose")
    if moved is None or moved.attributes["order"] != _TO_CHANNELS_LAST or weights not in graph.constants:
        return None
    image, sizes = moved.inputs[0], graph.edges[weights].shape
    if len(sizes) != 2 or graph.edges[image].shape[1] != sizes[0]:
        return None
    rows = node.add("transpose", weights, order=(1, 0))
    depthwise = _find_patches(graph, image)
    if depthwise is not None:
        return to_channels_last(node, _convolve_patches(node, depthwise, rows))
    whole = node.reshape(rows, (*graph.edges[rows].shape, 1, 1))
    return to_channels_last(node, node.add("conv", image, whole, window=_POINT_WINDOW, groups=1))


def _find_patches(graph: GraphBuilder, image: str) -> Node | None:
    """Return the depthwise convolution of im2col, if an image is its result sorted by pixel; else None."""
    sorted_by = graph.maker(image, "gather")
    depthwise = graph.maker(sorted_by.inputs[0], "conv") if sorted_by else None
    if sorted_by is None or depthwise is None or sorted_by.attributes["axis"] != 1:
        return None
    weights, channels = graph.constants.get(depthwise.inputs[1]), depthwise.attributes["groups"]
    kernel = depthwise.attributes["window"].kernel
    if weights is None or not np.array_equal(weights, _one_pixel_weights(channels, kernel)):
        return None
    same = np.array_equal(sorted_by.attributes["places"], _order_by_pixel(channels, math.prod(kernel)))
    return depthwise if same else None


def _convolve_patches(node: FileNode, depthwise: Node, rows: str) -> str:
    """Add a convolution for the product of im2col with rows of weights; depthwise if the weights are block diagonal."""
    channels, window = depthwise.attributes["groups"], depthwise.attributes["window"]
    count, size = node.graph.edges[rows].shape[0], math.prod(window.kernel)
    by_channel = node.add("gather", rows, places=_order_by_pixel(size, channels), axis=1)
    kernel, groups = node.reshape(by_channel, (count, channels, *window.kernel)), 1
    if _is_depthwise(node.graph.value(by_channel), channels):
        each, groups = node.reshape(kernel, (count * channels, *window.kernel)), channels
        own = np.arange(count) * channels + np.arange(count) * channels // count
        kernel = node.reshape(node.add("gather", each, places=own, axis=0), (count, 1, *window.kernel))
    return node.add("conv", depthwise.inputs[0], kernel, window=window, groups=groups)


def _is_depthwise(rows: Tensor | None, channels: int) -> bool:
    """Return whether rows of weights have nonzero numbers of one channel each, in equal parts for all channels."""
    if rows is None or channels == 1 or len(rows) % channels:
        return False
    others = rows.reshape(channels, -1, channels, rows.shape[1] // channels).copy()
    others[range(channels), :, range(channels)] = 0
    return not others.any()


READERS: dict[str, Reader] = {
    "AveragePool": _read_average_pool,
    "Conv": read_conv,
    "ConvTranspose": _read_conv_transpose,
    "Gemm": read_gemm,
    "MatMul": _read_matmul,
    "MaxPool": read_max_pool,
}

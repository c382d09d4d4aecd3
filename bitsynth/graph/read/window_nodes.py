"""Nodes of standard ONNX that slide a window, and matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.graph.read.float_nodes import Reader
from bitsynth.graph.read.patches import product_of_image
from bitsynth.graph.read.source import FileNode
from bitsynth.graph.read.weight_grids import on_grid
from bitsynth.graph.types import Shape, Tensor, cast

_MOST = 1 << 20


def window(node: FileNode, kernel: Shape, *, ceil: bool = False) -> SlidingWindow:
    """The window of the node's attributes over its first input."""
    axes = len(kernel)
    if len(node.shape()) != axes + 2 or not axes:
        raise node.fail(f"a window {kernel} does not fit an image of shape {node.shape()}")
    strides, dilations = (_sizes(node, name, axes) for name in ("strides", "dilations"))
    pads = [int(n) for n in node.get("pads") or [0] * (2 * axes)]
    if len(pads) != 2 * axes or min(pads) < 0 or max(pads) > _MOST or min(kernel) < 1:
        raise node.fail(f"pads {pads} do not fit a window {kernel}")
    auto = node.get("auto_pad", "NOTSET")
    begins, ends = tuple(pads[:axes]), tuple(pads[axes:])
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        begins, ends = _same(node.shape()[2:], kernel, strides, dilations, upper=auto == "SAME_UPPER")
    elif auto == "VALID":
        begins = ends = (0,) * axes
    elif auto not in ("NOTSET", ""):
        raise node.fail(f"auto_pad {auto!r} is not known")
    return SlidingWindow(kernel, strides, dilations, begins, ends, ceil and auto in ("NOTSET", ""))


def _sizes(node: FileNode, name: str, axes: int) -> Shape:
    found = tuple(int(n) for n in node.get(name) or [1] * axes)
    if len(found) != axes or min(found) < 1 or max(found) > _MOST:
        raise node.fail(f"{name} {found} want {axes} numbers above 0")
    return found


def _same(image: Shape, kernel: Shape, strides: Shape, dilations: Shape, *, upper: bool) -> tuple[Shape, Shape]:
    begins, ends = [], []
    for n, k, s, d in zip(image, kernel, strides, dilations, strict=True):
        total = max(0, (-(-n // s) - 1) * s + d * (k - 1) + 1 - n)
        small, large = total // 2, total - total // 2
        begins.append(small if upper else large)
        ends.append(large if upper else small)
    return tuple(begins), tuple(ends)


def convolved(node: FileNode, x: str, w: str, **attributes: Any) -> str:
    """A convolution of two edges by the node's attributes."""
    weights = node.graph.edges[w].shape
    kernel = node.get("kernel_shape")
    if kernel and tuple(kernel) != weights[2:]:
        raise node.fail(f"kernel_shape {tuple(kernel)} is not that of weights {weights}")
    if 0 in weights:
        raise node.fail(f"weights {weights} are none")
    groups = int(node.get("group", 1))
    if groups < 1:
        raise node.fail(f"group is {groups}")
    return node.add("conv", x, w, window=window(node, weights[2:]), groups=groups, **attributes)


def channel(node: FileNode, edge: str, rank: int) -> str:
    """An edge (C,) as (1, C, 1, ...)."""
    (count,) = node.graph.edges[edge].shape
    return node.reshape(edge, (1, count, *[1] * (rank - 2)))


def conv(node: FileNode) -> tuple[str, ...]:
    """A convolution with weights as they are meant, and its bias."""
    made = convolved(node, node.edge(0), on_grid(node, 1, 0))
    if node.has(2):
        made = node.add("add", made, channel(node, node.edge(2), len(node.shape())))
    return (made,)


def max_pool(node: FileNode) -> tuple[str, ...]:
    """The maxima of windows."""
    if any(node.outputs[1:]):
        raise node.fail("its indices are used; only the maxima are compiled")
    made = window(node, _kernel(node), ceil=bool(node.get("ceil_mode")))
    if any(pad >= reach for pad, reach in zip(made.begins + made.ends, made.reach * 2, strict=True)):
        raise node.fail(f"pads {made.begins + made.ends} leave windows {made.reach} of padding alone")
    return (node.add("max_pool", node.edge(0), window=made),)


def _kernel(node: FileNode) -> Shape:
    if not node.get("kernel_shape"):
        raise node.fail("has no kernel_shape")
    return tuple(int(n) for n in node.get("kernel_shape"))


def summed(node: FileNode) -> str:
    """Sums of the windows of the node's attributes."""
    return node.add("sum_pool", node.edge(0), window=window(node, _kernel(node)))


def _average_pool(node: FileNode) -> tuple[str, ...]:
    return (averaged(node, node.edge(0), node.of(0).dtype),)


def averaged(node: FileNode, edge: str, dtype: str) -> str:
    """Means of the windows of the node's attributes, over an edge of its first input's shape and this type."""
    made = window(node, _kernel(node), ceil=bool(node.get("ceil_mode")))
    sums = node.add("sum_pool", edge, window=made)  # which refuses windows that would take hours, also to count
    counts = _counts(made, node.shape()[2:], padded=bool(node.get("count_include_pad")))
    return node.add("div", sums, node.constant(cast(counts, dtype)))


def _counts(made: SlidingWindow, image: Shape, *, padded: bool) -> Tensor:
    """How many elements each window counts; one number if all count the same."""
    ones = np.pad(np.ones(image), list(zip(made.begins, made.ends, strict=True)), constant_values=float(padded))
    if padded:
        none = (0,) * len(image)
        found = SlidingWindow(made.kernel, made.strides, made.dilations, none, none, made.ceil).of(ones[None, None])
        wanted = made.out(image)
        found = found[(slice(None), slice(None), *(slice(0, n) for n in wanted))]
    else:
        found = made.of(np.ones((1, 1, *image)))
    counts = found.sum(tuple(range(2 + len(image), 2 + 2 * len(image))))
    return np.asarray(counts.flat[0]) if (counts == counts.flat[0]).all() else counts


def _matmul(node: FileNode) -> tuple[str, ...]:
    weights = on_grid(node, 1, -1)
    return (product_of_image(node, node.edge(0), weights) or node.add("matmul", node.edge(0), weights),)


def gemm(node: FileNode) -> tuple[str, ...]:
    """A product of matrices, times alpha, plus beta times another."""
    a, b = turned(node, 0, "transA"), turned(node, 1, "transB", on_grid(node, 1, 0 if node.get("transB") else -1))
    made = node.add("matmul", a, b)
    if node.get("alpha", 1.0) != 1.0:
        made = node.add("mul", made, node.like(node.get("alpha")))
    if node.has(2) and node.get("beta", 1.0) != 0.0:
        bias = node.edge(2)
        if node.get("beta", 1.0) != 1.0:
            bias = node.add("mul", bias, node.like(node.get("beta")))
        made = node.add("add", made, bias)
    return (made,)


def turned(node: FileNode, index: int, attribute: str, edge: str = "") -> str:
    """A matrix, transposed if the attribute says so."""
    found = edge or node.edge(index)
    return node.add("transpose", found, order=(1, 0)) if node.get(attribute) else found


READERS: dict[str, Reader] = {
    "AveragePool": _average_pool,
    "Conv": conv,
    "Gemm": gemm,
    "MatMul": _matmul,
    "MaxPool": max_pool,
}

"""The operators conv and matmul, computed on integers wherever both factors carry integers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from bitsynth.graph.arithmetic import Quantity
from bitsynth.graph.operators.site import Operator, Site, common_dtype
from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.graph.ranges import infer_convolution, infer_matmul
from bitsynth.graph.types import INT32, Edge, Integers, Reals, Shape, Tensor

_MAX_WINDOW_ELEMENTS = 1 << 18
"""The most elements of windows that are copied at once: 2 MB of float64, which stay in the cache."""


def _window(site: Site) -> SlidingWindow:
    window: SlidingWindow = site["window"]
    return window


def _infer_conv(site: Site) -> list[Edge]:
    x, w = site.inputs
    groups = site["groups"]
    if len(x.shape) < 3 or len(x.shape) != len(w.shape):
        raise site.fail(f"images {x.shape} and weights {w.shape} must have the same number of axes, 3 or more")
    if x.shape[1] != w.shape[1] * groups or w.shape[0] % groups:
        raise site.fail(f"{x.shape[1]} channels do not fit weights {w.shape} in {groups} groups")
    out = _window(site).count(x.shape[2:])
    if min(out, default=1) < 1:
        raise site.fail(f"an image of {x.shape[2:]} is smaller than the window {_window(site).reach}")
    shape = (x.shape[0], w.shape[0], *out)
    return [_accumulator_edge(site, shape, infer_convolution(site))]


def _accumulator_edge(site: Site, shape: Shape, kind: Integers | None) -> Edge:
    """Return the edge of accumulators; SpecError if int32 does not hold them."""
    dtype = site.get("dtype") or common_dtype(site)
    if kind and (kind.least < INT32[0] or kind.most > INT32[1]):
        raise site.fail(f"sums go from {kind.least:,} to {kind.most:,}, which int32 does not hold")
    return site.output_edge(shape, kind or Reals(), dtype)


def _subtract_zero_points(site: Site, values: tuple[Any, ...]) -> list[Tensor]:
    """Return the integers minus their zero points, as floats, which hold them and their sums."""
    numbers = []
    for value, edge in zip(values, site.inputs, strict=True):
        numbers.append((value - edge.integers.zero).astype(np.float64, copy=False))
    return numbers


def _factors(site: Site, values: tuple[Any, ...]) -> tuple[Site, list[Quantity]]:
    """Return the site and the factors: integers as floats that hold them, or real numbers."""
    if isinstance(site.outputs[0].type, Integers):
        return site.in_floats(), list(_subtract_zero_points(site, values))
    return site, site.numbers(values)


def _as_result(site: Site, accumulators: Quantity) -> list[Any]:
    """Return accumulators as integers, or rounded to the type of the file."""
    (edge,) = site.outputs
    if isinstance(edge.type, Integers):
        return [accumulators.astype(np.int64)]
    return [site.maths.cast(accumulators, edge.dtype)]


def _window_matrix(site: Site, image: Tensor) -> Tensor:
    """Return the windows of an image as matrices (N, groups, pixels, elements)."""
    return _windows(site, image).reshape(image.shape[0], site["groups"], int(np.prod(site.outputs[0].shape[2:])), -1)


def _windows(site: Site, image: Tensor) -> Tensor:
    """Return a view of the windows of an image, (N, groups, *out, channels, *kernel)."""
    window, axes = _window(site), len(site.outputs[0].shape) - 2
    windows = window.extract(image, _zero_of(image))
    by_group = windows.reshape(windows.shape[0], site["groups"], -1, *windows.shape[2:])
    return by_group.transpose(0, 1, *range(3, 3 + axes), 2, *range(3 + axes, 3 + 2 * axes))


def _weight_matrix(site: Site, weights: Tensor) -> Tensor:
    """Return weights as matrices (groups, elements, channels of a group)."""
    groups = site["groups"]
    return weights.reshape(groups, weights.shape[0] // groups, -1).transpose(0, 2, 1)


def _convolve(site: Site, *values: Any) -> list[Any]:
    at, (x, w) = _factors(site, values)
    if isinstance(site.outputs[0].type, Integers):
        return _as_result(site, _convolve_integers(site, x, w))
    maths = at.maths
    product = maths.matmul(
        maths.move(lambda a: _window_matrix(site, a), x), maths.move(lambda a: _weight_matrix(site, a), w)
    )
    return _as_result(site, maths.move(lambda a: a.transpose(0, 1, 3, 2).reshape(site.outputs[0].shape), product))


def _convolve_integers(site: Site, image: Tensor, weights: Tensor) -> Tensor:
    """Convolve integers in floats that hold them, in any order of additions, in parts of bounded memory."""
    rows = _weight_matrix(site, weights)
    result = np.empty((image.shape[0], site["groups"], rows.shape[-1], *site.outputs[0].shape[2:]), image.dtype)
    parts = [(_windows(site, image), np.moveaxis(result, 2, -1))]
    pixels = range(2, result.ndim - 1)
    while parts:
        windows, sums = parts.pop()
        longest = max((0, *pixels), key=lambda axis: windows.shape[axis])
        if windows.size > _MAX_WINDOW_ELEMENTS and windows.shape[longest] > 1:
            halves = (np.array_split(x, 2, longest) for x in (windows, sums))
            parts += zip(*halves, strict=True)
        else:
            columns = windows.reshape(*windows.shape[:2], -1, rows.shape[-2])
            sums[...] = (columns @ rows).reshape(sums.shape)
    return result.reshape(site.outputs[0].shape)


def _zero_of(array: Tensor) -> Any:
    return Fraction(0) if array.dtype == object else 0


def _matmul_shape(a: Shape, b: Shape) -> Shape:
    """Return the shape of a product of matrices or vectors, or stacks of these; ValueError or IndexError if none."""
    if a[-1] != b[-2 if len(b) > 1 else 0]:
        raise ValueError
    return (*np.broadcast_shapes(a[:-2], b[:-2]), *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def _infer_matmul(site: Site) -> list[Edge]:
    a, b = site.inputs
    try:
        shape = _matmul_shape(a.shape, b.shape)
    except (ValueError, IndexError):
        raise site.fail(f"matrices {a.shape} and {b.shape} do not fit") from None
    return [_accumulator_edge(site, shape, infer_matmul(site))]


def _multiply(site: Site, *values: Any) -> list[Any]:
    at, (a, b) = _factors(site, values)
    first, last = len(at.maths.shape(a)) == 1, len(at.maths.shape(b)) == 1
    a = at.maths.move(lambda x: x[None] if first else x, a)
    b = at.maths.move(lambda x: x[:, None] if last else x, b)
    product = at.maths.matmul(a, b)
    return _as_result(site, at.maths.move(lambda x: x.reshape(site.outputs[0].shape), product))


def find_factors(site: Site, places: Tensor) -> tuple[Tensor, Tensor]:
    """Return where the factors of each sum at `places` of the output lie in both inputs, from 1; 0 marks padding."""
    a, b = (np.arange(1, 1 + int(np.prod(e.shape))).reshape(e.shape) for e in site.inputs)
    if site.node.op == "conv":
        a, b = _window_matrix(site, a), _weight_matrix(site, b)
        order = np.arange(a.shape[0] * a.shape[1] * a.shape[2] * b.shape[2])
        order = order.reshape(*a.shape[:3], b.shape[2]).transpose(0, 1, 3, 2).reshape(-1)[places]
    else:
        a, b = a[None] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
        order = places
    outer = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = np.broadcast_to(a, (*outer, *a.shape[-2:])), np.broadcast_to(b, (*outer, *b.shape[-2:]))
    where = np.unravel_index(order, (*outer, a.shape[-2], b.shape[-1]))
    return a[(*where[:-2], where[-2])], b.swapaxes(-1, -2)[(*where[:-2], where[-1])]


ROWS = (
    Operator("conv", "product", _infer_conv, _convolve, monotone=False),
    Operator("matmul", "product", _infer_matmul, _multiply, monotone=False),
)

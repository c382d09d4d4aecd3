"""Resize and Upsample: the nearest elements, or linear interpolation between neighbours.

Coordinates and weights are constants that are computed while a file is read, in the arithmetic of the named reference:

* exact: fractions. Weights become integers over one common divisor.
* onnxruntime: float32; each element is the sum of all corners (upsample.cc).
* onnx: float64, one axis after the other, rounded to the type of the image at the end (onnx.reference, op_resize.py).

Example: one row of 8 elements resized to 6 has half_pixel coordinates (2x + 1) * 8 / 12 - 1/2 = 1/6, 3/2, 17/6 ... In
real arithmetic the first element is (5 * a + 1 * b) / 6; the float32 weight of ONNX Runtime is not 1/6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from bitsynth.graph.read.file_node import FileNode, Reader, cast_to
from bitsynth.graph.types import Tensor

_MAX_SIZE = 1 << 16
_MAX_ELEMENTS = 1 << 28
_MAX_AXES = 3
"""The most axes that are interpolated at once: each doubles the number of corners."""
_MAX_DIVISOR = 1 << 53
"""float64, in which constants are held, has all whole numbers up to this."""
Coordinate = Any
"""A coordinate or weight: a Fraction in exact arithmetic, else a numpy float."""
_NEAREST: dict[str, Callable[[Fraction], int]] = {
    "round_prefer_floor": lambda x: math.ceil(x - Fraction(1, 2)),
    "round_prefer_ceil": lambda x: math.floor(x + Fraction(1, 2)),
    "floor": math.floor,
    "ceil": math.ceil,
}
"""The index for a coordinate. It is computed in fractions of floats, too: in float32 0.49999997 + 0.5 is 1."""
_TIE = Fraction(1, 1_000_000)
"""How far below a tie ONNX Runtime 1.32 still rounds up: found by experiment with 1,131 pairs of sizes."""


@dataclass(frozen=True)
class _Axis:
    """An axis that is resized: elements before, elements after, and the scale: after over before."""

    size: int
    out: int
    scale: Fraction


@dataclass(frozen=True)
class _Neighbours:
    """Two elements of the image for each element of the result along an axis, and the weights of both.

    Args:
        places: The index of each, (out,) of int64.
        weights: The weight of each, (out,); object arrays of Fractions in exact arithmetic.
    """

    places: tuple[Tensor, Tensor]
    weights: tuple[Tensor, Tensor]


def _read_resize(node: FileNode) -> tuple[str, ...]:
    mode, shape, rank = node.get("mode", "nearest"), node.shape(), len(node.shape())
    if mode not in ("nearest", "linear", "bilinear") or node.get("antialias"):
        how = " with antialias" if node.get("antialias") else ""
        raise node.fail(f"mode {mode!r}{how} is not compiled; upsample by nearest or linear, without antialias")
    axes = [node.axis(int(k)) for k in node.get("axes") or range(rank)]
    sizes, scales = _sizes_and_scales(node, [shape[k] for k in axes])
    if len(sizes) != len(axes) or not all(0 < n <= _MAX_SIZE for n in sizes) or math.prod(sizes) > _MAX_ELEMENTS:
        raise node.fail(f"sizes {sizes} do not fit {len(axes)} axes")
    resized = {
        axis: _Axis(shape[axis], size, scale)
        for axis, size, scale in zip(axes, sizes, scales, strict=True)
        if size != shape[axis] or scale != 1
    }
    if not resized or (node.graph.reference == "onnxruntime" and tuple(sizes) == tuple(shape[k] for k in axes)):
        return (node.edge(0),)  # ONNX Runtime copies an image whose sizes stay, whatever the scales
    if mode != "nearest":
        if len(resized) > _MAX_AXES:
            raise node.fail(f"{len(resized)} axes are not interpolated at once; at most {_MAX_AXES}")
        neighbours = {axis: _find_neighbours(node, sizes) for axis, sizes in resized.items()}
        return (_INTERPOLATE[node.graph.reference](node, neighbours),)
    return (node.add("resize", node.edge(0), places={axis: _find_nearest(node, s) for axis, s in resized.items()}),)


def _sizes_and_scales(node: FileNode, shape: list[int]) -> tuple[list[int], list[Fraction]]:
    """Return the size and the scale of each axis, from the scales or the sizes of the node."""
    at = {"Upsample": 1}.get(node.op, 1 if node.version < 11 else 2)
    if "scales" in node.attributes or (node.has(at) and node.input(at).shape != (0,)):
        values = node.attributes["scales"] if "scales" in node.attributes else node.value(at, "scales").tolist()
        scales = [float(s) for s in values]
        if any(not 0 < s <= _MAX_SIZE for s in scales):
            raise node.fail(f"scales {scales}")
        real = np.float32 if node.graph.reference == "onnxruntime" else np.float64
        return [int(real(n) * real(s)) for n, s in zip(shape, scales, strict=False)], [Fraction(s) for s in scales]
    sizes = node.numbers("sizes", 3)
    if sizes is None or len(sizes) != len(shape):
        raise node.fail("has neither scales nor sizes for its axes")
    ratios = [Fraction(size, n) for size, n in zip(sizes, shape, strict=True)]
    policy = node.get("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        return [math.floor(n * ratio + Fraction(1, 2)) for n in shape], [ratio] * len(shape)
    return sizes, ratios


def _find_nearest(node: FileNode, axis: _Axis) -> Tensor:
    """Return the index of the element that each element of the result is a copy of, (out,)."""
    nearest = node.get("nearest_mode", "round_prefer_floor")
    if node.op == "Upsample" or node.version < 11:  # which ONNX Runtime does the other way where it leaves out elements
        nearest = "ceil" if axis.scale < 1 and node.graph.reference == "onnxruntime" else "floor"
    if nearest not in _NEAREST:
        raise node.fail(f"nearest_mode {nearest!r} is not compiled; known: {', '.join(_NEAREST)}")
    coordinates = [at if isinstance(at, Fraction) else Fraction(float(at)) for at in _coordinates(node, axis)]
    if nearest == "round_prefer_ceil" and node.graph.reference == "onnxruntime":
        coordinates = [at + _TIE for at in coordinates]
    indices = [_NEAREST[nearest](at) for at in coordinates]
    return np.clip(np.array(indices, np.int64), 0, axis.size - 1)


def _find_neighbours(node: FileNode, axis: _Axis) -> _Neighbours:
    """Return the two neighbours of each element of the result, and their weights."""
    rows = [_weigh_neighbours(node.graph.reference, at, axis.size - 1) for at in _coordinates(node, axis)]
    first, second, a, b = (np.array(column) for column in zip(*rows, strict=True))
    return _Neighbours((first, second), (a, b))


def _weigh_neighbours(reference: str, at: Coordinate, last: int) -> tuple[int, int, Coordinate, Coordinate]:
    """Return the elements before and after a coordinate, and the weight of each.

    ONNX Runtime moves a coordinate into the image before it computes weights; of the last element both are 1/2.
    """
    real = at.__class__
    if reference == "onnxruntime":
        at = min(max(at, real(0)), real(last))
        if at == last:
            return last, last, real(0.5), real(0.5)
    first = math.floor(at)
    return min(max(first, 0), last), min(max(first + 1, 0), last), real(first + 1) - at, at - real(first)


def _interpolate_float32(node: FileNode, neighbours: dict[int, _Neighbours]) -> str:
    """Return the sum of all corners, the last axis innermost; results of integer types are rounded toward 0."""
    source = node.input(0)
    dtype = source.dtype if source.is_float else "float32"
    image = node.edge(0) if source.is_float else cast_to(node, node.edge(0), dtype)
    terms = [
        node.add("mul", node.add("resize", image, places=places), node.constant(share.astype(dtype)))
        for places, share in _corners(node, neighbours)
    ]
    total = reduce(lambda a, b: node.add("add", a, b), terms)
    return total if source.is_float else cast_to(node, total, source.dtype)


def _interpolate_float64(node: FileNode, neighbours: dict[int, _Neighbours]) -> str:
    """Return the sums of two neighbours, one axis after the other; results of integer types are rounded to nearest."""
    source, total = node.input(0), cast_to(node, node.edge(0), "float64")
    for axis, sides in neighbours.items():
        terms = [
            node.add("mul", node.add("resize", total, places=places), node.constant(share))
            for places, share in _corners(node, {axis: sides})
        ]
        total = node.add("add", *terms)
    return cast_to(node, total if source.is_float else node.add("round", total, rounding="ROUND"), source.dtype)


def _interpolate_fractions(node: FileNode, neighbours: dict[int, _Neighbours]) -> str:
    """Return the sum of all corners times integers, over one divisor; results of integer types are rounded toward 0."""
    source, corners = node.input(0), _corners(node, neighbours)
    divisor = math.lcm(*(weight.denominator for _, share in corners for weight in share.flat))
    if divisor > _MAX_DIVISOR:
        raise node.fail(
            "its scales are fractions that no common divisor up to 2^53 has; give sizes instead of scales, or name "
            "another reference, such as onnxruntime"
        )
    image = node.edge(0) if source.is_float else cast_to(node, node.edge(0), "float64")
    terms = [
        node.add("mul", node.add("resize", image, places=places), node.constant((share * divisor).astype(np.float64)))
        for places, share in corners
    ]
    total = reduce(lambda a, b: node.add("add", a, b), terms)
    if divisor > 1:
        total = node.add("div", total, node.constant(np.float64(divisor)))
    return cast_to(node, total, source.dtype)


_INTERPOLATE: dict[str, Callable[[FileNode, dict[int, _Neighbours]], str]] = {
    "exact": _interpolate_fractions,
    "onnxruntime": _interpolate_float32,
    "onnx": _interpolate_float64,
}


def _corners(node: FileNode, neighbours: dict[int, _Neighbours]) -> list[tuple[dict[int, Tensor], Tensor]]:
    """Return for each corner the indices along each axis, and its weights as an array that broadcasts to the result.

    The first axis is the outermost: the order for two axes is (0, 0), (0, 1), (1, 0), (1, 1).
    """
    rank, corners = len(node.shape()), []
    for sides in product((0, 1), repeat=len(neighbours)):
        corner = list(zip(neighbours.items(), sides, strict=True))
        shares = [
            of.weights[side].reshape([-1 if k == axis else 1 for k in range(rank)]) for (axis, of), side in corner
        ]
        corners.append(({axis: of.places[side] for (axis, of), side in corner}, reduce(np.multiply, shares)))
    return corners


def _coordinates(node: FileNode, axis: _Axis) -> list[Coordinate]:
    """Return where in the image each element of the result lies, in the arithmetic of the reference."""
    mode = node.get("coordinate_transformation_mode", "half_pixel" if node.version >= 11 else "asymmetric")
    if node.op == "Upsample":
        mode = "asymmetric"
    real: Callable[[Any], Coordinate] = {"exact": Fraction, "onnxruntime": np.float32, "onnx": np.float64}[
        node.graph.reference
    ]
    half, by, out, size = real(0.5), real(axis.scale), axis.out, axis.size
    length = axis.scale * size if node.graph.reference == "onnx" else out
    formulas: dict[str, Callable[[Coordinate], Coordinate]] = {
        "asymmetric": lambda x: x / by,
        "half_pixel": lambda x: (x + half) / by - half,
        "pytorch_half_pixel": lambda x: (x + half) / by - half if length != 1 else real(0),
        "align_corners": lambda x: x * real(size - 1) / real(length - 1) if length != 1 else real(0),
        "half_pixel_symmetric": lambda x: _symmetric(real, x, axis),
    }
    if mode not in formulas:
        raise node.fail(f"{mode} is not compiled; known: {', '.join(formulas)}")
    return [formulas[mode](real(k)) for k in range(out)]


def _symmetric(real: Callable[[Any], Coordinate], x: Coordinate, axis: _Axis) -> Coordinate:
    """Return the coordinate of half_pixel_symmetric; ONNX Runtime adds its parts in float64 (upsamplebase.h)."""
    by, size = real(axis.scale), real(axis.size)
    shift = size / real(2) * (real(1) - real(axis.out) / (by * size))
    if isinstance(x, np.float32):
        return np.float32(float(shift) + (float(x) + 0.5) / float(by) - 0.5)
    return shift + (x + real(0.5)) / by - real(0.5)


READERS: dict[str, Reader] = {"Resize": _read_resize, "Upsample": _read_resize}

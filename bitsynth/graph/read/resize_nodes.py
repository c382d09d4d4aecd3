"""Resize and Upsample: the nearest elements, by their places, or numbers on the lines between neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from itertools import product

import numpy as np

from bitsynth.graph.read.float_nodes import Reader, cast_to
from bitsynth.graph.read.source import FileNode
from bitsynth.graph.types import Tensor

_MOST = 1 << 16
_MOST_ELEMENTS = 1 << 28
_MOST_AXES = 3
"""Axes of numbers on lines: each doubles the corners."""

_NEAREST: dict[str, Callable[[Tensor], Tensor]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _resize(node: FileNode) -> tuple[str, ...]:
    mode, shape, rank = node.get("mode", "nearest"), node.shape(), len(node.shape())
    if mode not in ("nearest", "linear", "bilinear") or node.get("antialias"):
        how = " with antialias" if node.get("antialias") else ""
        raise node.fail(f"mode {mode!r}{how} is not compiled; upsample by nearest or linear, without antialias")
    axes = [node.axis(int(k)) for k in node.get("axes") or range(rank)]
    sizes, scales = _sizes(node, [shape[k] for k in axes])
    if len(sizes) != len(axes) or not all(0 < n <= _MOST for n in sizes) or math.prod(sizes) > _MOST_ELEMENTS:
        raise node.fail(f"sizes {sizes} do not fit {len(axes)} axes")
    resized = {
        axis: (shape[axis], size, scale)
        for axis, size, scale in zip(axes, sizes, scales, strict=True)
        if size != shape[axis] or scale != 1
    }
    if not resized:
        return (node.edge(0),)
    if mode != "nearest":
        if len(resized) > _MOST_AXES:
            raise node.fail(f"{len(resized)} axes are not interpolated at once; at most {_MOST_AXES}")
        return (_between(node, {axis: _neighbours(node, *sizes) for axis, sizes in resized.items()}),)
    return (node.add("resize", node.edge(0), places={axis: _places(node, *s) for axis, s in resized.items()}),)


def _sizes(node: FileNode, shape: list[int]) -> tuple[list[int], list[float]]:
    """The size of each axis and its scale, as scales or sizes of the node say."""
    at = {"Upsample": 1}.get(node.op, 1 if node.version < 11 else 2)
    if "scales" in node.attributes or (node.has(at) and node.of(at).shape != (0,)):
        given = node.attributes["scales"] if "scales" in node.attributes else node.value(at, "scales").tolist()
        scales = [float(s) for s in given]
        if any(not 0 < s <= _MOST for s in scales):
            raise node.fail(f"scales {scales}")
        return [int(np.floor(n * s)) for n, s in zip(shape, scales, strict=False)], scales
    sizes = node.numbers("sizes", 3)
    if sizes is None or len(sizes) != len(shape):
        raise node.fail("has neither scales nor sizes for its axes")
    scales = [size / n for size, n in zip(sizes, shape, strict=True)]
    policy = node.get("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        scale = min(scales) if policy == "not_larger" else max(scales)
        return [int(np.floor(n * scale + 0.5)) for n in shape], [scale] * len(shape)
    return sizes, scales


def _places(node: FileNode, size: int, out: int, scale: float) -> Tensor:
    """The element that each of the result is a copy of."""
    nearest = node.get("nearest_mode", "round_prefer_floor")
    if node.op == "Upsample" or node.version < 11:
        nearest = "floor"
    if nearest not in _NEAREST:
        raise node.fail(f"nearest_mode {nearest!r} is not compiled; known: {', '.join(_NEAREST)}")
    found: Tensor = np.clip(_NEAREST[nearest](_coordinates(node, size, out, scale, "float64")), 0, size - 1)
    return found.astype(np.int64)


def _neighbours(node: FileNode, size: int, out: int, scale: float) -> list[tuple[Tensor, Tensor]]:
    """Places of both neighbours of each element of the result, and how much of each it has, as ONNX Runtime does."""
    at = _coordinates(node, size, out, scale, "float32").clip(0, size - 1)
    first = at.astype(np.int64)
    other = np.minimum(first + 1, size - 1)
    alone = first == other
    return [(a, np.where(alone, 0.5, abs(at - b)).astype(at.dtype)) for a, b in ((first, other), (other, first))]


def _between(node: FileNode, neighbours: dict[int, list[tuple[Tensor, Tensor]]]) -> str:
    """The sum of all corners, those of the last axis beside each other; of integers without its fraction."""
    given, rank, terms = node.of(0), len(node.shape()), []
    dtype = given.dtype if given.is_float else "float32"
    image = node.edge(0) if given.is_float else cast_to(node, node.edge(0), dtype)
    for corner in product(*neighbours.values()):
        places = dict(zip(neighbours, (at for at, _ in corner), strict=True))
        shares = [
            s.reshape([-1 if k == axis else 1 for k in range(rank)])
            for axis, (_, s) in zip(neighbours, corner, strict=True)
        ]
        share = reduce(np.multiply, shares).astype(dtype)
        terms.append(node.add("mul", node.add("resize", image, places=places), node.constant(share)))
    made = reduce(lambda a, b: node.add("add", a, b), terms)
    return made if given.is_float else cast_to(node, made, given.dtype)


def _coordinates(node: FileNode, size: int, out: int, scale: float, dtype: str) -> Tensor:
    """Where in the image each element of the result lies, computed in a type of floats."""
    mode = node.get("coordinate_transformation_mode", "half_pixel" if node.version >= 11 else "asymmetric")
    if node.op == "Upsample":
        mode = "asymmetric"
    real = np.dtype(dtype).type
    x, by, half = np.arange(out, dtype=dtype), real(scale), real(0.5)
    before_cut = scale * size if node.graph.reference == "onnx" else out
    symmetric = real(size / 2 * (1 - out / (scale * size)))
    known: dict[str, Callable[[], Tensor]] = {
        "asymmetric": lambda: x / by,
        "half_pixel": lambda: (x + half) / by - half,
        "pytorch_half_pixel": lambda: (x + half) / by - half if out > 1 else np.zeros(1, dtype),
        "align_corners": lambda: x * real(size - 1) / real(before_cut - 1) if out > 1 else np.zeros(1, dtype),
        "half_pixel_symmetric": lambda: symmetric + (x + half) / by - half,
    }
    if mode not in known:
        raise node.fail(f"{mode} is not compiled; known: {', '.join(known)}")
    return known[mode]()


READERS: dict[str, Reader] = {"Resize": _resize, "Upsample": _resize}

"""Resize and Upsample by nearest elements: where each element of the result comes from."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from bitsynth.graph.read.float_nodes import Reader
from bitsynth.graph.read.source import FileNode
from bitsynth.graph.types import Tensor

_MOST = 1 << 16
_MOST_ELEMENTS = 1 << 28

_NEAREST: dict[str, Callable[[Tensor], Tensor]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _resize(node: FileNode) -> tuple[str, ...]:
    mode = node.get("mode", "nearest")
    if mode != "nearest":
        raise node.fail(f"mode {mode!r} is not compiled; upsample by nearest, or by ConvTranspose")
    shape, rank = node.shape(), len(node.shape())
    axes = [node.axis(int(k)) for k in node.get("axes") or range(rank)]
    sizes, scales = _sizes(node, [shape[k] for k in axes])
    if len(sizes) != len(axes) or not all(0 < n <= _MOST for n in sizes) or math.prod(sizes) > _MOST_ELEMENTS:
        raise node.fail(f"sizes {sizes} do not fit {len(axes)} axes")
    places = {
        axis: _places(node, shape[axis], size, scale)
        for axis, size, scale in zip(axes, sizes, scales, strict=True)
        if size != shape[axis] or scale != 1
    }
    return (node.add("resize", node.edge(0), places=places) if places else node.edge(0),)


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
    mode = node.get("coordinate_transformation_mode", "half_pixel" if node.version >= 11 else "asymmetric")
    if node.op == "Upsample":
        mode = "asymmetric"
    x, nearest = np.arange(out, dtype=np.float64), node.get("nearest_mode", "round_prefer_floor")
    if node.op == "Upsample" or node.version < 11:
        nearest = "floor"
    known: dict[str, Callable[[], Tensor]] = {
        "asymmetric": lambda: x / scale,
        "half_pixel": lambda: (x + 0.5) / scale - 0.5,
        "pytorch_half_pixel": lambda: (x + 0.5) / scale - 0.5 if out > 1 else np.zeros(1),
        "align_corners": lambda: x * (size - 1) / (out - 1) if out > 1 else np.zeros(1),
        "half_pixel_symmetric": lambda: size / 2 * (1 - out / (scale * size)) + (x + 0.5) / scale - 0.5,
    }
    if mode not in known or nearest not in _NEAREST:
        raise node.fail(f"{mode} with {nearest} is not compiled; known: {', '.join(known)}")
    found: Tensor = np.clip(_NEAREST[nearest](known[mode]()), 0, size - 1).astype(np.int64)
    return found


READERS: dict[str, Reader] = {"Resize": _resize, "Upsample": _resize}

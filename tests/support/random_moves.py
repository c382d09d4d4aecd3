"""Layers of random networks that move, repeat and choose elements: of numbers and of codes alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from support.random_drawing import CHANNELS, MAX_ELEMENTS, Drawing, Step, Value, Window


def pad(d: Drawing, x: Value) -> Value | None:
    """Elements around, of 0, of another number, or of those there are."""
    rank = len(x.shape)
    widths = [0, 0, *map(int, d.rng.integers(0, 3, rank - 2))] * 2
    widths[rank:] = [0, 0, *map(int, d.rng.integers(0, 2, rank - 2))]
    mode = d.one_of(("constant", "constant", "edge", "reflect"))
    if mode == "reflect" and any(w >= x.shape[k % rank] for k, w in enumerate(widths)):
        mode = "edge"
    fill = [d.constant(np.asarray(x.zero if d.chance(2) else d.rng.integers(0, 3) * (x.scale or 1)).astype(x.dtype))]
    if x.dtype != "float32":
        fill = [d.constant(np.asarray(x.zero, x.dtype))]
    shape = tuple(n + widths[k] + widths[k + rank] for k, n in enumerate(x.shape))
    edge = d.node("Pad", x.name, d.constant(np.array(widths)), *(fill if mode == "constant" else ()), mode=mode)
    return replace(x, name=edge, shape=shape)


def transpose(d: Drawing, x: Value) -> Value | None:
    """The axes after the batch in another order."""
    order = [0, *map(int, 1 + d.rng.permutation(len(x.shape) - 1))]
    return replace(x, name=d.node("Transpose", x.name, perm=order), shape=tuple(x.shape[k] for k in order))


def reshape(d: Drawing, x: Value) -> Value | None:
    """All axes after the batch in one, or one taken apart."""
    if len(x.shape) > 2 and d.chance(2):
        return replace(x, name=d.node("Flatten", x.name, axis=1), shape=(x.shape[0], int(np.prod(x.shape[1:]))))
    if len(x.shape) == 2 and x.shape[1] % 2 == 0:
        shape: tuple[int, ...] = (x.shape[0], x.shape[1] // 2, 2)
    else:
        shape = (*x.shape[:2], int(np.prod(x.shape[2:], dtype=int)))
    return replace(x, name=d.node("Reshape", x.name, d.constant(np.array([0, *shape[1:-1], -1]))), shape=shape)


def part(d: Drawing, x: Value) -> Value | None:
    """A slice of an axis, with steps or backwards."""
    axis = int(d.rng.integers(1, len(x.shape)))
    n = x.shape[axis]
    start = int(d.rng.integers(0, n))
    step = int(d.one_of((1, 1, 2, -1)))
    places = range(n)[start::step]
    end = -n - 1 if step < 0 else n
    bounds = (d.constant(np.array([v])) for v in (start, end, axis, step))
    shape = (*x.shape[:axis], len(places), *x.shape[axis + 1 :])
    return replace(x, name=d.node("Slice", x.name, *bounds), shape=shape)


def resize(d: Drawing, x: Value) -> Value | None:
    """Each element of an image two or three times."""
    by = [1, 1, *(int(d.rng.integers(1, 3)) for _ in x.shape[2:])]
    shape = tuple(n * b for n, b in zip(x.shape, by, strict=True))
    if len(shape) < 3 or np.prod(shape) > MAX_ELEMENTS:
        return None
    how: dict[str, Any] = (
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"} if d.chance(2) else {}
    )
    scales = d.constant(np.array(by, np.float32))
    return replace(x, name=d.node("Resize", x.name, "", scales, mode="nearest", **how), shape=shape)


def depth_to_space(d: Drawing, x: Value) -> Value | None:
    """Channels side by side, or pixels one above the other."""
    if len(x.shape) != 4:
        return None
    n, c, h, w = x.shape
    if c % 4 == 0:
        edge = d.node("DepthToSpace", x.name, blocksize=2, mode=d.one_of(("DCR", "CRD")))
        return replace(x, name=edge, shape=(n, c // 4, 2 * h, 2 * w))
    if h % 2 or w % 2 or d.dialect not in ("qonnx", "qcdq", "qdq"):
        return None
    return replace(x, name=d.node("SpaceToDepth", x.name, blocksize=2), shape=(n, 4 * c, h // 2, w // 2))


def max_pool(d: Drawing, x: Value) -> Value | None:
    """The greatest of windows."""
    if len(x.shape) < 3:
        return None
    if d.chance(5) and x.dtype == "float32":
        return replace(x, name=d.node("GlobalMaxPool", x.name), shape=(*x.shape[:2], *[1] * (len(x.shape) - 2)))
    w = Window.drawn(d, x.shape[2:], most_pad=1, ceil=d.chance(3))
    if any(p >= k for p, k in zip(w.pads, w.kernel * 2, strict=True)):
        return None
    edge = d.node("MaxPool", x.name, kernel_shape=w.kernel, ceil_mode=int(w.ceil), **w.attributes)
    return replace(x, name=edge, shape=(*x.shape[:2], *w.out))


def concatenate(d: Drawing, x: Value) -> Value | None:
    """Two edges or three along the channels, on one grid or on others."""
    fits = [v for v in d.values if (v.shape[:1], v.shape[2:], v.dtype) == (x.shape[:1], x.shape[2:], x.dtype)]
    some = [x, *(d.one_of(fits) for _ in range(int(d.rng.integers(1, 3))))]
    channels = sum(v.shape[1] for v in some)
    if channels > 2 * CHANNELS[-1]:
        return None
    same = all((v.scale, v.zero) == (x.scale, x.zero) for v in some)
    if not same and x.dtype != "float32":
        return None
    value = Value(
        d.node("Concat", *(v.name for v in some), axis=1), (x.shape[0], channels, *x.shape[2:]), x.spread, x.dtype
    )
    return replace(value, scale=x.scale, zero=x.zero) if same else value


def gather(d: Drawing, x: Value) -> Value | None:
    """Places of an axis in any order, some twice; or the whole several times."""
    axis = int(d.rng.integers(1, len(x.shape)))
    if d.chance(3):
        times = [2 if k == axis else 1 for k in range(len(x.shape))]
        edge, count = d.node("Tile", x.name, d.constant(np.array(times))), 2 * x.shape[axis]
    else:
        count = int(d.rng.integers(1, x.shape[axis] + 2))
        places = d.rng.integers(-x.shape[axis], x.shape[axis], count)
        edge = d.node("Gather", x.name, d.constant(places), axis=axis)
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    return replace(x, name=edge, shape=shape) if count <= 2 * CHANNELS[-1] else None


def split(d: Drawing, x: Value) -> Value | None:
    """Channels in two parts, one of which may be read by nobody."""
    if x.shape[1] < 2:
        return None
    first = int(d.rng.integers(1, x.shape[1]))
    sizes = first, x.shape[1] - first
    edge = d.node("Split", x.name, d.constant(np.array(sizes)), axis=1, outputs=2)
    parts = [replace(x, name=edge[:-1] + "ab"[k], shape=(x.shape[0], n, *x.shape[2:])) for k, n in enumerate(sizes)]
    d.values.append(parts[0])
    return parts[1]


MOVES: tuple[Step, ...] = (
    pad,
    transpose,
    reshape,
    part,
    resize,
    depth_to_space,
    max_pool,
    concatenate,
    gather,
    split,
)

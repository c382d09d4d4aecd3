"""Rows of moves: operators that move, repeat or leave out elements, and change none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bitsynth.graph.operators.site import Operator, Site, common_dtype
from bitsynth.graph.types import Edge, EdgeType, Integers, Reals, Tensor, compress

_MoveFunction = Callable[..., Tensor]
_MAX_ELEMENTS = 1 << 28


def move_operator(name: str, apply: Callable[..., Tensor]) -> Operator:
    """Return the row of a move: `apply(site, *arrays)` is run on integers and on numbers."""

    def infer(site: Site) -> list[Edge]:
        _require_small(site)
        try:
            shape = apply(site, *(np.broadcast_to(np.int8(0), e.shape) for e in site.inputs)).shape
        except (ValueError, IndexError) as error:
            shapes = ", ".join(str(e.shape) for e in site.inputs)
            raise site.fail(f"does not fit {shapes}: {error}") from None
        return [site.output_edge(shape, _moved_type(site, apply), common_dtype(site))]

    def run(site: Site, *values: Any) -> list[Any]:
        if isinstance(site.outputs[0].type, Integers):
            return [np.array(apply(site, *values), order="C")]
        return [site.maths.move(lambda *arrays: apply(site, *arrays), *site.numbers(values))]

    return Operator(name, "move", infer, run, monotone=True)


def _require_small(site: Site) -> None:
    """Raise SpecError for a shape with too many elements, before it is made."""
    sizes = site.get("sizes") or ()
    if np.prod([float(n) for n in sizes]) > _MAX_ELEMENTS:
        raise site.fail(f"makes a tensor of shape {tuple(sizes)}, more than {_MAX_ELEMENTS:,} elements")


def _moved_type(site: Site, apply: _MoveFunction) -> EdgeType:
    """Return the type of the output: integers if all inputs are, with limits and grids that move with them."""
    kinds = site.integers()
    if kinds is None:
        return Reals()
    if len(kinds) == 1 and all(p.size == 1 for p in _parts(kinds[0])):
        low, high, scale, zero = _parts(kinds[0])
    else:
        low, high, scale, zero = (
            compress(apply(site, *(np.broadcast_to(p, e.shape) for p, e in zip(some, site.inputs, strict=True))))
            for some in zip(*map(_parts, kinds), strict=True)
        )
    if site.get("fills"):
        if zero.any():
            return Reals()
        low, high = np.minimum(low, 0), np.maximum(high, 0)
        scale = kinds[0].scale if kinds[0].scale.size == 1 else scale
        if not (scale > 0).all():
            return Reals()
    step = 2 if all(k.step == 2 for k in kinds) and not site.get("fills") else 1
    return Integers(low, high, scale, zero, step)


def _parts(kind: Integers) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return kind.low, kind.high, kind.scale, kind.zero


def _reshape(site: Site, x: Tensor) -> Tensor:
    return x.reshape(site["sizes"])


def _transpose(site: Site, x: Tensor) -> Tensor:
    return x.transpose(site["order"])


def _concatenate(site: Site, *arrays: Tensor) -> Tensor:
    return np.concatenate(arrays, site["axis"])


def _slice(site: Site, x: Tensor) -> Tensor:
    elements: Tensor = x[tuple(slice(*s) for s in site["slices"])]
    return elements


def _gather(site: Site, x: Tensor) -> Tensor:
    return np.asarray(x.take(site["places"], site["axis"]))


def _pad(site: Site, x: Tensor) -> Tensor:
    """Pad by 0, or by elements of the array."""
    mode = site["mode"]
    if mode == "constant":
        return np.pad(x, site["pads"])
    return np.pad(x, site["pads"], mode=mode)


def _expand(site: Site, x: Tensor) -> Tensor:
    return np.broadcast_to(x, site["sizes"])


def _resize(site: Site, x: Tensor) -> Tensor:
    """Select elements of each axis by index; an element may be selected several times, or never."""
    for axis, places in site["places"].items():
        x = x.take(places, axis)
    return x


def _depth_to_space(site: Site, x: Tensor) -> Tensor:
    n, channels, height, width = x.shape
    block = site["block"]
    inner = channels // block**2
    if site["mode"] == "DCR":
        blocks = x.reshape(n, block, block, inner, height, width).transpose(0, 3, 4, 1, 5, 2)
    else:
        blocks = x.reshape(n, inner, block, block, height, width).transpose(0, 1, 4, 2, 5, 3)
    return blocks.reshape(n, inner, height * block, width * block)


def _space_to_depth(site: Site, x: Tensor) -> Tensor:
    n, channels, height, width = x.shape
    block = site["block"]
    blocks = x.reshape(n, channels, height // block, block, width // block, block)
    blocks = blocks.transpose((0, 3, 5, 1, 2, 4) if site["mode"] == "DCR" else (0, 1, 3, 5, 2, 4))
    return blocks.reshape(n, channels * block**2, height // block, width // block)


ROWS = (
    move_operator("reshape", _reshape),
    move_operator("transpose", _transpose),
    move_operator("concatenate", _concatenate),
    move_operator("slice", _slice),
    move_operator("gather", _gather),
    move_operator("pad", _pad),
    move_operator("expand", _expand),
    move_operator("resize", _resize),
    move_operator("depth_to_space", _depth_to_space),
    move_operator("space_to_depth", _space_to_depth),
)

"""Sums of products: integers in 32 bits, real numbers in float64, each sum in a fixed order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bitsynth.graph.types import Edge, Integers, Tensor, numpy_type
from bitsynth.network.plain.body import NodeBody, ScratchArray
from bitsynth.network.plain.elements import deliver, result_writer
from bitsynth.network.plain.loops import AxisStep
from bitsynth.network.plain.maths import within

LANES = 64
"""The most elements that are computed at once, and so behind the last."""
MIN_ROW_PIXELS = 8
"""Pixels of a row of sums that are fewer than these had better be rows."""


def sums_type(body: NodeBody) -> str:
    """Return the type of sums."""
    return "int32" if body.gives_integers else "float64"


@dataclass(frozen=True)
class ProductSums:
    """The arguments of a call of `BS_PRODUCT`: rows of weights, planes, and the places of sums.

    Args:
        body: Where it is done.
        rows: Rows of weights.
        channels: Planes.
        plane: Elements from one to the next.
        taps: Where the elements lie that a sum has of each.
        pixels: Sums of a row.
    """

    body: NodeBody
    rows: int
    channels: int
    plane: int
    taps: Sequence[int]
    pixels: int

    @property
    def depth(self) -> int:
        """The products of a sum."""
        return self.channels * len(self.taps)

    @property
    def apart(self) -> int:
        """The elements from a row of sums to the next."""
        return -(-self.pixels // LANES) * LANES

    def array(self, count: int) -> ScratchArray:
        """Return an array for the sums of `count` calls."""
        return self.body.array(sums_type(self.body), count * self.rows * self.apart)

    def code(self, weights: ScratchArray, planes: ScratchArray, sums: ScratchArray) -> str:
        """Return C that computes the sums; the arrays' names are pointers to their first elements."""
        name = "_".join(x.dtype if "int" in x.dtype else x.c_type for x in (weights, planes))
        cast = "(uint32_t *)" if self.body.gives_integers else ""
        taps = self.body.constants.add(np.asarray(self.taps, np.uint32))
        const = cast.replace("(", "(const ")
        lines = []
        for block, first, count in blocks(self.rows):
            lines.append(
                f"for (size_t r = {first}; r < {first + count}; r += {block})\n"
                f"bs_products{block}_{name}({const}({weights.name} + r * {self.depth}), {const}({planes.name}), "
                f"{self.channels}, {self.plane}, {taps}, {len(self.taps)}, {self.pixels}, "
                f"{cast}({sums.name} + r * {self.apart}), {self.apart});"
            )
        return "\n".join(lines)


def constant_array(body: NodeBody, numbers: Tensor) -> ScratchArray:
    """Add numbers to the constants, in float32 if it holds them exactly, with room for a vector after them."""
    flat = np.append(numbers.reshape(-1), np.zeros(LANES, numbers.dtype))
    if flat.dtype == np.float64:
        with np.errstate(over="ignore"):
            small = flat.astype(np.float32)
        flat = small if (small == flat).all() else flat
    return ScratchArray(body.constants.add(flat), str(flat.dtype))


def blocks(rows: int) -> list[tuple[int, int, int]]:
    """Return rows in blocks of 4, then 1 by 1: rows of a block, first row, number of blocks."""
    fours = rows // 4 * 4
    return [part for part in ((4, 0, fours), (1, fours, rows - fours)) if part[2]]


def block_rows(weights: Tensor) -> Tensor:
    """Return weights (..., rows, depth) as blocks of rows, depth before rows."""
    outer, depth = weights.shape[:-2], weights.shape[-1]
    parts = [
        weights[..., first : first + count, :].reshape(*outer, count // block, block, depth).swapaxes(-1, -2)
        for block, first, count in blocks(weights.shape[-2])
    ]
    return np.concatenate([part.reshape(*outer, -1) for part in parts], -1)


def stage_blocked(
    body: NodeBody, edge: Edge, to: ScratchArray, row: int | None, steps: Sequence[int], depth: Sequence[int]
) -> None:
    """Write loops that copy rows into blocks as `block_rows` has them: axis `row`, axes `depth` and outer ones."""
    size = math.prod(edge.shape[k] for k in depth)
    for block, first, count in blocks(1 if row is None else edge.shape[row]):
        own: list[AxisStep] = [step * block if k in depth else step for k, step in enumerate(steps)]
        begin, shape = [0] * len(steps), list(edge.shape)
        if row is not None:
            own[row] = size if block == 1 else f"{{i}} / {block} * {size * block} + {{i}} % {block}"
            begin[row], shape[row] = first, count
        moved = ScratchArray(f"({to.name} + {first * size})", to.dtype)
        body.staged(edge, moved, own, centred=True, begin=tuple(begin), shape=tuple(shape))


def constant_factor(body: NodeBody, edge: Edge) -> Tensor:
    """Return a constant factor's numbers, or its integers less zero points, in the shape of the edge."""
    value, kind = body.graph.constants[edge.name], edge.type
    if not isinstance(kind, Integers):
        return value.astype(np.float64)
    centred = value - kind.zero
    if body.gives_integers:
        return np.asarray(np.broadcast_to(centred, edge.shape), np.int32)
    if body.graph.reference == "exact":
        return np.asarray(centred * kind.scale)
    if not edge.is_float:
        return np.asarray(centred, np.float64)
    dtype = numpy_type(edge.dtype)
    return np.asarray(centred.astype(dtype) * kind.scale.astype(dtype), np.float64)


def deliver_sums(body: NodeBody, sums: ScratchArray, steps: Sequence[AxisStep]) -> None:
    """Store sums, whose strides along the result's axes are `steps`."""
    out = body.outs[0]
    writer = result_writer(body)
    term = sums.at(writer, steps)
    deliver(body, writer, within(term, out) if body.gives_integers else term)

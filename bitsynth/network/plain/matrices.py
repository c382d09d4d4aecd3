"""Plain C of matrix products of any number of axes; the longer side of a result is vectorized."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bitsynth.graph.types import Edge, Shape
from bitsynth.network.plain.body import NodeBody, ScratchArray
from bitsynth.network.plain.loops import dense_steps
from bitsynth.network.plain.products import (
    MIN_ROW_PIXELS,
    ProductSums,
    block_rows,
    constant_array,
    constant_factor,
    deliver_sums,
    stage_blocked,
    sums_type,
)


@dataclass(frozen=True)
class _Factor:
    """A factor with axes (..., rows or columns, depth), whatever their order in memory.

    Args:
        edge: It.
        side: Its axis of rows or columns; None if it has one axis.
        depth: Its axis along which sums are.
    """

    edge: Edge
    side: int | None
    depth: int

    @property
    def count(self) -> int:
        """The number of rows or columns."""
        return 1 if self.side is None else self.edge.shape[self.side]

    @property
    def outer(self) -> Shape:
        """The axes of separate matrices."""
        return self.edge.shape[:-2]

    def value(self, body: NodeBody) -> np.ndarray:
        """Return the numbers of a constant, (..., count, depth)."""
        factor = np.broadcast_to(constant_factor(body, self.edge), self.edge.shape)
        if self.side is None:
            return factor[None]
        return factor if self.side < self.depth else factor.swapaxes(-1, -2)


def matmul(body: NodeBody) -> None:
    """Write a product of matrices."""
    a, b = body.edges
    first = _Factor(a, len(a.shape) - 2 if len(a.shape) > 1 else None, len(a.shape) - 1)
    second = _Factor(b, *((len(b.shape) - 1, len(b.shape) - 2) if len(b.shape) > 1 else (None, 0)))
    turned = second.count < MIN_ROW_PIXELS and second.count < first.count
    rows, columns = (second, first) if turned else (first, second)
    depth = a.shape[-1]
    sums = ProductSums(body, rows.count, depth, columns.count, [0], columns.count)
    outer = np.broadcast_shapes(first.outer, second.outer)
    products = math.prod(outer)
    weights, planes, totals = _rows(body, rows), _columns(body, columns), sums.array(products)
    code = sums.code(
        weights.from_place(_matrix(body, rows, outer)),
        planes.from_place(_matrix(body, columns, outer)),
        totals.from_place(f"g * {sums.rows * sums.apart}"),
    )
    body.do(f"for (size_t g = 0; g < {products}; ++g) {{\n{code}\n}}")
    sides = (1, sums.apart) if turned else (sums.apart, 1)
    inner = [step for step, factor in zip(sides, (first, second), strict=True) if factor.side is not None]
    deliver_sums(body, totals, [*(s * sums.rows * sums.apart for s in dense_steps(outer)), *inner])


def _matrix(body: NodeBody, factor: _Factor, outer: Shape) -> str:
    """Return C for the offset of a factor's matrix in product g."""
    size = factor.count * factor.edge.shape[factor.depth]
    count = math.prod(factor.outer)
    if count == 1:
        return "0"
    if factor.outer == outer:
        return f"g * {size}"
    places = np.broadcast_to(np.arange(count).reshape(factor.outer) * size, outer)
    return f"{body.constants.add(places.astype(np.uint32))}[g]"


def _rows(body: NodeBody, factor: _Factor) -> ScratchArray:
    """Return a factor as blocks of rows, matrix by matrix."""
    edge = factor.edge
    if edge.name in body.graph.constants:
        return constant_array(body, block_rows(factor.value(body)))
    array = body.array(sums_type(body), math.prod(edge.shape))
    size = factor.count * edge.shape[factor.depth]
    steps = [s * size for s in dense_steps(factor.outer)] + [1] * min(2, len(edge.shape))
    stage_blocked(body, edge, array, factor.side, steps, [factor.depth])
    return array


def _columns(body: NodeBody, factor: _Factor) -> ScratchArray:
    """Return a factor with its columns contiguous, matrix by matrix."""
    edge = factor.edge
    if edge.name in body.graph.constants:
        return constant_array(body, factor.value(body).swapaxes(-1, -2))
    array = body.array(sums_type(body), math.prod(edge.shape))
    size = factor.count * edge.shape[factor.depth]
    steps = [s * size for s in dense_steps(factor.outer)] + [1] * min(2, len(edge.shape))
    steps[factor.depth] = factor.count
    body.staged(edge, array, steps, centred=True)
    return array

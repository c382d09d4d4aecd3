"""Plain C of matrix products of any number of axes; the longer side of a result is vectorized."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bitsynth.graph.types import Edge, Shape, Tensor
from bitsynth.network.plain.body import NodeBody
from bitsynth.network.plain.loops import dense_steps
from bitsynth.network.plain.products import (
    MIN_ROW_PIXELS,
    FactorPlanes,
    FactorRows,
    ProductSums,
    constant_columns,
    constant_rows,
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

    @property
    def size(self) -> int:
        """The elements of a matrix."""
        return self.count * self.edge.shape[self.depth]

    def arrange(self, array: Tensor) -> Tensor:
        """Return an array that broadcasts to the factor, as (..., count, depth)."""
        whole = np.broadcast_to(array, self.edge.shape)
        if self.side is None:
            return whole[None]
        return whole if self.side < self.depth else whole.swapaxes(-1, -2)


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
        weights.of_matrix(_matrix(body, rows, outer), rows.size),
        planes.of_matrix(_matrix(body, columns, outer), columns.size),
        totals.from_place(f"g * {sums.rows * sums.apart}"),
    )
    body.do(f"for (size_t g = 0; g < {products}; ++g) {{\n{code}\n}}")
    sides = (1, sums.apart) if turned else (sums.apart, 1)
    inner = [step for step, factor in zip(sides, (first, second), strict=True) if factor.side is not None]
    deliver_sums(body, totals, [*(s * sums.rows * sums.apart for s in dense_steps(outer)), *inner])


def _matrix(body: NodeBody, factor: _Factor, outer: Shape) -> str:
    """Return C for the number of a factor's matrix in product g."""
    count = math.prod(factor.outer)
    if count == 1:
        return "0"
    if factor.outer == outer:
        return "g"
    places = np.broadcast_to(np.arange(count).reshape(factor.outer), outer)
    return f"{body.constants.add(places.astype(np.uint32))}[g]"


def _rows(body: NodeBody, factor: _Factor) -> FactorRows:
    """Return a factor as blocks of rows, matrix by matrix."""
    edge = factor.edge
    if edge.name in body.graph.constants:
        return constant_rows(body, edge, factor.arrange)
    array = body.array(sums_type(body), math.prod(edge.shape))
    steps = [s * factor.size for s in dense_steps(factor.outer)] + [1] * min(2, len(edge.shape))
    stage_blocked(body, edge, array, factor.side, steps, [factor.depth])
    return array


def _columns(body: NodeBody, factor: _Factor) -> FactorPlanes:
    """Return a factor with its columns contiguous, matrix by matrix."""
    edge = factor.edge
    if edge.name in body.graph.constants:
        return constant_columns(body, edge, lambda x: factor.arrange(x).swapaxes(-1, -2))
    array = body.array(sums_type(body), math.prod(edge.shape))
    steps = [s * factor.size for s in dense_steps(factor.outer)] + [1] * min(2, len(edge.shape))
    steps[factor.depth] = factor.count
    body.staged(edge, array, steps, centred=True)
    return array

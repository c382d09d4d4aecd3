"""Bounds of sums, products, quotients and square roots of float64, from the sign of the rounding error.

The errors are computed exactly (Dekker 1971; Knuth), except where numbers are so small or large that they may be lost.
A bound moves by a unit in the last place only if the error has its sign; a result without error is a single point.

Example: 1 / 3 is rounded to 0.333... in float64. The remainder 1 - 3 * 0.333... is above 0, so that 1 / 3 lies between
that number and the next one above.

Elementwise functions run block by block, so that intermediate arrays stay in the nearest caches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from math import prod

import numpy as np

from bitsynth.graph.types import Tensor

_Bounds = tuple[Tensor, Tensor]
"""The least and the greatest numbers; the same array twice if all are known exactly."""
_BLOCK_ELEMENTS = 1 << 15
"""The elements of a block: a dozen such arrays fit in a second-level cache."""


def in_blocks(function: Callable[[Tensor, Tensor], _Bounds]) -> Callable[[Tensor, Tensor], _Bounds]:
    """Decorate an elementwise function of two arrays, so that it runs on blocks of them."""

    @wraps(function)
    def run(a: Tensor, b: Tensor) -> _Bounds:
        shape = np.broadcast_shapes(a.shape, b.shape)
        if prod(shape) <= _BLOCK_ELEMENTS:
            return function(a, b)
        axis = next(k for k, n in enumerate(shape) if n > 1)
        a, b = (x.reshape(*[1] * (len(shape) - x.ndim), *x.shape) for x in (a, b))
        step = max(1, _BLOCK_ELEMENTS // prod(shape[axis + 1 :]))
        low = high = np.empty(shape)
        for first in range(0, shape[axis], step):
            where = (*[slice(None)] * axis, slice(first, first + step))
            least, most = run(*(x[where] if x.shape[axis] > 1 else x for x in (a, b)))
            if most is not least and high is low:
                high = low.copy()
            low[where] = least
            if high is not low:
                high[where] = most
        return low, high

    return run


_SPLIT = float((1 << 27) + 1)
_TINY, _HUGE = 2.0**-900, 2.0**900
"""Beyond these, errors of products may be lost, so that bounds always move."""


def step_down(a: Tensor, ulps: int = 1) -> Tensor:
    """Return numbers lowered by some units in the last place."""
    lower: Tensor = a - ulps * np.spacing(np.abs(a))
    return lower


def step_up(a: Tensor, ulps: int = 1) -> Tensor:
    """Return numbers raised by some units in the last place."""
    higher: Tensor = a + ulps * np.spacing(np.abs(a))
    return higher


def _bounds(near: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    """Return bounds of near + error by the sign of the error, which is at most half a unit in the last place."""
    if not error.any():
        return near, near
    unit = np.abs(near) * 2.0**-52
    if not np.isfinite(unit.max()):
        unit = np.nan_to_num(unit, nan=0.0, posinf=0.0)
    return near - unit * (error < 0), near + unit * (error > 0)


@in_blocks
def add_bounds(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return bounds of a + b."""
    near = a + b
    back = near - a
    return _bounds(near, (a - (near - back)) + (b - back))


def _product_error(a: Tensor, b: Tensor, near: Tensor) -> Tensor:
    """Return a * b - near, exactly: both factors are split in halves (Dekker)."""
    split_a, split_b = a * _SPLIT, b * _SPLIT
    high_a, high_b = split_a - (split_a - a), split_b - (split_b - b)
    low_a, low_b = a - high_a, b - high_b
    error: Tensor = ((high_a * high_b - near) + high_a * low_b + low_a * high_b) + low_a * low_b
    return error


def _may_lose_error(near: Tensor, *factors: Tensor) -> Tensor:
    """Return where a result is so small (and not 0), or a number so large, that its error may be lost."""
    size = np.abs(near)
    mask: Tensor = (size < _TINY) & (size > 0)
    for x in (near, *factors):
        if np.abs(x).max(initial=0) > _HUGE:
            mask = mask | (np.abs(x) > _HUGE)
    return mask


def _widen(bounds: tuple[Tensor, Tensor], where: Tensor) -> tuple[Tensor, Tensor]:
    """Return bounds moved outward by a unit in the last place where `where` is set."""
    if not where.any():
        return bounds
    low, high = bounds
    return np.where(where, step_down(low), low), np.where(where, step_up(high), high)


@in_blocks
def multiply_bounds(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return bounds of a * b."""
    with np.errstate(all="ignore"):
        near = a * b
        lost = (near == 0) & (a != 0) & (b != 0)
        return _widen(_bounds(near, _product_error(a, b, near)), _may_lose_error(near, a, b) | lost)


@in_blocks
def divide_bounds(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return bounds of a / b."""
    with np.errstate(all="ignore"):
        near = a / b
        back = near * b
        left = ((a - back) - _product_error(near, b, back)) * np.sign(b)
        lost = (near == 0) & (a != 0)
        return _widen(_bounds(near, np.nan_to_num(left)), _may_lose_error(near, a, b) | lost)


def sqrt_bounds(a: Tensor) -> tuple[Tensor, Tensor]:
    """Return bounds of the square root of a, which is 0 where a is below 0."""
    near = np.sqrt(np.maximum(a, 0))
    back = near * near
    return _widen(_bounds(near, (a - back) - _product_error(near, near, back)), _may_lose_error(back))

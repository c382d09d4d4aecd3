"""Elementwise functions run block by block, so that intermediate arrays stay in the nearest caches."""

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

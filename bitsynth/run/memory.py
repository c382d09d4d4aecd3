"""Allocates arrays for compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

LINE_BYTES = 64


def aligned(count: int, dtype: DTypeLike) -> NDArray[Any]:
    """Return `count` zeros of `dtype` that start at a cache line."""
    size = np.dtype(dtype).itemsize * count
    room = np.zeros(size + LINE_BYTES, np.uint8)
    start = -room.ctypes.data % LINE_BYTES
    return room[start : start + size].view(dtype)

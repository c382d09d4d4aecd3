"""Values that a lane is tried with: all of 16 bits or fewer, families of wider ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
Fill = Callable[[np.random.Generator, int, tuple[int, ...]], U64]
"""A function of a number of bits and a shape that returns an array of numbers."""

EXHAUSTIVE_BITS = 16
"""Values of lanes that are no wider are all tried."""


@lru_cache
def landmarks(bits: int) -> U64:
    """Return the powers of two that `bits` bits hold, their neighbours, and the negations of all these."""
    near = {(1 << p) + d for p in range(bits) for d in (-1, 0, 1)}
    return np.array(sorted({sign * x % (1 << bits) for x in near for sign in (1, -1)}), dtype=np.uint64)


def float_landmarks() -> U64:
    """Return bits of float32 numbers at which rounding, subnormal numbers, infinities and conversions differ."""
    whole = [0.0, 0.5, 1.0, 1.5, 2.5, 127.5, 255.5, 2.0**22 + 0.5, 2.0**23 - 0.5, 2.0**23 + 1, 1.5 * 2.0**23, 2.0**24]
    ends = [2.0**31, 2.0**32, 2.0**-126, 2.0**-127, 2.0**-149, 2.0**-63, 2.0**-64, 2.0**64, 3.4e38, np.inf, np.nan]
    near = np.array(whole + ends, np.float32).view(np.uint32).astype(np.int64)[:, None] + np.arange(-1, 2)
    tied = 0x3F80_0000 | np.array([1, 2, 3, 0x40_0000, 0x40_0001, 0x7F_FFFD])
    both = np.unique(np.concatenate([near.ravel().clip(0), tied]))
    return np.concatenate([both, both | 1 << 31]).astype(np.uint64)


def count_swept(bits: int) -> int:
    """Return the number of values that `sweep` gives."""
    return 1 << bits if bits <= EXHAUSTIVE_BITS else bits // 8 * 256 + len(landmarks(bits))


def sweep(bits: int, fill: Fill, rng: np.random.Generator) -> U64:
    """Return every value, or every value of each byte among others as `fill` makes them, and the landmarks."""
    if bits <= EXHAUSTIVE_BITS:
        return np.arange(1 << bits, dtype=np.uint64)
    parts = [landmarks(bits)]
    for at in range(0, bits, 8):
        others = fill(rng, bits, (256,)) & ~np.uint64(255 << at)
        parts.append(others | np.arange(256, dtype=np.uint64) << np.uint64(at))
    return np.concatenate(parts)


def _zeros(_: np.random.Generator, bits: int, shape: tuple[int, ...]) -> U64:
    return np.zeros(shape, dtype=np.uint64)


def _all_ones(_: np.random.Generator, bits: int, shape: tuple[int, ...]) -> U64:
    return np.full(shape, mask(bits))


def random_values(rng: np.random.Generator, bits: int, shape: tuple[int, ...]) -> U64:
    """Draw numbers of that many bits, each equally likely."""
    return rng.integers(0, mask(bits), size=shape, dtype=np.uint64, endpoint=True)


FILLS: tuple[Fill, ...] = (_zeros, _all_ones, random_values)


def mask(bits: int) -> np.uint64:
    """Return the greatest number of that many bits."""
    return np.uint64((1 << bits) - 1)

"""Checks of the arguments of epilogues."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.errors import SpecError
from bitsynth.spec.matmul import MAX_BITS, plain_array

INT32 = np.iinfo(np.int32)
MAX_RESULT_BITS = 16


def broadcast_to_channels(name: str, value: ArrayLike, channels: int, dtype: Any) -> NDArray[Any]:
    """Return one number for each channel as `dtype`; raise SpecError for another shape or numbers it cannot hold."""
    given = np.asarray(value)
    kinds = "iu" if np.dtype(dtype).kind == "i" else "iuf"
    if given.dtype.kind not in kinds or given.shape not in ((), (1,), (channels,)):
        raise SpecError(f"{name} must be one number or {channels} of them, not {given.dtype} {given.shape}")
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = np.broadcast_to(given, (channels,)).astype(dtype)
    if not np.isfinite(numbers.astype(np.float64)).all() or (np.dtype(dtype).kind == "i" and (numbers != given).any()):
        raise SpecError(f"{name} has numbers that {np.dtype(dtype)} does not hold")
    return np.ascontiguousarray(numbers)


def copy_read_only(value: ArrayLike, name: str) -> NDArray[Any]:
    """Return a read-only copy of an array, called `name` in errors: the caller may edit the original later."""
    copy = plain_array(value, name).copy()
    copy.flags.writeable = False
    return copy


def require_int32_sums(sums: Any) -> NDArray[np.int32]:
    """Return accumulators (..., channels) as int32; raise SpecError for other types or numbers beyond int32."""
    given = plain_array(sums, "sums")
    if given.dtype.kind not in "iu" or not given.ndim:
        raise SpecError(f"sums must be integers (..., channels), not {given.dtype} {given.shape}")
    if given.size and not INT32.min <= int(given.min()) <= int(given.max()) <= INT32.max:
        raise SpecError("sums must be int32; some are not")
    return given.astype(np.int32)


def require_whole(name: str, value: Any, low: int, high: int) -> int:
    """Return `value`; raise SpecError unless it is a whole number from `low` to `high`."""
    if type(value) is not int or not low <= value <= high:
        raise SpecError(f"{name} must be a whole number from {low} to {high}, not {value!r}")
    return value


def code_range(bits: Any, signed: bool, low: Any, high: Any) -> tuple[int, int]:
    """Return the least and the greatest code of `bits` bits, within `low` and `high` if they are given."""
    require_whole("bits", bits, 1, MAX_RESULT_BITS if signed else MAX_BITS)
    least = -(1 << (bits - 1)) if signed else 0
    most = least + (1 << bits) - 1
    first = least if low is None else require_whole("low", low, least, most)
    last = most if high is None else require_whole("high", high, least, most)
    if first > last:
        raise SpecError(f"low is {low}, above high, {high}")
    return first, last


def code_type(bits: int, signed: bool) -> np.dtype[Any]:
    """Return the type that holds codes of `bits` bits."""
    if not signed:
        return np.dtype(np.uint8)
    return np.dtype(np.int8 if bits <= MAX_BITS else np.int16)

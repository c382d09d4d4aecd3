"""Checks of what an epilogue is given: numbers of channels, ranges of codes, levels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.errors import SpecError
from bitsynth.spec.matmul import MAX_BITS, plain_array

INT32 = np.iinfo(np.int32)
_BELOW, _ABOVE = int(INT32.min) - 1, int(INT32.max) + 1
MAX_RESULT_BITS = 16
_MOST_LEVELS = (1 << MAX_BITS) - 1
_WANTED = f"thresholds must be integers (channels, 1 to {_MOST_LEVELS})"


def of_channels(name: str, value: ArrayLike, channels: int, dtype: Any) -> NDArray[Any]:
    """One number a channel as `dtype`; SpecError for what `value` does not hold."""
    given = np.asarray(value)
    kinds = "iu" if np.dtype(dtype).kind == "i" else "iuf"
    if given.dtype.kind not in kinds or given.shape not in ((), (1,), (channels,)):
        raise SpecError(f"{name} must be one number or {channels} of them, not {given.dtype} {given.shape}")
    with np.errstate(over="ignore", invalid="ignore"):
        made = np.broadcast_to(given, (channels,)).astype(dtype)
    if not np.isfinite(made.astype(np.float64)).all() or (np.dtype(dtype).kind == "i" and (made != given).any()):
        raise SpecError(f"{name} has numbers that {np.dtype(dtype)} does not hold")
    return np.ascontiguousarray(made)


def kept(value: ArrayLike, name: str) -> NDArray[Any]:
    """A read-only copy of an array, called `name` in errors, that the caller may edit later."""
    copy = plain_array(value, name).copy()
    copy.flags.writeable = False
    return copy


def int32_sums(sums: Any) -> NDArray[np.int32]:
    """Sums (..., channels) as int32; SpecError for what are none."""
    given = plain_array(sums, "sums")
    if given.dtype.kind not in "iu" or not given.ndim:
        raise SpecError(f"sums must be integers (..., channels), not {given.dtype} {given.shape}")
    if given.size and not INT32.min <= int(given.min()) <= int(given.max()) <= INT32.max:
        raise SpecError("sums must be int32; some are not")
    return given.astype(np.int32)


def whole(name: str, value: Any, low: int, high: int) -> int:
    """`value`; SpecError unless it is a whole number from `low` to `high`."""
    if type(value) is not int or not low <= value <= high:
        raise SpecError(f"{name} must be a whole number from {low} to {high}, not {value!r}")
    return value


def code_range(bits: Any, signed: bool, low: Any, high: Any) -> tuple[int, int]:
    """The least and the greatest code of `bits` bits, within `low` and `high` if they are given."""
    whole("bits", bits, 1, MAX_RESULT_BITS if signed else MAX_BITS)
    least = -(1 << (bits - 1)) if signed else 0
    most = least + (1 << bits) - 1
    first = least if low is None else whole("low", low, least, most)
    last = most if high is None else whole("high", high, least, most)
    if first > last:
        raise SpecError(f"low is {low}, above high, {high}")
    return first, last


def code_type(bits: int, signed: bool) -> np.dtype[Any]:
    """The type that holds codes of `bits` bits."""
    if not signed:
        return np.dtype(np.uint8)
    return np.dtype(np.int8 if bits <= MAX_BITS else np.int16)


def levels(values: Any) -> NDArray[np.int64]:
    """Thresholds (1 or channels, levels) as int64 in ascending order; those that are absent are masked.

    `values` are integers (levels,) or (1, levels) for all channels, or (channels, levels), some of them masked; or a
    list of lists that may differ in length. What is masked is the greatest int32, which no sum is above; what lies
    beyond int32 is the number next to it, as every sum is on the same side of both.
    """
    rows = [_row(row) for row in (values if _is_ragged(values) else _table(values))]
    count = max((len(row) for row in rows), default=0)
    if not 1 <= count <= _MOST_LEVELS:
        raise SpecError(f"{_WANTED}, not {len(rows)} channels of {count}")
    out = np.full((len(rows), count), INT32.max, np.int64)
    for channel, row in enumerate(rows):
        if (np.diff(row) < 0).any():
            raise SpecError(f"thresholds of channel {channel} are out of order: {', '.join(map(str, row[:8]))}")
        out[channel, : len(row)] = row
    absent = np.arange(count) >= np.array([len(row) for row in rows])[:, None]
    absent.flags.writeable = out.flags.writeable = False
    return np.ma.MaskedArray(out, absent) if absent.any() else out


def _is_ragged(values: Any) -> bool:
    rows = values if isinstance(values, list | tuple) else []
    return bool(rows) and all(isinstance(row, list | tuple | np.ndarray) for row in rows)


def _table(values: Any) -> NDArray[Any]:
    """The rows of an array, which keeps its mask."""
    given = values if isinstance(values, np.ma.MaskedArray) else plain_array(values, "thresholds")
    if given.ndim not in (1, 2):
        raise SpecError(f"{_WANTED}, not {given.dtype} {given.shape}")
    return given.reshape(1, -1) if given.ndim == 1 else given


def _row(row: Any) -> NDArray[np.int64]:
    """The levels of a channel that are there, none further than 1 beyond int32."""
    there = np.asarray(row.compressed() if isinstance(row, np.ma.MaskedArray) else row)
    if there.ndim != 1 or (there.size and there.dtype.kind not in "iu"):
        raise SpecError(f"{_WANTED}, not {there.dtype} {there.shape}")
    if there.dtype.kind == "u":
        there = np.minimum(there, np.array(_ABOVE, there.dtype) if there.dtype.itemsize > 4 else there)
    return there.astype(np.int64).clip(_BELOW, _ABOVE)

"""Base classes of epilogues, their residuals, and checks of their arguments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.errors import SpecError
from bitsynth.spec.matmul import MAX_BITS, is_one_of, plain_array

INT32 = np.iinfo(np.int32)
_BELOW, _ABOVE = int(INT32.min) - 1, int(INT32.max) + 1
MAX_RESULT_BITS = 16
_MOST_LEVELS = (1 << MAX_BITS) - 1
_WANTED = f"thresholds must be integers (channels, 1 to {_MOST_LEVELS})"


def broadcast_to_channels(name: str, value: ArrayLike, channels: int, dtype: Any) -> NDArray[Any]:
    """Return one number for each channel as `dtype`; raise SpecError for another shape or numbers it cannot hold."""
    given = np.asarray(value)
    kinds = "iu" if np.dtype(dtype).kind == "i" else "iuf"
    if given.dtype.kind not in kinds or given.shape not in ((), (1,), (channels,)):
        raise SpecError(f"{name} must be one number or {channels} of them, not {given.dtype} {given.shape}")
    with np.errstate(over="ignore", invalid="ignore"):
        made = np.broadcast_to(given, (channels,)).astype(dtype)
    if not np.isfinite(made.astype(np.float64)).all() or (np.dtype(dtype).kind == "i" and (made != given).any()):
        raise SpecError(f"{name} has numbers that {np.dtype(dtype)} does not hold")
    return np.ascontiguousarray(made)


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


def parse_levels(values: Any) -> NDArray[np.int64]:
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
    """Return the rows of an array, with its mask."""
    given = values if isinstance(values, np.ma.MaskedArray) else plain_array(values, "thresholds")
    if given.ndim not in (1, 2):
        raise SpecError(f"{_WANTED}, not {given.dtype} {given.shape}")
    return given.reshape(1, -1) if given.ndim == 1 else given


def _row(row: Any) -> NDArray[np.int64]:
    """Return the unmasked levels of a channel, clipped to int32 and one beyond either end."""
    there = np.asarray(row.compressed() if isinstance(row, np.ma.MaskedArray) else row)
    if there.ndim != 1 or (there.size and there.dtype.kind not in "iu"):
        raise SpecError(f"{_WANTED}, not {there.dtype} {there.shape}")
    if there.dtype.kind == "u":
        there = np.minimum(there, np.array(_ABOVE, there.dtype) if there.dtype.itemsize > 4 else there)
    return there.astype(np.int64).clip(_BELOW, _ABOVE)


TYPES = ("uint8", "int8", "int16", "int32", "float32")


@dataclass(frozen=True, eq=False)
class Residual:
    """A tensor of the results' shape: scale * (element - zero_point) is added before the results are rounded.

    `Thresholds` and `Requantize` add it to the sum, in int32 arithmetic; `Scale` and `Rescale` add the product
    float32(element - zero_point) * scale, rounded to float32, to the sum's scaled value, and round again. Elements of
    float32 must be finite, and have no zero point.

    Args:
        type: The type of its elements: uint8 (codes too), int8, int16, int32 or float32.
        scale: One factor a channel, or one for all; whole numbers of int32 for `Thresholds` and `Requantize`.
        zero_point: The element that stands for 0.
        keep_sum: Whether the sum with it is a second output: int32, or float32 of `Scale` and `Rescale`.
    """

    type: str = "uint8"
    scale: ArrayLike = 1
    zero_point: int = 0
    keep_sum: bool = False

    def __post_init__(self) -> None:
        if not is_one_of(self.type, TYPES):
            raise SpecError(f"a residual's type is one of {', '.join(TYPES)}, not {self.type!r}")
        if type(self.keep_sum) is not bool:
            raise SpecError(f"keep_sum is True or False, not {self.keep_sum!r}")
        span = (0, 0) if self.type == "float32" else (np.iinfo(self.type).min, np.iinfo(self.type).max)
        require_whole("a residual's zero_point", self.zero_point, *map(int, span))
        object.__setattr__(self, "scale", copy_read_only(self.scale, "a residual's scale"))


def factors(residual: Residual, channels: int, integers: bool) -> NDArray[Any]:
    """Return the residual's scale, one int32 or float32 a channel; raise SpecError if it is of another type."""
    if integers and residual.type == "float32":
        raise SpecError("a residual of float32 needs Rescale or Scale")
    return broadcast_to_channels("a residual's scale", residual.scale, channels, np.int32 if integers else np.float32)


def add_residual(values: NDArray[Any], residual: Residual, elements: NDArray[Any]) -> NDArray[Any]:
    """Return int32 or float32 `values` (..., channels) plus the scaled residual `elements`.

    int32 wraps; float32 is rounded after the product and after the sum. SpecError for another type or shape.
    """
    elements = check_residual(residual, elements, values.shape)
    scale = factors(residual, values.shape[-1], values.dtype.kind == "i")
    if values.dtype.kind == "i":
        more = scale.astype(np.int64) * (elements.astype(np.int64) - residual.zero_point)
        return (values.astype(np.int64) + more).astype(np.int32)
    if residual.type != "float32":
        elements = (elements.astype(np.int64) - residual.zero_point).astype(np.float32)
    with np.errstate(over="ignore"):
        out: NDArray[Any] = values + elements * scale
    return out


def check_residual(residual: Residual, elements: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return `elements`; raise SpecError unless they have the residual's type and `shape`, and floats are finite."""
    if isinstance(elements, np.ma.MaskedArray):
        raise SpecError("the residual is a masked array; fill its gaps first, with .filled()")
    if not isinstance(elements, np.ndarray) or elements.dtype != residual.type or elements.shape != shape:
        got = f"{elements.dtype} {elements.shape}" if isinstance(elements, np.ndarray) else repr(elements)[:40]
        raise SpecError(f"want a residual of {residual.type} {shape}, not {got}")
    # Both ends are finite, or are what is not a number if one is none.
    if residual.type == "float32" and elements.size and not np.isfinite([elements.min(), elements.max()]).all():
        raise SpecError("the residual has floats that are not finite")
    found: NDArray[Any] = elements
    return found


def residual_operand(residual: Residual | None, elements: Any, shape: tuple[int, ...]) -> NDArray[Any] | None:
    """Return a call's residual as C reads it; raise SpecError if it is missing, not wanted, or of another shape."""
    if residual is None and elements is not None:
        raise SpecError("the layer's epilogue adds no residual: leave it out, or give the epilogue one")
    if residual is None:
        return None
    if elements is None:
        raise SpecError(f"the layer's epilogue adds a residual: give one of {residual.type} {shape}")
    return np.require(check_residual(residual, elements, shape), requirements=("C", "ALIGNED"))


class BaseEpilogue(ABC):
    """The base class of all epilogues."""

    residual: Residual | None

    def value(self, sums: NDArray[Any], residual: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the values before rounding, residual included: what `Residual.keep_sum` keeps.

        Args:
            sums: A layer's sums (..., channels), int32.
            residual: The second tensor, of the same shape, if the epilogue has one.
        """
        if (residual is None) != (self.residual is None):
            raise SpecError("a residual is given where the epilogue has one, and nowhere else")
        values = self._values(require_int32_sums(sums))
        return values if self.residual is None or residual is None else add_residual(values, self.residual, residual)

    def reference(self, sums: NDArray[Any], residual: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the results, computed by numpy: the emitted C gives the same bits.

        Args:
            sums: A layer's sums (..., channels), int32.
            residual: The second tensor, of the same shape, if the epilogue has one.
        """
        return self._results(self.value(sums, residual))

    def _values(self, sums: NDArray[Any]) -> NDArray[Any]:
        """Return the values that a residual is added to."""
        return sums

    @abstractmethod
    def _results(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the results of values."""

    def _check_residual(self, integers: bool) -> None:
        if self.residual is not None and not isinstance(self.residual, Residual):
            raise SpecError(f"residual is a Residual, not {self.residual!r}")
        if self.residual is not None:
            factors(self.residual, max(1, np.size(self.residual.scale)), integers)
            if not integers and self.residual.type == "int32" and self.residual.zero_point:
                raise SpecError("a residual of int32 has no zero_point where it becomes float32")


class CodesEpilogue(BaseEpilogue):
    """The base class of epilogues whose codes have a range and a zero point."""

    bits: int
    signed: bool
    zero_point: int
    low: int | None
    high: int | None

    @property
    def codes(self) -> tuple[int, int]:
        """The least and the greatest code."""
        return code_range(self.bits, self.signed, self.low, self.high)

    @property
    def out_type(self) -> np.dtype[Any]:
        """The type of results."""
        return code_type(self.bits, self.signed)

    def _check_codes(self) -> None:
        if type(self.signed) is not bool:
            raise SpecError(f"signed is True or False, not {self.signed!r}")
        code_range(self.bits, self.signed, self.low, self.high)
        require_whole("zero_point", self.zero_point, *code_range(self.bits, self.signed, None, None))


def store_read_only(epilogue: BaseEpilogue, **names: str) -> None:
    """Replace array attributes by read-only copies; `names` are the arrays' names in errors."""
    for attribute, name in names.items():
        object.__setattr__(epilogue, attribute, copy_read_only(getattr(epilogue, attribute), name))

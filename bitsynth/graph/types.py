"""What an edge of a network carries: integers on a grid of real numbers, or real numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import SpecError
from bitsynth.spec.matmul import Encoding

Tensor = NDArray[Any]
Shape = tuple[int, ...]

_ONE = np.ones((), np.float64)
_ZERO = np.zeros((), np.float64)
_MAX_FLOAT64_INTEGER = 1 << 53
INT32 = (-(1 << 31), (1 << 31) - 1)
EPSILON = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}
"""From 1 to the next number of a type."""


@dataclass(frozen=True)
class Reals:
    """Real numbers, which a float type of the file stands for."""


@dataclass(frozen=True, eq=False)
class Integers:
    """Integers n from `low` to `high`, every `step`-th, that stand for the numbers scale * (n - zero).

    Codes of a quantizer, and sums of products of codes. The four arrays broadcast to the shape of the edge: one value
    for all, or one a channel, a row of weights or a block. Scales are those of the file, or products of two of them,
    which float64 holds exactly.
    """

    low: Tensor
    high: Tensor
    scale: Tensor = field(default_factory=lambda: _ONE)
    zero: Tensor = field(default_factory=lambda: _ZERO)
    step: int = 1

    @classmethod
    def between(cls, low: Any, high: Any, scale: Any = 1.0, zero: Any = 0.0, step: int = 1) -> Integers:
        """Integers of these limits, scale and zero point, each a number or an array that broadcasts to the edge."""
        grid = np.asarray(scale, np.float64), np.asarray(zero, np.float64)
        return cls(np.asarray(low, np.int64), np.asarray(high, np.int64), *grid, step)

    @cached_property
    def is_plain(self) -> bool:
        """Whether the integers are the numbers."""
        return bool((self.scale == 1).all() and (self.zero == 0).all())

    @cached_property
    def has_one_grid(self) -> bool:
        """Whether all elements have one scale and one zero point."""
        return self.scale.size == self.zero.size == 1

    @cached_property
    def is_centred(self) -> bool:
        """Whether zero points are whole, so that number / scale is an integer."""
        return bool((self.zero == np.rint(self.zero)).all())

    @cached_property
    def least(self) -> int:
        """The least integer of the whole edge."""
        return int(self.low.min())

    @cached_property
    def most(self) -> int:
        """The greatest integer of the whole edge."""
        return int(self.high.max())

    @cached_property
    def bits(self) -> int:
        """Bits of codes under the encoding, enough for all these integers."""
        if self.encoding is Encoding.BIPOLAR:
            return max(-self.least, self.most).bit_length()
        if self.least >= 0:
            return max(1, self.most.bit_length())
        return 1 + max((-self.least - 1).bit_length(), self.most.bit_length())

    @cached_property
    def encoding(self) -> Encoding:
        """How codes stand for these integers."""
        if self.step == 2 and self.least % 2 and self.most % 2:
            return Encoding.BIPOLAR
        if self.least >= 0:
            return Encoding.UNSIGNED
        if self.least != -self.most or (self.most + 1) & self.most:
            return Encoding.SIGNED
        return Encoding.TERNARY if self.most == 1 else Encoding.NARROW

    def nearest(self, numbers: Any) -> Any:
        """The integers, as floats, whose numbers are nearest."""
        return np.rint(numbers / self.scale + self.zero)

    def stands_for(self, integers: Any, numbers: Any, dtype: str) -> Any:
        """Whether numbers of a float type are those of integers as it holds them, or next to these."""
        exact = (integers - self.zero) * self.scale
        return np.abs(numbers - exact) <= np.abs(exact) * (2 * EPSILON[dtype])

    def same_grid(self, other: Integers) -> bool:
        """Whether both have one scale and no zero points, so that sums of integers stand for sums of numbers."""
        if self.zero.any() or other.zero.any():
            return False
        return bool(np.all(self.scale == other.scale)) if _broadcast(self.scale, other.scale) else False


EdgeType = Reals | Integers


@dataclass(frozen=True)
class Edge:
    """A tensor that nodes exchange.

    Args:
        name: As in the file, or made from a node's.
        shape: Its axes, all known.
        dtype: The type of the file's numbers, as numpy and ml_dtypes name it: float32, uint8, int4.
        type: What it carries.
    """

    name: str
    shape: Shape
    dtype: str
    type: EdgeType

    @property
    def integers(self) -> Integers:
        """The type, which must be one of integers; TypeError if it is not."""
        if not isinstance(self.type, Integers):
            raise TypeError(f"{self.name} carries real numbers")
        return self.type

    @property
    def is_float(self) -> bool:
        """Whether the file has floats there, which stand for real numbers."""
        return is_float(self.dtype)


def is_float(dtype: str) -> bool:
    """Whether numbers of this type are floats."""
    return "float" in dtype


def numpy_type(name: str) -> np.dtype[Any]:
    """The type by name; of two, four and bfloat16 bits those of ml_dtypes, which comes with onnx."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found


def cast(value: Any, dtype: str) -> Tensor:
    """Return an array in a type of the file; what is beyond a type of floats is infinite there."""
    with np.errstate(over="ignore"):
        return np.asarray(value).astype(numpy_type(dtype))


def limits(dtype: str) -> tuple[int, int]:
    """The least and the greatest integer of a type such as uint8 or int4; SpecError for any other."""
    if dtype == "bool":
        return 0, 1
    signed, _, bits = dtype.rpartition("int")
    if not bits.isdigit() or signed not in ("", "u"):
        raise SpecError(f"type {dtype} has no integers")
    width = int(bits)
    return (0, (1 << width) - 1) if signed else (-(1 << (width - 1)), (1 << (width - 1)) - 1)


def full_range(dtype: str) -> Integers:
    """All integers of a type; of 64 bits those that float64 holds."""
    low, high = limits(dtype)
    return Integers.between(max(low, -_MAX_FLOAT64_INTEGER), min(high, _MAX_FLOAT64_INTEGER))


def compress(array: Tensor) -> Tensor:
    """The array with each axis along which it is constant cut to 1, or a number if all axes are."""
    for axis in range(array.ndim):
        if array.shape[axis] > 1:
            first = array.take([0], axis)
            if (array == first).all():
                array = first
    return array.reshape(()) if array.size == 1 else array


def take_places(array: Tensor, places: Tensor, axis: int) -> Tensor:
    """The array at `places` of an axis; as it is if it has no such axis, or is alike along it."""
    return array.take(places, axis) if 0 <= axis < array.ndim and array.shape[axis] > 1 else array


def _broadcast(*arrays: Tensor) -> bool:
    try:
        np.broadcast_shapes(*(a.shape for a in arrays))
    except ValueError:
        return False
    return True

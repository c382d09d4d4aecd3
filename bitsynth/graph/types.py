"""Types of edges: integers on a grid of real numbers, or real numbers."""

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
"""The distance from 1 to the next number of a float type."""


@dataclass(frozen=True)
class Reals:
    """The type of an edge of real numbers, which a float type of the file stands for."""


@dataclass(frozen=True, eq=False)
class Integers:
    """The type of an edge of integers n from `low` to `high`, every `step`-th, for the numbers scale * (n - zero).

    They are codes of a quantizer, or accumulators. The four arrays broadcast to the shape of the edge: one value for
    all, or one for each channel, row of weights or block. A scale is a scale of the file, or a product of two of them,
    which float64 holds exactly.
    """

    low: Tensor
    high: Tensor
    scale: Tensor = field(default_factory=lambda: _ONE)
    zero: Tensor = field(default_factory=lambda: _ZERO)
    step: int = 1

    @classmethod
    def between(cls, low: Any, high: Any, scale: Any = 1.0, zero: Any = 0.0, step: int = 1) -> Integers:
        """Return integers with limits, scale and zero point, each a number or an array that broadcasts to the edge."""
        grid = np.asarray(scale, np.float64), np.asarray(zero, np.float64)
        return cls(np.asarray(low, np.int64), np.asarray(high, np.int64), *grid, step)

    @cached_property
    def is_plain(self) -> bool:
        """Whether each integer stands for itself."""
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
        """The bits of codes under the encoding, enough for all these integers."""
        if self.encoding is Encoding.BIPOLAR:
            return max(-self.least, self.most).bit_length()
        if self.least >= 0:
            return max(1, self.most.bit_length())
        return 1 + max((-self.least - 1).bit_length(), self.most.bit_length())

    @cached_property
    def encoding(self) -> Encoding:
        """The encoding of codes with these values."""
        if self.step == 2 and self.least % 2 and self.most % 2:
            return Encoding.BIPOLAR
        if self.least >= 0:
            return Encoding.UNSIGNED
        if self.least != -self.most or (self.most + 1) & self.most:
            return Encoding.SIGNED
        return Encoding.TERNARY if self.most == 1 else Encoding.NARROW

    def nearest(self, numbers: Any) -> Any:
        """Return the integers, as floats, that stand for the numbers nearest to `numbers`."""
        return np.rint(numbers / self.scale + self.zero)

    def stands_for(self, integers: Any, numbers: Any, dtype: str) -> Any:
        """Return whether numbers equal the real numbers of their integers, up to roundings in a float type."""
        exact = (integers - self.zero) * self.scale
        return np.abs(numbers - exact) <= np.abs(exact) * (2 * EPSILON[dtype])

    def same_grid(self, other: Integers) -> bool:
        """Return whether both have one scale and no zero points, so that sums of integers stand for sums of numbers."""
        if self.zero.any() or other.zero.any():
            return False
        return bool(np.all(self.scale == other.scale)) if _broadcast(self.scale, other.scale) else False


EdgeType = Reals | Integers


@dataclass(frozen=True)
class Edge:
    """A tensor between nodes.

    Args:
        name: The name in the file, or one made from a node's name.
        shape: The sizes of all axes.
        dtype: The type in the file, as numpy and ml_dtypes name it: float32, uint8, int4.
        type: The numbers of its elements: integers on a grid, or real numbers.
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
        """Whether the file's type is a float type, which stands for real numbers."""
        return is_float(self.dtype)


def is_float(dtype: str) -> bool:
    """Return whether a type is a float type."""
    return "float" in dtype


def numpy_type(name: str) -> np.dtype[Any]:
    """Return a type by name; ml_dtypes, which comes with onnx, has int2, int4 and bfloat16."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return extended


def cast(value: Any, dtype: str) -> Tensor:
    """Return an array in a type of the file; numbers beyond a float type become infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(value).astype(numpy_type(dtype))


def limits(dtype: str) -> tuple[int, int]:
    """Return the least and the greatest integer of a type such as uint8 or int4; SpecError for other types."""
    if dtype == "bool":
        return 0, 1
    signed, _, bits = dtype.rpartition("int")
    if not bits.isdigit() or signed not in ("", "u"):
        raise SpecError(f"type {dtype} has no integers")
    width = int(bits)
    return (0, (1 << width) - 1) if signed else (-(1 << (width - 1)), (1 << (width - 1)) - 1)


def full_range(dtype: str) -> Integers:
    """Return all integers of a type; for 64-bit types the integers that float64 holds."""
    low, high = limits(dtype)
    return Integers.between(max(low, -_MAX_FLOAT64_INTEGER), min(high, _MAX_FLOAT64_INTEGER))


def compress(array: Tensor) -> Tensor:
    """Return the array with size 1 along each axis on which it is constant; a number if all its elements are equal."""
    for axis in range(array.ndim):
        if array.shape[axis] > 1:
            first = array.take([0], axis)
            if (array == first).all():
                array = first
    return array.reshape(()) if array.size == 1 else array


def take_places(array: Tensor, places: Tensor, axis: int) -> Tensor:
    """Return the array at `places` of an axis; as it is if it has no such axis, or broadcasts along it."""
    return array.take(places, axis) if 0 <= axis < array.ndim and array.shape[axis] > 1 else array


def _broadcast(*arrays: Tensor) -> bool:
    try:
        np.broadcast_shapes(*(a.shape for a in arrays))
    except ValueError:
        return False
    return True

"""Arguments and results of compiled functions: aligned arrays, checks and conversions, and operands as codes.

Values are encoded to codes by compiled code (`runtime/bs_encode.h`): checked and encoded in one pass, of any strides.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import DTypeLike, NDArray

from bitsynth.run.runner import Runner
from bitsynth.spec.matmul import MatmulOperand

Array = npt.NDArray[np.generic]
CallArgument = int | Array
MAX_ARGUMENTS = 10
_INTEGERS = (int, np.integer)
_TYPES = {"u1": 0, "b1": 0, "i1": 1, "u2": 2, "i2": 3, "u4": 4, "i4": 5, "u8": 6, "i8": 7}
"""`enum bs_type`, by kind and bytes of numpy's types."""
_AXES = 4
LINE_BYTES = 64


def check(symbol: str, args: tuple[object, ...], word: int) -> list[CallArgument]:
    """Return `args` with every number as its pattern of `word` bits, a pointer's size."""
    if len(args) > MAX_ARGUMENTS:
        raise TypeError(f"{symbol}: {len(args)} arguments, at most {MAX_ARGUMENTS} are passed")
    most = 1 << word - 1
    return [arg if type(arg) is int and 0 <= arg < most else _check(symbol, i, arg, word) for i, arg in enumerate(args)]


def _check(symbol: str, i: int, arg: object, word: int) -> CallArgument:
    if isinstance(arg, np.ndarray):
        if not arg.flags.c_contiguous:
            raise TypeError(f"{symbol}: argument {i} is an array that is not C-contiguous")
        if arg.dtype.hasobject:
            raise TypeError(f"{symbol}: argument {i} is an array of Python objects")
        return arg
    if arg is None:
        return 0
    if isinstance(arg, _INTEGERS):
        number = int(arg)
        if not -(1 << word - 1) <= number < 1 << word:
            raise OverflowError(f"{symbol}: argument {i}: {number} does not fit in {word} bits")
        return number & (1 << word) - 1
    raise TypeError(f"{symbol}: argument {i} is {type(arg).__name__}; wanted an integer, a numpy array or None")


def to_signed(register: int, bits: int) -> int:
    """Return the low `bits` of a result as a signed number."""
    if bits not in {32, 64}:
        raise ValueError(f"bits is {bits}; a result has 32 or 64")
    low = register & (1 << bits) - 1
    return low - (1 << bits) if low >> bits - 1 else low


def describe(array: Array) -> str:
    """Return type and shape in words."""
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"


_Numbers = NDArray[np.int64]


def encode(runner: Runner, operand: MatmulOperand, values: NDArray[Any], name: str, pool: int = 0) -> NDArray[np.uint8]:
    """Return the codes of operand values, as `MatmulOperand.encode` does; `values` itself if they are codes.

    `pool` is the address of the threads that do it, 0 for the one that calls. SpecError names the first misfit.
    """
    flags = values.flags
    described = _describe_values(operand, values.dtype, values.shape, values.strides)
    if described is None or not flags.aligned or not (flags.c_contiguous or runner.in_process):
        return operand.encode(values, name)
    numbers, are_codes = described
    codes = None if are_codes and flags.c_contiguous else np.empty(values.shape, np.uint8)
    at = values if flags.c_contiguous else values.ctypes.data
    if runner.call("bs_encode", numbers, at, codes, pool, bits=32):
        return operand.encode(values, name)
    return values.view(np.uint8) if codes is None else codes


@lru_cache(maxsize=1024)
def _describe_values(
    operand: MatmulOperand, dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[_Numbers, bool] | None:
    """Return `struct bs_values`, and whether its values are their codes; None for arrays that only numpy encodes."""
    kind, axes = _TYPES.get(f"{dtype.kind}{dtype.itemsize}"), _merge_axes(shape, strides)
    if kind is None or not dtype.isnative or len(axes) > _AXES or 0 in shape:
        return None
    axes = [(1, dtype.itemsize)] * (_AXES - len(axes)) + axes
    numbers = [kind, operand.offset, operand.scale, len(operand.codes), *(n for n, _ in axes), *(s for _, s in axes)]
    return np.array(numbers, np.int64), (kind, operand.offset, operand.scale) == (_TYPES["u1"], 0, 1)


def _merge_axes(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return lengths and strides of the axes; axes that lie as one in memory are one."""
    axes: list[tuple[int, int]] = []
    for n, stride in zip(shape, strides, strict=True):
        if axes and axes[-1][1] == n * stride:
            axes[-1] = axes[-1][0] * n, stride
        elif n > 1:
            axes.append((n, stride))
    return axes


def make_aligned(count: int, dtype: DTypeLike) -> NDArray[Any]:
    """Return `count` zeros of `dtype` that start at a cache line."""
    size = np.dtype(dtype).itemsize * count
    room = np.zeros(size + LINE_BYTES, np.uint8)
    start = -room.ctypes.data % LINE_BYTES
    return room[start : start + size].view(dtype)

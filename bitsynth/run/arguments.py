"""Checks and converts the arguments and results of compiled functions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
CallArgument = int | Array
MAX_ARGUMENTS = 10
_INTEGERS = (int, np.integer)


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


def signed(register: int, bits: int) -> int:
    """Return the low `bits` of a result as a signed number."""
    if bits not in {32, 64}:
        raise ValueError(f"bits is {bits}; a result has 32 or 64")
    low = register & (1 << bits) - 1
    return low - (1 << bits) if low >> bits - 1 else low


def describe(array: Array) -> str:
    """Return type and shape in words."""
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"

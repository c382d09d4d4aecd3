"""What may be passed to a compiled function, and what comes back."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
Value = int | Array
MOST = 8


def check(symbol: str, args: tuple[object, ...]) -> list[Value]:
    """`args` with every number as its 64-bit pattern."""
    if len(args) > MOST:
        raise TypeError(f"{symbol}: {len(args)} arguments, at most {MOST} are passed in registers")
    return [_check(f"{symbol}: argument {i}", arg) for i, arg in enumerate(args)]


def _check(where: str, arg: object) -> Value:
    if isinstance(arg, np.ndarray):
        if not arg.flags.c_contiguous:
            raise TypeError(f"{where} is an array that is not C-contiguous")
        if arg.dtype.hasobject:
            raise TypeError(f"{where} is an array of Python objects")
        return arg
    if arg is None:
        return 0
    if isinstance(arg, int | np.integer):
        number = int(arg)
        if not -(1 << 63) <= number < 1 << 64:
            raise OverflowError(f"{where}: {number} does not fit in 64 bits")
        return number & (1 << 64) - 1
    raise TypeError(f"{where} is {type(arg).__name__}; wanted an integer, a numpy array or None")


def signed(register: int, bits: int) -> int:
    """The low `bits` of a register as a signed number."""
    if bits not in {32, 64}:
        raise ValueError(f"bits is {bits}; a result has 32 or 64")
    low = register & (1 << bits) - 1
    return low - (1 << bits) if low >> bits - 1 else low


def describe(array: Array) -> str:
    """Type and shape in words."""
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"

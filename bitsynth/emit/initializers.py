"""C initializers of arrays: numbers as text, bytes as 64-bit words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

_WORD_BITS = 64


def elements(array: NDArray[Any], ctype: str) -> list[str]:
    """Return C initializers; a zero for an empty array, as C has none."""
    flat = np.ascontiguousarray(array).reshape(-1) if array.size else np.zeros(1, array.dtype)
    if ctype == "uint64_t":
        digits = np.frombuffer(flat.tobytes().ljust(-(-flat.nbytes // 8) * 8, b"\0"), "<u8").byteswap().tobytes().hex()
        return [f"0x{digits[k : k + 16]}" for k in range(0, len(digits), 16)]
    return [f"{float(x).hex()}f" for x in flat] if ctype == "float" else [int32_text(int(x)) for x in flat]


def stored_ctype(ctype: str) -> str:
    """Return the C type that elements are written as: words in place of bytes, which are faster to compile."""
    return "uint64_t" if ctype == "uint8_t" else ctype


def dense_words(weight: NDArray[np.uint8], bits: int) -> tuple[list[str], int]:
    """Pack codes for the self-test, as many in a 64-bit word as fit, the first lowest; return words and that number."""
    count = _WORD_BITS // bits
    flat = np.zeros(math.ceil(weight.size / count) * count, np.uint64)
    flat[: weight.size] = weight.reshape(-1)
    shifts = np.arange(count, dtype=np.uint64) * np.uint64(bits)
    words = np.bitwise_or.reduce(flat.reshape(-1, count) << shifts, axis=1)
    return [f"0x{int(x):016x}" for x in words], count


def int32_text(x: int) -> str:
    """Return an int32 as C writes it: the least one has no literal."""
    return "INT32_MIN" if x == -(2**31) else str(x)

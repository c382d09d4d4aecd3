"""Encodes values to codes in compiled code (`runtime/bs_encode.h`): checked and encoded in one pass, of any strides."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.run.runner import Runner
from bitsynth.spec.matmul import MatmulOperand

_TYPES = {"u1": 0, "b1": 0, "i1": 1, "u2": 2, "i2": 3, "u4": 4, "i4": 5, "u8": 6, "i8": 7}
"""`enum bs_type`, by kind and bytes of numpy's types."""
_AXES = 4
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

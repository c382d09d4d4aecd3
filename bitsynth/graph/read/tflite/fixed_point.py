"""Fixed point of TensorFlow Lite: real factors as multipliers of 31 bits, and what they make of integers.

Multipliers are computed from the scales of the file as the kernels do it when they are prepared: in float64, or in
float32 where they do.

Example: scales 0.5, 0.01 and 0.04 give the real factor 0.5 * 0.01 / 0.04 = 0.125 = 0.5 * 2^-2: multiplier 2^30, a
shift of 31 and another one of 2 to the right.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bitsynth.graph.read.file_node import FileNode
from bitsynth.graph.read.tflite.shared import CODES, CodeGrid, codes_of
from bitsynth.graph.types import Tensor

MULTIPLIER_BITS = 31
_MAX_SHIFT = 31
_MOST_EXPONENT = 14


def quantize_multipliers(factors: Any) -> tuple[Tensor, Tensor]:
    """Return real factors as multipliers of 31 bits, and exponents: factor = multiplier / 2^31 * 2^exponent.

    As `QuantizeMultiplier` (kernels/internal/quantization_util.cc).
    """
    part, exponent = np.frexp(np.asarray(factors, np.float64))
    multiplier = np.floor(part * 2.0**MULTIPLIER_BITS + 0.5).astype(np.int64)
    is_over = multiplier == 1 << MULTIPLIER_BITS
    multiplier, exponent = np.where(is_over, multiplier // 2, multiplier), exponent.astype(np.int64) + is_over
    is_none = exponent < -_MAX_SHIFT
    return np.where(is_none, 0, multiplier), np.where(is_none, 0, exponent)


def rescale(
    node: FileNode, edge: str, factors: Any, *, left: int = 0, zero: int = 0, within: tuple[int, int] | None = None
) -> str:
    """Return the edge of integers times real factors, in fixed point, plus a zero point; codes if `within` limits.

    Integers are shifted by `left` bits before, which is the same as a shift of `left` bits less after. SpecError for
    factors of 2^14 or more.
    """
    return multiply(node, edge, *quantize_multipliers(factors), left=left, zero=zero, within=within)


def multiply(
    node: FileNode,
    edge: str,
    multiplier: Tensor,
    exponent: Tensor,
    *,
    left: int = 0,
    zero: int = 0,
    within: tuple[int, int] | None = None,
) -> str:
    """Return the edge of integers times multiplier / 2^31 * 2^exponent, as `rescale`."""
    if (exponent > _MOST_EXPONENT).any():
        raise node.fail(f"a scale is 2^{exponent.max()} times that of its result, more than is compiled")
    low, high = within or (None, None)
    return node.add(
        "multiply_shift",
        edge,
        multiplier=multiplier,
        shift=MULTIPLIER_BITS - np.maximum(exponent, 0) - left,
        right=np.maximum(-exponent, 0),
        zero=zero,
        low=low,
        high=high,
        dtype=CODES if within else "int32",
    )


def centre(node: FileNode, index: int, codes: CodeGrid | None = None) -> str:
    """Return the edge of an input's integers minus their zero point."""
    codes = codes or codes_of(node, f"in{index}")
    return node.add("view", node.edge(index), scale=1.0, zero=np.float64(codes.one_zero), dtype="int32")


def along(values: Tensor, rank: int, axis: int) -> Tensor:
    """Return one number for all, or numbers along an axis of `rank` axes."""
    return values.reshape(()) if values.size == 1 else values.reshape([-1 if k == axis else 1 for k in range(rank)])


def shift_right(x: Tensor, bits: int) -> Tensor:
    """Return x / 2^bits to nearest, ties away from 0 (RoundingDivideByPOT)."""
    return np.asarray((x + (1 << (bits - 1)) - (x < 0)) >> bits)

"""Quantizations: the real numbers that codes stand for, and conversions of codes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import SpecError
from bitsynth.spec.matmul import Encoding, MatmulOperand


@dataclass(frozen=True)
class Quantization:
    """Codes and the real numbers they stand for: scale * (value - zero_point), as ONNX dequantizes.

    `value` is the code's value in its encoding: the code itself if unsigned.

    Args:
        bits: Bits of a code, 1 to 8.
        scale: A number above 0, rounded to float32.
        zero_point: The value that stands for 0: a value of the encoding.
        encoding: The values of codes: "unsigned", "signed", "bipolar", "ternary" or "narrow".

    Raises:
        SpecError: The scale is not finite or not above 0, or there is no such value or code.
    """

    bits: int
    scale: float = 1.0
    zero_point: int = 0
    encoding: str = "unsigned"

    def __post_init__(self) -> None:
        operand, scale = self.operand, round_to_float32(self.scale, "scale")
        if scale <= 0:
            raise SpecError(f"scale must be above 0, not {self.scale!r}")
        object.__setattr__(self, "scale", scale)
        low, high = operand.value(0), operand.value(operand.codes[-1])
        if type(self.zero_point) is not int or not min(low, 0) <= self.zero_point <= high:
            raise SpecError(f"zero_point must be a whole number from {low} to {high}, not {self.zero_point!r}")

    @property
    def operand(self) -> MatmulOperand:
        """Bits and encoding."""
        return MatmulOperand(self.bits, Encoding.parse(self.encoding))

    @property
    def exact_scale(self) -> Fraction:
        """The scale as the float32 it is."""
        return Fraction(float(self.scale))

    def steps(self) -> NDArray[np.int64]:
        """Return value - zero_point of every code."""
        operand = self.operand
        return np.array([operand.value(code) - self.zero_point for code in operand.codes], np.int64)


def as_quantization(value: Any, name: str) -> Quantization:
    """Return a quantization itself, or one of scale 1 for a number of bits; raise SpecError for other values."""
    if isinstance(value, Quantization):
        return value
    if type(value) is not int:
        raise SpecError(f"{name} must be a Quantization, or a number of bits, not {value!r}")
    return Quantization(value)


def round_to_float32(value: Any, name: str) -> float:
    """Return `value` rounded to float32; raise SpecError unless that is finite."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | np.integer):
        raise SpecError(f"{name} must be a number, not {value!r}")
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value))
    if not math.isfinite(rounded):
        raise SpecError(f"{name} must be a number that float32 holds, not {value!r}")
    return rounded


def require_whole_steps(out: Quantization) -> None:
    """Raise SpecError for bipolar results: they have no code for every whole number."""
    if out.operand.scale != 1:
        raise SpecError(
            "bipolar codes stand for every second number: give another encoding, or a Lookup of these codes"
        )


def half_to_even(numerator: NDArray[Any], divisor: int) -> NDArray[Any]:
    """Return numerator / divisor rounded half to even; exact for Python's integers."""
    twice, whole = 2 * numerator + divisor, 2 * divisor
    quotient = twice // whole
    rounded: NDArray[Any] = quotient - ((twice % whole == 0) & (quotient % 2 != 0))
    return rounded


def as_codes(numerator: NDArray[Any], divisor: int, out: Quantization) -> NDArray[np.uint8]:
    """Return numerator / divisor, in steps of `out`, as codes: rounded half to even, plus zero point, clamped."""
    code = half_to_even(numerator, divisor) + out.zero_point - out.operand.offset
    codes: NDArray[np.uint8] = np.clip(code, 0, out.operand.codes[-1]).astype(np.uint8)
    return codes


def requantize_codes(source: Quantization, out: Quantization) -> NDArray[np.uint8]:
    """Return the code of `out` for each code of `source`: the real number rounded once, half to even, and clamped."""
    require_whole_steps(out)
    ratio = source.exact_scale / out.exact_scale
    return as_codes(source.steps().astype(object) * ratio.numerator, ratio.denominator, out)

"""Fixed point as TensorFlow Lite has it: the accumulator times a multiplier of 31 bits, rounded twice, to codes.

Both roundings are gemmlowp's: `SaturatingRoundingDoublingHighMul` and `RoundingDivideByPOT`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.errors import SpecError
from bitsynth.layers.epilogues.accumulators import Accumulators, AskedProgram, ProgramInputs
from bitsynth.layers.epilogues.base import ClampedCodes, store_read_only
from bitsynth.layers.epilogues.checks import INT32, broadcast_to_channels
from bitsynth.layers.epilogues.claimed import ClaimedMultiplyShift
from bitsynth.layers.epilogues.residual import Residual
from bitsynth.spec.elementwise import ElementInput, ElementwiseSpec, SpecKind
from bitsynth.spec.rescaling import MULTIPLIER_SHIFT, CodeForm, ValueTerms

_LARGEST_SHIFT = 31


def multiply_shift_spec(value: ValueTerms, codes: CodeForm, *, wide: bool = False) -> ElementwiseSpec:
    """Return codes (q + u) >> n plus z, with q the value * m / 2**31, rounded to nearest, halves up.

    d is added to a negative q before the shift: -1 makes halves go away from 0. These sums have 32 bits, and wrap, or
    64 if they are `wide`.
    """
    half = 1 << (MULTIPLIER_SHIFT - 1)
    quotient = f"trunc(asr(sext({value.text}, 64) * sext(m, 64) + {half}, {MULTIPLIER_SHIFT}), 32)"
    less = f"(asr({quotient}, 31) & d)"
    if wide:
        shifted = f"asr(sext({quotient}, 64) + u + sext({less}, 64), zext(n, 64))"
    else:
        shifted = f"sext(asr({quotient} + u + {less}, n), 64)"
    types = {"m": "s32", "u": "s64" if wide else "s32", "d": "s32", "n": "s32"}
    inputs = (*value.inputs, *(ElementInput(name, kind, "channel") for name, kind in types.items()))
    form = f"{'_wide' if wide else ''}{value.name}"
    return codes.spec(SpecKind.MULTIPLY_SHIFT, form, inputs, codes.clamp(shifted), ["bit(ult(n, 32))"])


@dataclass(frozen=True, eq=False)
class MultiplyShift(ClampedCodes):
    """Codes: sum * multiplier / 2**31, rounded, then divided by 2**right, rounded, plus the zero point, clamped.

    The first quotient is rounded to nearest with halves up, the second one with halves away from 0.

    Example: with the multiplier 2**30 the sum 5 becomes 3; with a `right` of 1 that becomes 2. -5 becomes -2, then -1.

    Args:
        multiplier: 0 or more: one int32 a channel, or one for all.
        right: Bits of the second division, 0 to 31: one a channel, or one for all.
        bits: Bits of a code, 1 to 8, or to 16 if codes are signed.
        zero_point: The code that stands for 0.
        low: The least code; None for the least that the bits hold.
        high: The greatest code; None for the greatest that the bits hold.
        signed: Whether codes are int8, or int16 above 8 bits; uint8 otherwise.
        residual: A second tensor that is added to the sum, or None.
    """

    multiplier: ArrayLike
    right: ArrayLike
    bits: int = 8
    zero_point: int = 0
    low: int | None = None
    high: int | None = None
    signed: bool = False
    residual: Residual | None = None

    def __post_init__(self) -> None:
        store_read_only(self, multiplier="multiplier", right="right")
        multiplier, right = self._factors(max(np.size(self.multiplier), np.size(self.right)))
        if (multiplier < 0).any() or ((right < 0) | (right > _LARGEST_SHIFT)).any():
            raise SpecError(f"multipliers are not negative, and right is from 0 to {_LARGEST_SHIFT}")
        self._check_codes()
        self._check_residual()

    def _factors(self, channels: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return multipliers and shifts (channels,)."""
        given = {"multiplier": self.multiplier, "right": self.right}
        first, second = (broadcast_to_channels(n, x, channels, np.int32).astype(np.int64) for n, x in given.items())
        return first, second

    def _results(self, values: NDArray[Any]) -> NDArray[Any]:
        multiplier, right = self._factors(values.shape[-1])
        quotient = _quotients(values.astype(np.int64), multiplier)
        half, less = _addends(right)
        codes: NDArray[Any] = (quotient + half + np.where(quotient < 0, less, 0) >> right) + self.zero_point
        return codes.clip(*self.codes).astype(self.out_type)

    def lower(self, sums: Accumulators, planes: int) -> Iterator[AskedProgram]:
        """Yield a spec that adds in 32 bits, if that holds all sums, then one that adds in 64 bits.

        There is none for `sums` that have a factor or a shift, and none of 64 bits for sums to which numbers of rows or
        columns are added. Codes go to words of `planes` bit planes, or to bytes if it is 0.
        """
        if sums.factor != 1 or sums.shift:
            return
        codes, columns = self._code_form(planes), sums.columns
        multiplier, right = self._factors(sums.channels)
        half, less = _addends(right)
        most = _quotients(sums.bound + np.abs(columns), multiplier) + half
        numbers = {"m": multiplier, "u": half, "d": less, "n": right}
        inputs: ProgramInputs = {**{n: x.astype(np.int32) for n, x in numbers.items()}, **self._code_inputs(codes)}
        value = ValueTerms(row=sums.row, column=sums.row or bool(columns.any()))
        if value.column:
            if sums.bound + np.abs(columns).max() > INT32.max:
                return
            inputs = {**inputs, "c": columns.astype(np.int32)}
        if most.max(initial=0) <= INT32.max:
            yield multiply_shift_spec(value, codes), inputs
        if sums.are_values:
            yield multiply_shift_spec(value, codes, wide=True), {**inputs, "u": half}

    def formula(self, channels: int) -> ClaimedMultiplyShift:
        """Return the multipliers and shifts of `channels` channels, and the range of codes."""
        multiplier, right = (x[:, None] for x in self._factors(channels))
        low, high = self.codes
        return ClaimedMultiplyShift(multiplier=multiplier, right=right, zero=self.zero_point, low=low, high=high)


def _quotients(values: NDArray[np.int64], multiplier: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return values times multipliers over 2**31, rounded to nearest, halves up."""
    return (values * multiplier + (1 << (MULTIPLIER_SHIFT - 1))) >> MULTIPLIER_SHIFT


def _addends(right: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return what is added to quotients before shifts `right` (channels,): to all of them, and to negative ones too.

    The first is half a unit, the second -1, so that halves go away from 0. Both are 0 where there is no shift.
    """
    return (np.left_shift(1, right) >> 1), np.where(right > 0, -1, 0)

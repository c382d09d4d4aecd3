"""Requantization in integers: the accumulator times a multiplier, shifted, rounded, and clamped to codes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.errors import SpecError
from bitsynth.layers.epilogues.accumulators import Accumulators, AskedProgram, ProgramInputs
from bitsynth.layers.epilogues.base import ClampedCodes, store_read_only
from bitsynth.layers.epilogues.checks import INT32, broadcast_to_channels, require_whole
from bitsynth.layers.epilogues.residual import Residual
from bitsynth.spec.elementwise import ElementInput, ElementwiseSpec, SpecKind
from bitsynth.spec.matmul import is_one_of
from bitsynth.spec.rescaling import SUM, CodeForm, ValueTerms

_MULTIPLIER = ElementInput("m", "s32", "channel")


def requantize_spec(codes: CodeForm, *, row: bool, wide: bool, even: bool = False) -> ElementwiseSpec:
    """Return codes p >> n plus z, with p the value * m + k, the value s, and r of its row if `row`.

    Products have 32 bits, and wrap; or 64 if they are `wide`, which are shifted by 32 more. Rounded half to `even`,
    g and bit n of p are added to p before it is shifted; else the rounding constant is part of k.
    """
    value, size = ValueTerms(row=row), 64 if wide else 32
    product = f"(sext({value.text}, {size}) * sext(m, {size}) + k)"
    shift = "zext(n, 64) + 32" if wide else "n"
    rounded = f"{product} + g + (lsr({product}, {shift}) & 1)" if even else product
    ends = [ElementInput("k", f"s{size}", "channel"), *([ElementInput("g", f"s{size}", "channel")] if even else [])]
    inputs = (*value.inputs, _MULTIPLIER, *ends, ElementInput("n", "s32", "all"))
    form = f"{size}{'_even' if even else ''}{value.name}"
    code = codes.clamp(f"sext(trunc(asr({rounded}, {shift}), 32), 64)")
    return codes.spec(SpecKind.REQUANTIZE, form, inputs, code, [f"bit(ult(n, {31 if wide else 32}))"])


def requantize_any_spec(codes: CodeForm, *, even: bool = False) -> ElementwiseSpec:
    """Return codes (s * m + g) >> n plus z, of any s, m and n from 0 to 62; g is what rounds, below 2**61.

    Rounded half to `even`, bit n of s * m is added too.
    """
    product = "sext(s, 64) * sext(m, 64)"
    rounded = f"{product} + g + (lsr({product}, zext(n, 64)) & 1)" if even else f"{product} + g"
    shared = ElementInput("g", "s64", "all"), ElementInput("n", "s32", "all")
    code = codes.clamp(f"asr({rounded}, zext(n, 64))")
    form = f"_any{'_even' if even else ''}"
    return codes.spec(
        SpecKind.REQUANTIZE, form, (SUM, _MULTIPLIER, *shared), code, ["bit(ult(n, 63))", "bit(ult(g, 1 << 61 | 1))"]
    )


ROUNDINGS = ("up", "even")
_LARGEST_SHIFT = 62


@dataclass(frozen=True, eq=False)
class Requantize(ClampedCodes):
    """Codes: (sum * multiplier + half) >> shift, plus the zero point, clamped; half is 2**(shift - 1), 0 for shift 0.

    Products have 64 bits. Rounded "up", halves go up; rounded "even", to the even number: with p the product, it is
    (p + half - 1 + (p >> shift & 1)) >> shift.

    Args:
        multiplier: One int32 a channel, or one for all.
        shift: Bits of the shift to the right, 0 to 62.
        bits: Bits of a code, 1 to 8, or to 16 if codes are signed.
        rounding: "up" or "even".
        zero_point: The code that stands for 0.
        low: The least code; None for the least that the bits hold.
        high: The greatest code; None for the greatest that the bits hold.
        signed: Whether codes are int8, or int16 above 8 bits; uint8 otherwise.
        residual: A second tensor that is added to the sum, or None.
    """

    multiplier: ArrayLike
    shift: int
    bits: int
    rounding: str = "up"
    zero_point: int = 0
    low: int | None = None
    high: int | None = None
    signed: bool = False
    residual: Residual | None = None

    def __post_init__(self) -> None:
        store_read_only(self, multiplier="multiplier")
        require_whole("shift", self.shift, 0, _LARGEST_SHIFT)
        if not is_one_of(self.rounding, ROUNDINGS):
            raise SpecError(f"rounding is one of {', '.join(ROUNDINGS)}, not {self.rounding!r}")
        self._check_codes()
        self._check_residual()

    def _results(self, values: NDArray[Any]) -> NDArray[Any]:
        multiplier = broadcast_to_channels("multiplier", self.multiplier, values.shape[-1], np.int32)
        product = values.astype(np.int64) * multiplier
        half = (1 << self.shift) >> 1
        if self.rounding == "even" and self.shift:
            product = product + (half - 1) + (product >> self.shift & 1)
        else:
            product = product + half
        codes: NDArray[Any] = ((product >> self.shift) + self.zero_point).clip(*self.codes)
        return codes.astype(self.out_type)

    def lower(self, sums: Accumulators, planes: int) -> Iterator[AskedProgram]:
        """Yield specs of s * (factor * m) + column * m, shifted by the value's own shift too, in 32 or 64 bits.

        `sums` are the accumulators; codes go to words of `planes` bit planes, or to bytes if it is 0.
        """
        codes = self._code_form(planes)
        limits = self._code_inputs(codes)
        multiplier = broadcast_to_channels("multiplier", self.multiplier, sums.channels, np.int32)
        given = [(int(m) * sums.factor, int(m) * int(c)) for m, c in zip(multiplier, sums.columns, strict=True)]
        half, shift = (1 << self.shift) >> 1 << sums.shift, self.shift + sums.shift
        even = self.rounding == "even" and self.shift > 0
        for wide in (False, True):
            product = _Product(given, half, shift).fit_shift(wide)
            inputs = product.inputs(sums.bound, wide, even)
            if inputs is not None:
                yield requantize_spec(codes, row=sums.row, wide=wide, even=even), {**inputs, **limits}
        if sums.are_values:
            rounds: ProgramInputs = {"g": np.array(half - even, np.int64), "n": np.array(shift, np.int32)}
            yield requantize_any_spec(codes, even=even), {"m": multiplier, **rounds, **limits}


@dataclass(frozen=True)
class _Product:
    """(s * m + k + half) >> shift, with (m, k) of each channel: whole numbers of any size."""

    channels: list[tuple[int, int]]
    half: int
    shift: int

    def fit_shift(self, wide: bool) -> _Product:
        """Return the same: shifted by 32 or more of 64 bits; of 32 bits, as little as the multipliers allow."""
        if wide:
            up = max(0, 32 - self.shift)
            return _Product([(m << up, k << up) for m, k in self.channels], self.half << up, self.shift + up)
        down = min([self.half.bit_length() - 1 if self.half else 0, *(_zeros(m) for m, _ in self.channels)])
        down = min([down, *(_zeros(k) for _, k in self.channels)])
        return _Product([(m >> down, k >> down) for m, k in self.channels], self.half >> down, self.shift - down)

    def inputs(self, bound: int, wide: bool, even: bool) -> ProgramInputs | None:
        """Return the inputs of a spec for sums up to `bound`; None if they do not fit."""
        size, by = (64, self.shift - 32) if wide else (32, self.shift)
        most = max(abs(m) * bound + abs(k) for m, k in self.channels) + self.half + 1
        fits = all(INT32.min <= m <= INT32.max for m, _ in self.channels)
        if most >= 1 << (size - 1) or not fits or not 0 <= by <= 30:
            return None
        kind = np.dtype(f"i{size // 8}")
        ends = {"k": np.array([k + (0 if even else self.half) for _, k in self.channels], kind)}
        if even:
            ends["g"] = np.full(len(self.channels), self.half - 1, kind)
        return {"m": np.array([m for m, _ in self.channels], np.int32), **ends, "n": np.array(by, np.int32)}


def _zeros(x: int) -> int:
    """Return the number of zeros below the lowest set bit; a large number for 0."""
    return (x & -x).bit_length() - 1 if x else 62

"""Epilogues of a layer's int32 sums: floats, or codes for the next layer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.errors import SpecError
from bitsynth.layers.epilogue_arguments import (
    INT32,
    code_range,
    code_type,
    int32_sums,
    kept,
    levels,
    of_channels,
    whole,
)
from bitsynth.layers.residual import Residual, factors, with_residual
from bitsynth.spec.matmul import Encoding, MatmulOperand, is_one_of

ROUNDINGS = ("up", "even")
_LARGEST_SHIFT = 62


class _Epilogue(ABC):
    """What all epilogues share."""

    residual: Residual | None

    def value(self, sums: NDArray[Any], residual: NDArray[Any] | None = None) -> NDArray[Any]:
        """The sums as they are before they are rounded, with the residual: what `Residual.keep_sum` keeps.

        Args:
            sums: A layer's sums (..., channels), int32.
            residual: The second tensor, of the same shape, if the epilogue has one.
        """
        if (residual is None) != (self.residual is None):
            raise SpecError("a residual is given where the epilogue has one, and nowhere else")
        values = self._values(int32_sums(sums))
        return values if self.residual is None or residual is None else with_residual(values, self.residual, residual)

    def reference(self, sums: NDArray[Any], residual: NDArray[Any] | None = None) -> NDArray[Any]:
        """The results, by numpy: what the emitted C gives to the bit.

        Args:
            sums: A layer's sums (..., channels), int32.
            residual: The second tensor, of the same shape, if the epilogue has one.
        """
        return self._results(self.value(sums, residual))

    def _values(self, sums: NDArray[Any]) -> NDArray[Any]:
        """The values that a residual is added to."""
        return sums

    @abstractmethod
    def _results(self, values: NDArray[Any]) -> NDArray[Any]:
        """The results of values."""

    def _check_residual(self, integers: bool) -> None:
        if self.residual is not None and not isinstance(self.residual, Residual):
            raise SpecError(f"residual is a Residual, not {self.residual!r}")
        if self.residual is not None:
            factors(self.residual, max(1, np.size(self.residual.scale)), integers)
            if not integers and self.residual.type == "int32" and self.residual.zero_point:
                raise SpecError("a residual of int32 has no zero_point where it becomes float32")


class _CodesEpilogue(_Epilogue):
    """What epilogues share whose codes have a range and a zero point."""

    bits: int
    signed: bool
    zero_point: int
    low: int | None
    high: int | None

    @property
    def codes(self) -> tuple[int, int]:
        """The least and the greatest code."""
        return code_range(self.bits, self.signed, self.low, self.high)

    @property
    def out_type(self) -> np.dtype[Any]:
        """The type of results."""
        return code_type(self.bits, self.signed)

    def _check_codes(self) -> None:
        if type(self.signed) is not bool:
            raise SpecError(f"signed is True or False, not {self.signed!r}")
        code_range(self.bits, self.signed, self.low, self.high)
        whole("zero_point", self.zero_point, *code_range(self.bits, self.signed, None, None))


@dataclass(frozen=True, eq=False)
class Scale(_Epilogue):
    """float32 results: scale * sum + bias.

    Sum, product and result are each rounded to float32, as numpy does: C compiled with -ffast-math is refused.

    Args:
        scale: One factor a channel, or one for all.
        bias: One summand a channel, or one for all.
        residual: A second tensor that is added last, or None.
    """

    scale: ArrayLike
    bias: ArrayLike = 0.0
    residual: Residual | None = None

    def __post_init__(self) -> None:
        _keep(self, scale="scale", bias="bias")
        self._check_residual(integers=False)

    @property
    def out_type(self) -> np.dtype[Any]:
        """The type of results."""
        return np.dtype(np.float32)

    def _values(self, sums: NDArray[Any]) -> NDArray[Any]:
        return _scaled(self, sums)

    def _results(self, values: NDArray[Any]) -> NDArray[Any]:
        return values


@dataclass(frozen=True, eq=False)
class Requantize(_CodesEpilogue):
    """Codes: (sum * multiplier + half) >> shift, plus the zero point, clamped; half is 2**(shift - 1), 0 for shift 0.

    Products have 64 bits. Rounded "up", halves go up; rounded "even", to the even number: with p the product, it is
    (p + half - 1 + (p >> shift & 1)) >> shift.

    Args:
        multiplier: One int32 a channel, or one for all.
        shift: Bits of the shift to the right, 0 to 62.
        bits: Bits of a code, 1 to 8, or to 16 if codes are signed.
        rounding: "up" or "even".
        zero_point: The code that stands for 0.
        low: The least code; the least of so many bits if None.
        high: The greatest code; the greatest of so many bits if None.
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
        _keep(self, multiplier="multiplier")
        whole("shift", self.shift, 0, _LARGEST_SHIFT)
        if not is_one_of(self.rounding, ROUNDINGS):
            raise SpecError(f"rounding is one of {', '.join(ROUNDINGS)}, not {self.rounding!r}")
        self._check_codes()
        self._check_residual(integers=True)

    def _results(self, values: NDArray[Any]) -> NDArray[Any]:
        multiplier = of_channels("multiplier", self.multiplier, values.shape[-1], np.int32)
        product = values.astype(np.int64) * multiplier
        half = (1 << self.shift) >> 1
        if self.rounding == "even" and self.shift:
            product = product + (half - 1) + (product >> self.shift & 1)
        else:
            product = product + half
        codes: NDArray[Any] = ((product >> self.shift) + self.zero_point).clip(*self.codes)
        return codes.astype(self.out_type)


@dataclass(frozen=True, eq=False)
class Rescale(_CodesEpilogue):
    """Codes by float32, as ONNX requantizes: the sum converted, times the scale, clamped, rounded half to even.

    float32(sum) * scale + bias, each operation rounded to float32, is clamped to low - zero_point .. high - zero_point,
    rounded, and the zero point is added: the same bits on every machine.

    Args:
        scale: One float32 a channel, or one for all.
        bits: Bits of a code, 1 to 8, or to 16 if codes are signed.
        zero_point: The code that stands for 0.
        signed: Whether codes are int8, or int16 above 8 bits; uint8 otherwise.
        low: The least code; the least of so many bits if None.
        high: The greatest code; the greatest of so many bits if None.
        bias: One float32 a channel, or one for all, that is added to the product; nothing is if None.
        residual: A second tensor that is added before the value is clamped, or None.
    """

    scale: ArrayLike
    bits: int = 8
    zero_point: int = 0
    signed: bool = False
    low: int | None = None
    high: int | None = None
    bias: ArrayLike | None = None
    residual: Residual | None = None

    def __post_init__(self) -> None:
        _keep(self, **({"scale": "scale"} if self.bias is None else {"scale": "scale", "bias": "bias"}))
        self._check_codes()
        self._check_residual(integers=False)

    def _values(self, sums: NDArray[Any]) -> NDArray[Any]:
        return _scaled(self, sums)

    def _results(self, values: NDArray[Any]) -> NDArray[Any]:
        low, high = (np.float32(code - self.zero_point) for code in self.codes)
        rounded = np.rint(values.clip(low, high)).astype(np.int32)
        return np.asarray(rounded + self.zero_point, self.out_type)


@dataclass(frozen=True, eq=False)
class Thresholds(_Epilogue):
    """Codes: the number of a channel's thresholds that lie below its sum, or above it where the channel is falling.

    Args:
        values: Whole numbers in ascending order: (levels,) or (1, levels) for all channels, or (channels, levels), 1 to
            255 levels. Channels may have fewer: masked ones, or lists of different lengths. Codes of n bits take at
            most 2**n - 1 levels.
        rising: Whether codes rise with the sum, for all channels or one by one (channels,).
        residual: A second tensor that is added to the sum, or None. If that may bring a sum to an end of int32, a level
            beyond it, which every sum passes, is refused.
    """

    values: ArrayLike
    rising: ArrayLike = True
    residual: Residual | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", levels(self.values))
        _keep(self, rising="rising")
        if np.asarray(self.rising).dtype != np.bool_ or np.ndim(self.rising) > 1:
            raise SpecError(f"rising is True, False or an array of them, one a channel, not {self.rising!r}")
        self._check_residual(integers=True)

    @property
    def bits(self) -> int:
        """Bits of a code: the fewest that hold the number of levels."""
        return max(1, int(np.shape(self.values)[1]).bit_length())

    @property
    def codes(self) -> tuple[int, int]:
        """The least and the greatest code."""
        return 0, int(np.shape(self.values)[1])

    @property
    def out_type(self) -> np.dtype[Any]:
        """The type of results."""
        return np.dtype(np.uint8)

    def _results(self, values: NDArray[Any]) -> NDArray[Any]:
        given, rising = levels_of(self, values.shape[-1])
        above, below = (compared(values[..., None], given).sum(axis=-1) for compared in (np.greater, np.less))
        return np.asarray(np.where(rising, above, below), np.uint8)


Epilogue = Scale | Requantize | Rescale | Thresholds


def kept_type(epilogue: Epilogue | None) -> np.dtype[Any] | None:
    """The type of the sums that a layer keeps beside its results; None if it keeps none."""
    if epilogue is None or epilogue.residual is None or not epilogue.residual.keep_sum:
        return None
    return np.dtype(np.float32 if isinstance(epilogue, Scale | Rescale) else np.int32)


def gives_codes(epilogue: Epilogue | None) -> TypeGuard[Requantize | Rescale | Thresholds]:
    """Whether results are codes, which can be packed."""
    return epilogue is not None and not isinstance(epilogue, Scale)


def check_epilogue(epilogue: Any, out_layout: str) -> None:
    """SpecError for what is not an epilogue, or is one whose results cannot lie as `out_layout` says."""
    if epilogue is not None and not isinstance(epilogue, Epilogue):
        raise SpecError(f"an epilogue is Scale, Requantize, Rescale or Thresholds, not {epilogue!r}")
    if out_layout != "packed":
        return
    if not gives_codes(epilogue):
        raise SpecError("only codes can be packed: give Thresholds, Requantize or Rescale, or another out_layout")
    if epilogue.codes[0] < 0:
        raise SpecError("signed codes cannot be packed: give a zero_point, and codes from 0 on")


def check_encoding(epilogue: Epilogue | None, encoding: str) -> None:
    """SpecError if results are codes that `encoding`, unless it is empty, does not have."""
    if not encoding or not gives_codes(epilogue):
        return
    operand, last = MatmulOperand(epilogue.bits, Encoding.parse(encoding)), epilogue.codes[1]
    if last > operand.codes[-1]:
        raise SpecError(f"codes of {operand} go to {operand.codes[-1]}, and those of the epilogue to {last}")


def levels_of(thresholds: Thresholds, channels: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Levels (channels, levels) and whether each channel is rising; SpecError for another number of channels.

    An absent level is the greatest int32, as no sum is above it, and the least in a falling channel.
    """
    given, rising = np.asarray(thresholds.values, np.int64), np.asarray(thresholds.rising, np.bool_)
    for count in (len(given), rising.size):
        if count not in (1, channels):
            raise SpecError(f"{count} channels of thresholds for {channels} output channels")
    every, up = np.broadcast_to(given, (channels, given.shape[1])), np.broadcast_to(rising, (channels,))
    return np.where(np.ma.getmaskarray(np.ma.asarray(thresholds.values)) & ~up[:, None], INT32.min, every), up


def _keep(epilogue: Epilogue, **names: str) -> None:
    """Put read-only copies, called so in errors, in the place of arrays that the caller may edit later."""
    for attribute, name in names.items():
        object.__setattr__(epilogue, attribute, kept(getattr(epilogue, attribute), name))


def floats_of(epilogue: Scale | Rescale, channels: int) -> dict[str, NDArray[Any]]:
    """Scale and bias, float32 a channel each; no bias if there is none."""
    given = {"scale": epilogue.scale} | ({} if epilogue.bias is None else {"bias": epilogue.bias})
    return {name: of_channels(name, value, channels, np.float32) for name, value in given.items()}


def _scaled(epilogue: Scale | Rescale, sums: NDArray[Any]) -> NDArray[Any]:
    """float32(sum) * scale + bias, rounded to float32 at every step."""
    arrays = floats_of(epilogue, sums.shape[-1])
    with np.errstate(over="ignore"):
        value: NDArray[Any] = sums.astype(np.float32) * arrays["scale"]
        if "bias" in arrays:
            value = value + arrays["bias"]
    return value

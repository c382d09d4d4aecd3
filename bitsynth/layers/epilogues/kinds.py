"""The kinds of epilogues of a layer's int32 accumulators: floats, or codes for the next layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.errors import SpecError
from bitsynth.layers.epilogues.base import (
    INT32,
    BaseEpilogue,
    CodesEpilogue,
    Residual,
    broadcast_to_channels,
    copy_read_only,
    parse_levels,
    require_int32_sums,
    require_whole,
    store_read_only,
)
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import MAX_BITS, Encoding, MatmulOperand, is_one_of, plain_array
from bitsynth.spec.rescaling import FIXED_SHIFT


@dataclass(frozen=True, eq=False)
class Thresholds(BaseEpilogue):
    """Codes: the number of thresholds below the accumulator, or above it where the channel is falling.

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
        object.__setattr__(self, "values", parse_levels(self.values))
        store_read_only(self, rising="rising")
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


def levels_of(thresholds: Thresholds, channels: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return levels (channels, levels) and whether each channel is rising; raise SpecError for other channels.

    An absent level is the greatest int32, as no sum is above it, and the least in a falling channel.
    """
    given, rising = np.asarray(thresholds.values, np.int64), np.asarray(thresholds.rising, np.bool_)
    for count in (len(given), rising.size):
        if count not in (1, channels):
            raise SpecError(f"{count} channels of thresholds for {channels} output channels")
    every, up = np.broadcast_to(given, (channels, given.shape[1])), np.broadcast_to(rising, (channels,))
    return np.where(np.ma.getmaskarray(np.ma.asarray(thresholds.values)) & ~up[:, None], INT32.min, every), up


ROUNDINGS = ("up", "even")
_LARGEST_SHIFT = 62


@dataclass(frozen=True, eq=False)
class Requantize(CodesEpilogue):
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
        self._check_residual(integers=True)

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


@dataclass(frozen=True, eq=False)
class FixedLine:
    """The affine function (x * multiplier + summand) >> FIXED_SHIFT; SpecError if int32 overflows before the shift.

    Args:
        multiplier: One int32 a channel, or one for all.
        summand: The same of int64: products alone may leave int32, as int32 products wrap in C.
    """

    multiplier: ArrayLike
    summand: ArrayLike

    def __post_init__(self) -> None:
        for name in ("multiplier", "summand"):
            object.__setattr__(self, name, copy_read_only(getattr(self, name), name))

    def of(self, channels: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return multipliers and summands (channels,)."""
        multiplier = broadcast_to_channels("multiplier", self.multiplier, channels, np.int32).astype(np.int64)
        return multiplier, broadcast_to_channels("summand", self.summand, channels, np.int64)

    def at(self, x: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the function of integers (..., channels)."""
        multiplier, summand = self.of(x.shape[-1])
        made = x * multiplier + summand
        if made.size and not INT32.min <= made.min() <= made.max() <= INT32.max:
            raise SpecError("multiplier and summand make numbers beyond int32")
        return np.asarray(made >> FIXED_SHIFT)


@dataclass(frozen=True, eq=False)
class FixedPoint(BaseEpilogue):
    """Codes: an affine function of the accumulator, clamped to `least` .. `most`, and a second one of its result.

    Args:
        least: The lower clamp of accumulators, int32: one a channel, or one for all.
        most: The upper clamp, as `least`.
        line: The affine function of accumulators.
        bits: Bits of a code, 1 to 8.
        then: The affine function of its results, the same for all channels, or None.
        residual: None: there is no second tensor.
    """

    least: ArrayLike
    most: ArrayLike
    line: FixedLine
    bits: int
    then: FixedLine | None = None
    residual: Residual | None = None

    def __post_init__(self) -> None:
        store_read_only(self, least="least", most="most")
        require_whole("bits", self.bits, 1, MAX_BITS)
        if self.residual is not None:
            raise SpecError("fixed-point codes have no residual")
        lines: tuple[Any, Any] = (self.line, self.then)
        if not (isinstance(lines[0], FixedLine) and isinstance(lines[1], FixedLine | None)):
            raise SpecError(f"lines of fixed-point codes are FixedLine, not {self.line!r}, {self.then!r}")
        parts = (self.least, self.most, self.line.multiplier, self.line.summand)
        channels = max(1, *(int(np.size(x)) for x in parts))
        ends = self.window(channels)
        if (ends[0] > ends[1]).any() or (self.then and np.size(self.then.multiplier) + np.size(self.then.summand) > 2):
            raise SpecError("least is not above most, and the second line is that of all channels")
        found = self._lines(np.stack(ends))
        object.__setattr__(self, "_ends", (int(found.min()), int(found.max())))
        if not 0 <= self.codes[0] <= self.codes[1] < 1 << self.bits:
            raise SpecError(f"codes go from {self.codes[0]} to {self.codes[1]}, beyond {self.bits} bits")

    def window(self, channels: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the clamps (channels,) of accumulators."""
        least, most = (broadcast_to_channels(n, getattr(self, n), channels, np.int32) for n in ("least", "most"))
        return least.astype(np.int64), most.astype(np.int64)

    @property
    def codes(self) -> tuple[int, int]:
        """The least and the greatest code."""
        ends: tuple[int, int] = self._ends  # type: ignore[attr-defined]
        return ends

    @property
    def out_type(self) -> np.dtype[Any]:
        """The type of results."""
        return np.dtype(np.uint8)

    def _results(self, values: NDArray[Any]) -> NDArray[Any]:
        return self._lines(values.astype(np.int64).clip(*self.window(values.shape[-1]))).astype(np.uint8)

    def _lines(self, kept_sums: NDArray[np.int64]) -> NDArray[np.int64]:
        made = self.line.at(kept_sums)
        return self.then.at(made) if self.then else made


GateLine = tuple[float, float]
"""Factor and summand of the gate: a value v is multiplied by clip(v * factor + summand, 0, 1)."""


def gated(values: NDArray[Any], gate: GateLine | None) -> NDArray[Any]:
    """Return `values` times their gate, rounded after each operation; `values` themselves without a gate."""
    return values if gate is None else values * _opened(values, gate)


def gated_bounds(low: NDArray[Any], high: NDArray[Any], gate: GateLine | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return bounds of `gated` for all values from `low` to `high`, arrays of one shape and type of floats.

    Float operations are monotone in each operand, so the products of ends bound all others.
    """
    ends = [low, high]
    if gate is not None:
        gates = [_opened(x, gate) for x in ends]
        ends = [x * each for x in ends for each in gates]
    return np.minimum.reduce(ends), np.maximum.reduce(ends)


def _opened(values: NDArray[Any], gate: GateLine) -> NDArray[Any]:
    """Return the factors of the gate: clip(value * factor + summand, 0, 1)."""
    factor, summand = np.asarray(gate, values.dtype)
    with np.errstate(over="ignore"):
        made: NDArray[Any] = (values * factor + summand).clip(0, 1)
    return made


_MAX_GATED = 2.0**60
"""Limit of scales, biases and gates: times an int32 it is far from the end of float32."""


@dataclass(frozen=True, eq=False)
class Scale(BaseEpilogue):
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
        store_read_only(self, scale="scale", bias="bias")
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
class Rescale(CodesEpilogue):
    """Codes by float32, as ONNX requantizes: the sum converted, times the scale, clamped, rounded half to even.

    float32(sum) * scale + bias, each operation rounded to float32, is clamped to low - zero_point .. high - zero_point,
    rounded, and the zero point is added: the same bits on every machine.

    Args:
        scale: One float32 a channel, or one for all.
        bits: Bits of a code, 1 to 8, or to 16 if codes are signed.
        zero_point: The code that stands for 0.
        signed: Whether codes are int8, or int16 above 8 bits; uint8 otherwise.
        low: The least code; None for the least that the bits hold.
        high: The greatest code; None for the greatest that the bits hold.
        bias: One float32 a channel, or one for all, that is added to the product; nothing is if None.
        residual: A second tensor that is added before the value is clamped, or None.
        gate: Factor and summand, or None. The value v, of a scale and a bias, is then multiplied by v * factor +
            summand, which is kept between 0 and 1, before it is clamped: so hard swish is done. Without a residual.
    """

    scale: ArrayLike
    bits: int = 8
    zero_point: int = 0
    signed: bool = False
    low: int | None = None
    high: int | None = None
    bias: ArrayLike | None = None
    residual: Residual | None = None
    gate: GateLine | None = None

    def __post_init__(self) -> None:
        store_read_only(self, **({"scale": "scale"} if self.bias is None else {"scale": "scale", "bias": "bias"}))
        self._check_codes()
        self._check_residual(integers=False)
        if self.gate is not None:
            self._keep_gate(self.gate)

    def _keep_gate(self, gate: ArrayLike) -> None:
        """Store a copy of the gate; raise SpecError if gated values could overflow float32."""
        if self.residual is not None or self.bias is None:
            raise SpecError("a gate wants a bias, and no residual")
        found = plain_array(gate, "gate")
        if found.shape != (2,) or found.dtype.kind not in "iuf" or not (np.abs(found) < _MAX_GATED).all():
            raise SpecError(f"a gate is two numbers below {_MAX_GATED:g}, not {gate!r}")
        for value in map(np.asarray, (self.scale, self.bias)):
            if value.dtype.kind not in "iuf" or not (np.abs(value.astype(np.float64)) < _MAX_GATED).all():
                raise SpecError(f"with a gate, scale and bias must be numbers below {_MAX_GATED:g}")
        object.__setattr__(self, "gate", (float(found[0]), float(found[1])))

    def _values(self, sums: NDArray[Any]) -> NDArray[Any]:
        return gated(_scaled(self, sums), self.gate)

    def bounds(self, low: NDArray[Any], high: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return bounds of the codes of all accumulators from `low` to `high` (..., channels), without a residual."""
        first, last = (_scaled(self, require_int32_sums(x)) for x in (low, high))
        least, most = gated_bounds(first, last, self.gate)
        return self._results(least), self._results(most)

    def _results(self, values: NDArray[Any]) -> NDArray[Any]:
        low, high = (np.float32(code - self.zero_point) for code in self.codes)
        rounded = np.rint(values.clip(low, high)).astype(np.int32)
        return np.asarray(rounded + self.zero_point, self.out_type)


def floats_of(epilogue: Scale | Rescale, channels: int) -> dict[str, NDArray[Any]]:
    """Return scale and bias, one float32 a channel each; no bias if the epilogue has none."""
    given = {"scale": epilogue.scale} | ({} if epilogue.bias is None else {"bias": epilogue.bias})
    return {name: broadcast_to_channels(name, value, channels, np.float32) for name, value in given.items()}


def _scaled(epilogue: Scale | Rescale, sums: NDArray[Any]) -> NDArray[Any]:
    """Return float32(accumulator) * scale + bias, rounded to float32 after every operation."""
    arrays = floats_of(epilogue, sums.shape[-1])
    with np.errstate(over="ignore"):
        value: NDArray[Any] = sums.astype(np.float32) * arrays["scale"]
        if "bias" in arrays:
            value = value + arrays["bias"]
    return value


Epilogue = Scale | Requantize | Rescale | Thresholds | FixedPoint


def kept_type(epilogue: Epilogue | None) -> np.dtype[Any] | None:
    """Return the type of the second output, values with the residual; None without one."""
    if epilogue is None or epilogue.residual is None or not epilogue.residual.keep_sum:
        return None
    return np.dtype(np.float32 if isinstance(epilogue, Scale | Rescale) else np.int32)


def gives_codes(epilogue: Epilogue | None) -> TypeGuard[Requantize | Rescale | Thresholds | FixedPoint]:
    """Return whether results are codes, which can be packed."""
    return epilogue is not None and not isinstance(epilogue, Scale)


def check_epilogue(epilogue: Any, out_layout: str) -> None:
    """Raise SpecError if the object is no epilogue, or its results cannot have the layout `out_layout`."""
    if epilogue is not None and not isinstance(epilogue, Epilogue):
        raise SpecError(f"an epilogue is Scale, Requantize, Rescale or Thresholds, not {epilogue!r}")
    if out_layout != Layout.PACKED:
        return
    if not gives_codes(epilogue):
        raise SpecError("only codes can be packed: give Thresholds, Requantize or Rescale, or another out_layout")
    if epilogue.codes[0] < 0:
        raise SpecError("signed codes cannot be packed: give a zero_point, and codes from 0 on")


def check_encoding(epilogue: Epilogue | None, encoding: str) -> None:
    """Raise SpecError if results are codes beyond those of `encoding`; an empty encoding has all."""
    if not encoding or not gives_codes(epilogue):
        return
    operand, last = MatmulOperand(epilogue.bits, Encoding.parse(encoding)), epilogue.codes[1]
    if last > operand.codes[-1]:
        raise SpecError(f"codes of {operand} go to {operand.codes[-1]}, and those of the epilogue to {last}")

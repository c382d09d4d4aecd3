"""Epilogues in float32: the accumulator times a scale plus a bias, as it is (`Scale`) or as codes (`Rescale`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.errors import SpecError
from bitsynth.isa.floats import ONE
from bitsynth.layers.epilogues.accumulators import Accumulators, AskedProgram, ProgramInputs
from bitsynth.layers.epilogues.base import ClampedCodes, Epilogue, store_read_only
from bitsynth.layers.epilogues.checks import INT32, broadcast_to_channels, require_int32_sums
from bitsynth.layers.epilogues.claimed import ClaimedGate, ClaimedRescale
from bitsynth.layers.epilogues.residual import Residual
from bitsynth.spec.elementwise import ElementInput, ElementwiseSpec, SpecKind
from bitsynth.spec.matmul import plain_array
from bitsynth.spec.rescaling import CodeForm, ValueTerms, is_number, is_small
from bitsynth.spec.residual import ELEMENTS, round_to_codes, scale_sums

_SCALE, _BIAS = ElementInput("m", "u32", "channel"), ElementInput("b", "u32", "channel")
_MIN_HALVED_EXACTLY = np.float32(2.0**-125)
"""float32 numbers of this size or more are halved exactly."""
_MAX_FLOAT32 = float(np.finfo(np.float32).max)
_MAX_SMALL = 2.0**29
"""Real values below it are small (`is_small`) after roundings to float32 too, as it is half of that limit."""
_MAX_GATED = 2.0**60
"""Limit of scales, biases and gates: times an int32 it is far from the end of float32."""


def _scaled_text(value: ValueTerms, bias: bool) -> str:
    product = f"fmul(float_of({value.text}), m)"
    return f"fadd({product}, b)" if bias else product


def scale_spec(value: ValueTerms, *, bias: bool) -> ElementwiseSpec:
    """Return the spec of float32 scaling: value * m, plus b if there is a `bias`; each step is rounded."""
    text = _scaled_text(value, bias)
    inputs = (*value.inputs, _SCALE, *([_BIAS] if bias else []))
    return ElementwiseSpec(
        name=f"scale{'_bias' if bias else ''}{value.name}",
        inputs=inputs,
        meaning=text,
        out="u32",
        assumes=(is_number(text),),
        kind=SpecKind.SCALE,
    )


def rescale_spec(value: ValueTerms, codes: CodeForm, *, bias: bool, small: bool = False) -> ElementwiseSpec:
    """Return codes of the float32 value * m, plus b if there is a `bias`: rounded half to even, plus z, clamped.

    m and b are finite. The same results from clamping the value to l - z .. h - z before it is rounded, as ONNX has it:
    rounding to nearest is monotone, and keeps whole numbers. With `small`, it is assumed that no number beyond 2**30 is
    rounded.
    """
    text = _scaled_text(value, bias)
    inputs = (*value.inputs, _SCALE, *([_BIAS] if bias else []))
    code = codes.clamp(f"sext(nearest({text}), 64)")
    form = f"{'_small' if small else ''}{'_bias' if bias else ''}{value.name}"
    return codes.spec(SpecKind.RESCALE, form, inputs, code, [(is_small if small else is_number)(text)])


def gated_spec(value: ValueTerms, codes: CodeForm) -> ElementwiseSpec:
    """Return the spec of codes of a gated value: v = value * m + b times v * g + a, clipped to 0 to 1.

    Float32 numbers that are not negative have the order of their bits as signed integers, so clips compare integers.
    """
    scaled = _scaled_text(value, bias=True)
    gate = f"fadd(fmul({scaled}, g), a)"
    text = f"fmul({scaled}, smin(smax({gate}, 0), {ONE}))"
    shared = ElementInput("g", "u32", "all"), ElementInput("a", "u32", "all")
    code = codes.clamp(f"sext(nearest({text}), 64)")
    assumed = [is_number(gate), is_number(text)]
    return codes.spec(SpecKind.GATED, value.name, (*value.inputs, _SCALE, _BIAS, *shared), code, assumed)


class FloatValues(Epilogue):
    """The base class of epilogues whose values are float32: float32(accumulator) * scale + bias, each step rounded.

    Attributes:
        scale: One factor a channel, or one for all.
        bias: One summand a channel, or one for all; nothing is added if None.
    """

    adds_floats = True
    scale: ArrayLike
    bias: ArrayLike | None

    def floats(self, channels: int) -> dict[str, NDArray[Any]]:
        """Return scale and bias, a float32 each for `channels` channels; no bias if the epilogue has none."""
        given = {"scale": self.scale} | ({} if self.bias is None else {"bias": self.bias})
        return {name: broadcast_to_channels(name, value, channels, np.float32) for name, value in given.items()}

    def _values(self, sums: NDArray[Any]) -> NDArray[Any]:
        arrays = self.floats(sums.shape[-1])
        with np.errstate(over="ignore"):
            value: NDArray[Any] = sums.astype(np.float32) * arrays["scale"]
            if "bias" in arrays:
                value = value + arrays["bias"]
        return value

    def _lower_values(self, sums: Accumulators) -> tuple[ValueTerms, dict[str, NDArray[Any]]] | None:
        """Return the sum that the text scales, and the inputs that scale it; None if a constant does not fit.

        Of (factor * s + column) >> shift: s, or s and half the column, times the scale or a half or a double of it.
        """
        factor, columns, power = sums.factor, sums.columns, -sums.shift
        if factor == 2 and not (columns % 2).any():
            factor, columns, power = 1, columns // 2, power + 1
        if factor != 1 or sums.bound + np.abs(columns).max(initial=0) > INT32.max:
            return None
        given = self.floats(sums.channels)
        factors = given["scale"]
        moved = factors * np.float32(2.0**power)
        if (power and not ((np.abs(factors) >= _MIN_HALVED_EXACTLY) | (factors == 0)).all()) or not np.isfinite(
            moved
        ).all():
            return None
        inputs = {"m": moved.view(np.uint32)}
        value = ValueTerms(row=sums.row, column=sums.row or bool(columns.any()))
        if value.column:
            inputs["c"] = columns.astype(np.int32)
        if "bias" in given:
            inputs["b"] = given["bias"].view(np.uint32)
        return value, inputs

    def lower_residual(self, sums: Accumulators) -> tuple[ElementwiseSpec, ProgramInputs, Accumulators]:
        """Return the spec that adds the residual to `sums`, its inputs, and the values after the addition.

        Without a bias, -0 is added, which changes nothing.

        Raises:
            SpecError: float32 may overflow: values would be infinite, and NaN with an infinite residual.
        """
        channels, residual = sums.channels, self.added_residual
        given = {"bias": np.full(channels, -0.0, np.float32), **self.floats(channels)}
        most = np.abs(given["scale"].astype(np.float64)) * sums.bound + np.abs(given["bias"].astype(np.float64))
        if (most >= _MAX_FLOAT32).any():
            raise SpecError("sums times scale may leave float32: with a residual, they may not")
        floats = {"m": given["scale"], "b": given["bias"], "f": self.residual_factors(channels)}
        zero = np.array(residual.zero_point, np.int32)
        inputs = {**{name: x.view(np.uint32) for name, x in floats.items()}, "z": zero}
        spec = scale_sums(ELEMENTS[residual.type])
        return spec, {x.name: inputs[x.name] for x in spec.inputs if x.name in inputs}, sums


@dataclass(frozen=True, eq=False)
class Scale(FloatValues):
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
        self._check_residual()

    @property
    def out_type(self) -> np.dtype[Any]:
        """The type of results."""
        return np.dtype(np.float32)

    def _results(self, values: NDArray[Any]) -> NDArray[Any]:
        return values

    def lower(self, sums: Accumulators, planes: int) -> Iterator[AskedProgram]:
        """Yield the spec of float32 results of `sums`; none after a residual, which is added last. `planes` is 0."""
        if self.residual is None and (lowered := self._lower_values(sums)):
            value, inputs = lowered
            yield scale_spec(value, bias=True), inputs


GateLine = tuple[float, float]
"""Factor and summand of the gate: a value v is multiplied by clip(v * factor + summand, 0, 1)."""


def apply_gate(values: NDArray[Any], gate: GateLine | None) -> NDArray[Any]:
    """Return `values` times their gate, rounded after each operation; `values` themselves without a gate."""
    return values if gate is None else values * _compute_gate(values, gate)


def gate_bounds(low: NDArray[Any], high: NDArray[Any], gate: GateLine | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return bounds of `apply_gate` for all values from `low` to `high`, arrays of one shape and type of floats.

    Float operations are monotone in each operand, so the products of ends bound all others.
    """
    ends = [low, high]
    if gate is not None:
        gates = [_compute_gate(x, gate) for x in ends]
        ends = [x * each for x in ends for each in gates]
    return np.minimum.reduce(ends), np.maximum.reduce(ends)


def _compute_gate(values: NDArray[Any], gate: GateLine) -> NDArray[Any]:
    """Return the factors of the gate: clip(value * factor + summand, 0, 1)."""
    factor, summand = np.asarray(gate, values.dtype)
    with np.errstate(over="ignore"):
        opened: NDArray[Any] = (values * factor + summand).clip(0, 1)
    return opened


def claim_rescale(
    scale: NDArray[Any], bias: NDArray[Any], zero: int, codes: tuple[int, int], gate: GateLine | None
) -> ClaimedRescale:
    """Return an affine formula of scale and bias (channels,), with a gate or without, as certificates claim it."""
    low, high = (int(end) for end in codes)
    scale, bias = scale[:, None], bias[:, None]
    if gate is None:
        return ClaimedRescale(scale=scale, bias=bias, zero=int(zero), low=low, high=high)
    opened = np.array(gate, scale.dtype)[:, None]
    return ClaimedGate(scale=scale, bias=bias, gate=opened, zero=int(zero), low=low, high=high)


@dataclass(frozen=True, eq=False)
class Rescale(FloatValues, ClampedCodes):
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
        self._check_residual()
        if self.gate is not None:
            self._keep_gate(self.gate)

    def _keep_gate(self, gate: ArrayLike) -> None:
        """Store a copy of the gate; raise SpecError if gated values could overflow float32."""
        if self.residual is not None or self.bias is None:
            raise SpecError("a gate wants a bias, and no residual")
        numbers = plain_array(gate, "gate")
        if numbers.shape != (2,) or numbers.dtype.kind not in "iuf" or not (np.abs(numbers) < _MAX_GATED).all():
            raise SpecError(f"a gate is two numbers below {_MAX_GATED:g}, not {gate!r}")
        for value in map(np.asarray, (self.scale, self.bias)):
            if value.dtype.kind not in "iuf" or not (np.abs(value.astype(np.float64)) < _MAX_GATED).all():
                raise SpecError(f"with a gate, scale and bias must be numbers below {_MAX_GATED:g}")
        object.__setattr__(self, "gate", (float(numbers[0]), float(numbers[1])))

    def _values(self, sums: NDArray[Any]) -> NDArray[Any]:
        return apply_gate(super()._values(sums), self.gate)

    def bounds(self, low: NDArray[Any], high: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return bounds of the codes of all accumulators from `low` to `high` (..., channels), without a residual."""
        first, last = (super(Rescale, self)._values(require_int32_sums(x)) for x in (low, high))
        least, most = gate_bounds(first, last, self.gate)
        return self._results(least), self._results(most)

    def _results(self, values: NDArray[Any]) -> NDArray[Any]:
        low, high = (np.float32(code - self.zero_point) for code in self.codes)
        rounded = np.rint(values.clip(low, high)).astype(np.int32)
        return np.asarray(rounded + self.zero_point, self.out_type)

    def lower(self, sums: Accumulators, planes: int) -> Iterator[AskedProgram]:
        """Yield specs of codes of `sums`, in words of `planes` bit planes if not 0; after a residual, of values."""
        codes = self._code_form(planes)
        limits = self._code_inputs(codes)
        if self.residual is not None:
            yield round_to_codes(codes), limits
        elif lowered := self._lower_values(sums):
            value, inputs = lowered
            if self.gate is None:
                bias = "b" in inputs
                if self._is_small(sums):
                    if not planes and self._has_all_codes:
                        yield rescale_spec(value, replace(codes, whole=True), bias=bias, small=True), inputs
                    yield rescale_spec(value, codes, bias=bias, small=True), {**inputs, **limits}
                yield rescale_spec(value, codes, bias=bias), {**inputs, **limits}
            else:
                g, a = np.array(self.gate, np.float32).view(np.uint32)
                shared = {"g": np.asarray(g), "a": np.asarray(a)}
                yield gated_spec(value, codes), {**inputs, **limits, **shared}

    @property
    def _has_all_codes(self) -> bool:
        """Whether codes are all values of their type, without a zero point."""
        kind = np.iinfo(self.out_type)
        return kind.bits == 8 and self.zero_point == 0 and self.codes == (kind.min, kind.max)

    def _is_small(self, sums: Accumulators) -> bool:
        """Return whether no value of `sums` is beyond 2**30 in float32, however operations round it."""
        floats = {"bias": np.zeros(1, np.float32), **self.floats(sums.channels)}
        most = (abs(sums.factor) * sums.bound + np.abs(sums.columns)) / 2.0**sums.shift
        values = np.abs(floats["scale"].astype(np.float64)) * most + np.abs(floats["bias"].astype(np.float64))
        return bool((values < _MAX_SMALL).all())

    def formula(self, channels: int) -> ClaimedRescale:
        """Return scale, bias, codes and gate of `channels` channels."""
        floats = {"bias": np.zeros(channels, np.float32), **self.floats(channels)}
        return claim_rescale(floats["scale"], floats["bias"], self.zero_point, self.codes, self.gate)

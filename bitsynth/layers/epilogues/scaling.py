"""Epilogues in float32: numbers, or codes as ONNX requantizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.errors import SpecError
from bitsynth.layers.epilogues.arguments import int32_sums, of_channels
from bitsynth.layers.epilogues.base import BaseEpilogue, CodesEpilogue, keep
from bitsynth.layers.epilogues.gating import GateLine, gated, gated_bounds
from bitsynth.layers.epilogues.residual import Residual
from bitsynth.spec.matmul import plain_array

_GREAT = 2.0**60
"""Times sums of int32 far from the end of float32."""


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
        keep(self, scale="scale", bias="bias")
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
        low: The least code; the least of so many bits if None.
        high: The greatest code; the greatest of so many bits if None.
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
        keep(self, **({"scale": "scale"} if self.bias is None else {"scale": "scale", "bias": "bias"}))
        self._check_codes()
        self._check_residual(integers=False)
        if self.gate is not None:
            self._keep_gate(self.gate)

    def _keep_gate(self, gate: ArrayLike) -> None:
        """A copy of the gate; SpecError unless values are numbers, and so what the gate makes of them."""
        if self.residual is not None or self.bias is None:
            raise SpecError("a gate wants a bias, and no residual")
        found = plain_array(gate, "gate")
        if found.shape != (2,) or found.dtype.kind not in "iuf" or not (np.abs(found) < _GREAT).all():
            raise SpecError(f"a gate is two numbers below {_GREAT:g}, not {gate!r}")
        for value in map(np.asarray, (self.scale, self.bias)):
            if value.dtype.kind not in "iuf" or not (np.abs(value.astype(np.float64)) < _GREAT).all():
                raise SpecError(f"with a gate, scale and bias must be numbers below {_GREAT:g}")
        object.__setattr__(self, "gate", (float(found[0]), float(found[1])))

    def _values(self, sums: NDArray[Any]) -> NDArray[Any]:
        return gated(_scaled(self, sums), self.gate)

    def bounds(self, low: NDArray[Any], high: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Codes between which those of all sums from `low` to `high` (..., channels) lie, without a residual."""
        first, last = (_scaled(self, int32_sums(x)) for x in (low, high))
        least, most = gated_bounds(first, last, self.gate)
        return self._results(least), self._results(most)

    def _results(self, values: NDArray[Any]) -> NDArray[Any]:
        low, high = (np.float32(code - self.zero_point) for code in self.codes)
        rounded = np.rint(values.clip(low, high)).astype(np.int32)
        return np.asarray(rounded + self.zero_point, self.out_type)


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

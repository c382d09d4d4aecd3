"""Quantization of floats to codes, and dequantization: the edges of a network."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.errors import SpecError
from bitsynth.kernel.elementwise.constants import shared_numbers
from bitsynth.layers.glue.base import Activations, Arrays, Glue, Numbers
from bitsynth.layers.glue.programs import COMMON_UNIT
from bitsynth.layers.glue.quantization import Quantization, as_quantization
from bitsynth.spec import glue as specs
from bitsynth.spec.elementwise import ElementwiseSpec
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import Encoding, plain_array


class Quantize(Glue):
    """Codes of float32 numbers, as ONNX's QuantizeLinear: round(x / scale) + zero_point, clamped.

    The quotient is rounded to float32, then to an integer, ties to even. NaN becomes the least code, on every
    processor. Bipolar codes have one bit: 1 where x / scale is 0 or more.

    Args:
        channels: Channels of a pixel.
        quantization: The codes of results: a quantization, or bits of codes whose scale is 1.
        scale: A number above 0 for each channel, instead of the quantization's scale.
        low: The least value of results, if not the least of the encoding.
        high: The greatest value of results, if not the greatest of the encoding.
        layout: "NHWC" or "packed", of results.
        **options: `isa` and `threads`, as of `Conv2d`.

    Raises:
        SpecError: The arguments do not fit together, or a scale is not finite or not above 0.
    """

    def __init__(
        self,
        channels: int,
        quantization: Quantization | int,
        *,
        scale: ArrayLike | None = None,
        low: int | None = None,
        high: int | None = None,
        layout: str = Layout.NHWC,
        **options: Any,
    ) -> None:
        quantization = as_quantization(quantization, "quantization")
        source, output = Activations(channels, None), Activations(channels, quantization.operand, layout)
        self.quantization, self.scale = quantization, _scales(scale, quantization, channels)
        self.limits = _limits(quantization, low, high)
        program, numbers = _quantizer_spec(quantization, self.limits)
        floats: Numbers = {"op": "quantize", "program": program.name, "period": _period(channels)}
        super().__init__([source], output, floats, _arrays(program, numbers, self.scale), **options)

    def meaning(self, *codes: NDArray[Any]) -> NDArray[Any]:
        return to_codes(codes[0], self.scale, self.quantization, self.limits)


class Dequantize(Glue):
    """The float32 numbers that codes stand for: (value - zero_point) * scale, as ONNX's DequantizeLinear.

    Args:
        channels: Channels of a pixel.
        quantization: The codes that are read: a quantization, or bits of codes whose scale is 1.
        scale: A number above 0 for each channel, instead of the quantization's scale.
        layout: "NHWC" or "packed", of the codes.
        **options: `isa` and `threads`, as of `Conv2d`.

    Raises:
        SpecError: The arguments do not fit together, or a scale is not finite or not above 0.
    """

    def __init__(
        self,
        channels: int,
        quantization: Quantization | int,
        *,
        scale: ArrayLike | None = None,
        layout: str = Layout.NHWC,
        **options: Any,
    ) -> None:
        quantization = as_quantization(quantization, "quantization")
        source, output = Activations(channels, quantization.operand, layout), Activations(channels, None)
        self.quantization, self.scale = quantization, _scales(scale, quantization, channels)
        operand, program = quantization.operand, specs.dequantize()
        numbers = {"f": operand.scale, "k": operand.offset - quantization.zero_point}
        floats: Numbers = {"op": "dequantize", "program": program.name, "period": _period(channels)}
        super().__init__([source], output, floats, _arrays(program, numbers, self.scale), **options)

    def meaning(self, *codes: NDArray[Any]) -> NDArray[Any]:
        values = self.quantization.operand.decode(codes[0]).astype(np.int32) - self.quantization.zero_point
        return values.astype(np.float32) * self.scale


def _quantizer_spec(out: Quantization, limits: tuple[int, int]) -> tuple[ElementwiseSpec, dict[str, int]]:
    """Return the spec of a quantizer, and the numbers that its program reads; limits are the bits of float32."""
    if out.operand.encoding is Encoding.BIPOLAR:
        return specs.signs(), {}
    low, high = np.array(limits, np.float32) - np.float32(out.zero_point)
    bits = {name: int(x.view(np.uint32)) for name, x in (("l", low), ("h", high))}
    return specs.quantize(), {**bits, "z": out.zero_point - out.operand.offset}


def _period(channels: int) -> int:
    """Return the period of scales in elements: whole pixels, and whole units of every program."""
    return math.lcm(channels, COMMON_UNIT)


def _arrays(program: ElementwiseSpec, numbers: dict[str, int], scale: NDArray[np.float32]) -> Arrays:
    """Return the scales, repeated over a period, and the numbers that the program reads, if there are any."""
    scales = {"scale": np.tile(scale, _period(len(scale)) // len(scale))}
    return {**scales, "numbers": shared_numbers(program, numbers)} if numbers else scales


def to_codes(
    x: NDArray[np.float32], scale: Any, out: Quantization, limits: tuple[int, int] | None = None
) -> NDArray[np.uint8]:
    """Return the codes of `x` / `scale` in numpy, each operation in float32: the reference for C."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        quotient = (x / scale).astype(np.float32)
    if out.operand.encoding is Encoding.BIPOLAR:
        return np.asarray(quotient >= 0, np.uint8)
    low, high = limits or _limits(out, None, None)
    whole = np.rint(np.clip(np.nan_to_num(quotient, nan=-np.inf), low - out.zero_point, high - out.zero_point))
    return np.asarray(whole.astype(np.int32) + out.zero_point - out.operand.offset, np.uint8)


def _limits(out: Quantization, low: int | None, high: int | None) -> tuple[int, int]:
    """Return the least and the greatest value; raise SpecError if the encoding does not have them."""
    operand = out.operand
    if operand.encoding is Encoding.BIPOLAR and (operand.bits != 1 or out.zero_point or (low, high) != (None, None)):
        raise SpecError("bipolar codes of floats are of 1 bit, with neither a zero point nor limits")
    least, most = operand.value(0), operand.value(operand.codes[-1])
    chosen = least if low is None else low, most if high is None else high
    if not all(type(x) is int for x in chosen) or not least <= chosen[0] <= chosen[1] <= most:
        raise SpecError(f"low and high must be whole numbers from {least} to {most}, not {low!r} and {high!r}")
    return chosen


def _scales(scale: ArrayLike | None, quantization: Quantization, channels: int) -> NDArray[np.float32]:
    """Return a float32 scale for each channel; raise SpecError unless it is above 0 and finite."""
    array = plain_array(quantization.scale if scale is None else scale, "scale")
    if array.dtype.kind not in "iuf" or array.shape not in ((), (1,), (channels,)):
        raise SpecError(f"scale must be one number or {channels} of them, not {array.dtype} {array.shape}")
    with np.errstate(over="ignore"):
        scales = np.ascontiguousarray(np.broadcast_to(array, (channels,)).astype(np.float32))
    if not np.isfinite(scales).all() or (scales <= 0).any():
        raise SpecError("scale must have numbers above 0 that float32 holds")
    return scales

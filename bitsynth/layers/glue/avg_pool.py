"""The mean of a window, or of an image, of codes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.glue_abi import ROUNDING
from bitsynth.emit.runtime_abi import Number
from bitsynth.errors import SpecError
from bitsynth.layers.geometry import Pair
from bitsynth.layers.glue.activations import codes_of, either
from bitsynth.layers.glue.base import Numbers
from bitsynth.layers.glue.quantization import Quantization, require_whole_steps
from bitsynth.layers.glue.quantization import quantization as as_quantization
from bitsynth.layers.glue.window import WindowGlue, window_of
from bitsynth.spec import glue as specs
from bitsynth.spec.matmul import INT32_MAX, is_one_of

_INT64_MAX = 2**63 - 1
_MOST_SUMS = 1 << 14
"""Of a window whose codes are looked up."""


class AvgPool2d(WindowGlue):
    """The mean of a window, rounded to a code once: from exact sums, half to even, half up or down.

    With quantizations q and out, of the sum of a window's values over n pixels, padding not among them:
    round((sum - n * q.zero_point) * q.scale / (n * out.scale)) + out.zero_point, clamped to a code, where scales are
    the float32 numbers they are and the quotient is that of exact numbers. `Quantization(bits)` alone gives the mean
    of the codes. A window that holds padding alone has the sum of one pixel of code 0.

    Args:
        channels: Channels of a pixel.
        quantization: The codes that are read: a quantization, or bits of codes whose scale is 1.
        window: Pixels of the window, one number or (height, width).
        out: The codes that are given; as `quantization` if None.
        stride: Pixels between windows, likewise; the window's if None.
        padding: Pixels of padding, as of `MaxPool2d`.
        rounding: "even", "up" or "down": how halves are rounded, or that everything is rounded down.
        layout: "NHWC" or "packed".
        out_layout: Likewise, of results; as `layout` if None.
        **options: `isa` and `threads`, as of `Conv2d`.

    Raises:
        SpecError: The arguments do not fit together.
    """

    def __init__(
        self,
        channels: int,
        quantization: Quantization | int,
        window: Pair,
        out: Quantization | int | None = None,
        *,
        stride: Pair | None = None,
        padding: Any = 0,
        rounding: str = "even",
        layout: str = "NHWC",
        out_layout: str | None = None,
        **options: Any,
    ) -> None:
        quantization = as_quantization(quantization, "quantization")
        out = quantization if out is None else as_quantization(out, "out")
        self.geometry = window_of(channels, window, stride, padding, 1)
        high, wide = self.geometry.kernel
        numbers = {**_mean(quantization, out, rounding), **self.geometry.window()}
        if high * wide > int(numbers["most_pixels"]):
            raise SpecError(
                f"a window of {high * wide:,} pixels is more than sums can take: {numbers['most_pixels']:,}"
            )
        self._set_mean(channels, quantization, out, numbers, (layout, either(out_layout, layout)), options)

    def _set_mean(
        self,
        channels: int,
        quantization: Quantization,
        out: Quantization,
        numbers: dict[str, Number],
        layouts: tuple[str, str],
        options: dict[str, Any],
    ) -> None:
        """Make the layer of these `numbers`; the codes of all sums of a whole window, if they are few, are a table."""
        source = codes_of(channels, quantization.bits, quantization.encoding, layouts[0])
        output = codes_of(channels, out.bits, out.encoding, layouts[1])
        pixels = int(numbers.get("kernel_h", 0)) * int(numbers.get("kernel_w", 0))
        few = 0 < pixels * source.last < _MOST_SUMS and "program" not in numbers
        sums = np.arange(pixels * source.last + 1).astype(object)
        arrays = {"tables": _codes(numbers, sums, pixels, output.last)} if few else {}
        super().__init__([source], output, numbers, arrays, **options)

    def meaning(self, *codes: NDArray[Any]) -> NDArray[Any]:
        read, inside = self._taps(codes[0])
        pixels = np.maximum(inside.sum(axis=0), 1).astype(object)
        sums = np.where(inside, read, 0).sum(axis=0).astype(object)
        return _codes(self.constants.numbers, sums, pixels, self.output.last)


class GlobalAvgPool2d(AvgPool2d):
    """The mean of each channel of an image, (N, 1, 1, C), as `AvgPool2d` gives that of a window.

    Args:
        channels: Channels of a pixel.
        quantization: The codes that are read.
        out: The codes that are given; as `quantization` if None.
        rounding: "even", "up" or "down", as of `AvgPool2d`.
        layout: "NHWC" or "packed".
        out_layout: Likewise, of results; as `layout` if None.
        **options: `isa` and `threads`, as of `Conv2d`.

    Raises:
        SpecError: The arguments do not fit together.
    """

    def __init__(
        self,
        channels: int,
        quantization: Quantization | int,
        out: Quantization | int | None = None,
        *,
        rounding: str = "even",
        layout: str = "NHWC",
        out_layout: str | None = None,
        **options: Any,
    ) -> None:
        quantization = as_quantization(quantization, "quantization")
        out = quantization if out is None else as_quantization(out, "out")
        numbers = {**_mean(quantization, out, rounding), "whole_image": 1}
        numbers |= {"stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1}
        self._set_mean(channels, quantization, out, numbers, (layout, either(out_layout, layout)), options)

    def out_size(self, height: int, width: int) -> tuple[int, int]:
        if not height or not width:
            raise SpecError(f"an image of {height} x {width} has no mean")
        return 1, 1

    def _example_size(self) -> tuple[int, int]:
        return 5, 6

    def _taps(self, x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        read = x.reshape(len(x), -1, 1, 1, x.shape[-1]).swapaxes(0, 1).astype(np.int64)
        return read, np.ones(read.shape, bool)


def _mean(source: Quantization, out: Quantization, rounding: str) -> dict[str, Number]:
    """The numbers of a mean; a program takes sums of codes, if codes of both are the same numbers."""
    if not is_one_of(rounding, ROUNDING.words):
        raise SpecError(f"unknown rounding {rounding!r}; known: {', '.join(ROUNDING.words)}")
    made: dict[str, Number] = {"op": "mean pool", "rounding": rounding}
    sums: dict[str, Number] = {"program": specs.mean(even=False).name, "most_pixels": INT32_MAX // 511}
    if source == out and source.operand.scale != 1:
        return {**made, **sums, "factor": 1, "summand": 0, "divisor": 1, "zero_point": 0}
    require_whole_steps(out)
    ratio, offset = source.exact_scale / out.exact_scale, source.operand.offset - source.zero_point
    factor, summand = ratio.numerator * source.operand.scale, ratio.numerator * offset
    zero = out.zero_point - out.operand.offset
    made |= {"factor": factor, "summand": summand, "divisor": ratio.denominator, "zero_point": zero}
    if factor == ratio.denominator and offset + zero == 0:
        return made | sums
    largest = 2 * (255 * factor + abs(summand)) + 3 * ratio.denominator
    if largest > _INT64_MAX:
        raise SpecError(f"scales {source.scale!r} and {out.scale!r} are too far apart")
    return made | {"most_pixels": min(_INT64_MAX // largest, INT32_MAX // 511)}


def _codes(n: Numbers, sums: NDArray[Any], pixels: Any, last: int) -> NDArray[np.uint8]:
    """The codes of sums of so many pixels, Python's integers."""
    top, bottom = sums * int(n["factor"]) + pixels * int(n["summand"]), pixels * int(n["divisor"])
    made = _quotient(str(n["rounding"]), top, bottom) + int(n["zero_point"])
    return np.asarray(np.clip(made, 0, last), np.uint8)


def _quotient(rounding: str, top: NDArray[Any], bottom: NDArray[Any]) -> NDArray[Any]:
    """Quotients of Python's integers, made whole."""
    twice, whole = (top, bottom) if rounding == "down" else (2 * top + bottom, 2 * bottom)
    quotient = twice // whole
    tied = (twice % whole == 0) & (quotient % 2 != 0) if rounding == "even" else 0
    made: NDArray[Any] = quotient - tied
    return made

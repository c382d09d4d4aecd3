"""Pooling: the greatest code, or the mean, of a window or of an image."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.glue_abi import ROUNDING
from bitsynth.emit.runtime_abi import Number
from bitsynth.errors import SpecError
from bitsynth.layers.epilogues import Requantize
from bitsynth.layers.epilogues.checks import broadcast_to_channels
from bitsynth.layers.geometry import Geometry, Pair, edges, pair
from bitsynth.layers.glue.base import Activations, Glue, Numbers, codes_of, first_given, require_channels
from bitsynth.layers.glue.quantization import Quantization, as_quantization, require_whole_steps
from bitsynth.spec import glue as specs
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import INT32_MAX, Encoding, MatmulOperand, is_one_of


class WindowGlue(Glue):
    """The base class of pooling by a window."""

    geometry: Geometry

    def out_size(self, height: int, width: int) -> tuple[int, int]:
        return self.geometry.output(height, width)

    def _example_size(self) -> tuple[int, int]:
        (high, wide), (down, right) = self.geometry.reach, self.geometry.stride
        return high + 2 * down, wide + 2 * right

    def _taps(self, x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return what each tap of each window reads, (taps, N, OH, OW, C) int64, and whether it lies in the image."""
        g, (_, height, width, _) = self.geometry, x.shape
        (oh, ow), read, inside = self.out_size(height, width), [], []
        for ky in range(g.kernel[0]):
            for kx in range(g.kernel[1]):
                y = np.arange(oh) * g.stride[0] + ky * g.dilation[0] - g.padding[0]
                z = np.arange(ow) * g.stride[1] + kx * g.dilation[1] - g.padding[1]
                ok = ((y >= 0) & (y < height))[:, None] & ((z >= 0) & (z < width))
                read.append(x[:, y.clip(0, height - 1)][:, :, z.clip(0, width - 1)].astype(np.int64))
                inside.append(np.broadcast_to(ok[None, :, :, None], read[-1].shape))
        return np.stack(read), np.stack(inside)


def window_of(channels: int, window: Pair, stride: Pair | None, padding: Any, dilation: Pair) -> Geometry:
    """Return the window; raise SpecError for padding as wide as it reaches."""
    require_channels(channels)
    size = pair("window", window, 1)
    geometry = Geometry(
        *(channels, channels, 1),
        kernel=size,
        stride=size if stride is None else pair("stride", stride, 1),
        padding=edges(padding),
        dilation=pair("dilation", dilation, 1),
    )
    if any(pad >= reach for pad, reach in zip(geometry.padding, geometry.reach * 2, strict=True)):
        raise SpecError(f"padding {geometry.padding} must be less than the window reaches over, {geometry.reach}")
    return geometry


class MaxPool2d(WindowGlue):
    """The greatest code of a window, a channel at a time; padding never is.

    Packed words are compared as they are, a plane at a time. A window that holds padding alone gives code 0.

    Args:
        channels: Channels of a pixel.
        bits: Bits of a code, 1 to 8, or a quantization.
        window: Pixels of the window, one number or (height, width).
        stride: Pixels between windows: one number, or (height, width); the window's if None.
        padding: Pixels of padding: one number, (height, width) or (top, left, bottom, right); fewer than a window
            reaches over.
        dilation: Pixels between taps, one number or (height, width).
        encoding: The values that codes stand for, as of `Conv2d`.
        layout: "NHWC" or "packed".
        out_layout: The layout of the results; `layout` if None.
        **options: `isa` and `threads`, as of `Conv2d`.

    Raises:
        SpecError: The arguments do not fit together.
    """

    def __init__(
        self,
        channels: int,
        bits: int | Quantization,
        window: Pair,
        *,
        stride: Pair | None = None,
        padding: Any = 0,
        dilation: Pair = 1,
        encoding: str = "unsigned",
        layout: str = Layout.NHWC,
        out_layout: str | None = None,
        **options: Any,
    ) -> None:
        source = codes_of(channels, bits, encoding, layout)
        output = codes_of(channels, bits, encoding, first_given(out_layout, layout))
        self.geometry = window_of(channels, window, stride, padding, dilation)
        words = layout == output.layout == Layout.PACKED
        numbers: Numbers = {"op": "max pool", "words": int(words), **self.geometry.window()}
        super().__init__([source], output, numbers, **options)

    def meaning(self, *codes: NDArray[Any]) -> NDArray[Any]:
        read, inside = self._taps(codes[0])
        return np.asarray(np.where(inside, read, 0).max(axis=0), np.uint8)


_INT64_MAX = 2**63 - 1
_MAX_SUMS = 1 << 14
"""The limit of sums of a window whose codes are looked up in a table."""
_MAX_PIXELS = INT32_MAX // 511
_SCALED = specs.average().name


class AvgPool2d(WindowGlue):
    """The mean of a window, rounded to a code once: from exact sums, half to even, half up or down.

    With quantizations q and out, of the sum of a window's values over n pixels, padding not among them:
    round((sum - n * q.zero_point) * q.scale / (n * out.scale)) + out.zero_point, clamped to a code, where scales are
    the float32 numbers they are, and the quotient is computed in exact numbers. `Quantization(bits)` alone gives the
    mean of the codes. A window that holds padding alone has the sum of one pixel of code 0.

    With a `Requantize` as out: what that makes of the sum of a window's values less q.zero_point, whatever n is. With
    "int32": that sum.

    Args:
        channels: Channels of a pixel.
        quantization: The codes that are read: a quantization, or bits of codes whose scale is 1.
        window: Pixels of the window, one number or (height, width).
        out: The codes that are given, as `quantization` if None; or a `Requantize` of sums, with one multiplier, whose
            signed codes are of that encoding; or "int32" for sums.
        stride: Pixels between windows: one number, or (height, width); the window's if None.
        padding: Pixels of padding, as of `MaxPool2d`.
        rounding: "even", "up" or "down": how halves are rounded, or that everything is rounded down. A `Requantize` has
            one of its own.
        layout: "NHWC" or "packed".
        out_layout: The layout of the results; `layout` if None.
        **options: `isa` and `threads`, as of `Conv2d`.

    Raises:
        SpecError: The arguments do not fit together.
    """

    def __init__(
        self,
        channels: int,
        quantization: Quantization | int,
        window: Pair,
        out: Quantization | Requantize | int | str | None = None,
        *,
        stride: Pair | None = None,
        padding: Any = 0,
        rounding: str = "even",
        layout: str = Layout.NHWC,
        out_layout: str | None = None,
        **options: Any,
    ) -> None:
        quantization = as_quantization(quantization, "quantization")
        self.geometry = window_of(channels, window, stride, padding, 1)
        high, wide = self.geometry.kernel
        output, of_sums = _finish_sums(quantization, out, rounding)
        numbers = {**of_sums, **self.geometry.window()}
        if high * wide > int(numbers["most_pixels"]):
            raise SpecError(
                f"a window of {high * wide:,} pixels is more than sums can take: {numbers['most_pixels']:,}"
            )
        source = Activations(channels, quantization.operand, layout)
        self._set_mean(source, _output_of(channels, output, out_layout, layout), numbers, options)

    def _set_mean(
        self, source: Activations, output: Activations, numbers: dict[str, Number], options: dict[str, Any]
    ) -> None:
        """Make the layer of these `numbers`; the codes of all sums of a whole window, if they are few, are a table."""
        pixels = int(numbers.get("kernel_h", 0)) * int(numbers.get("kernel_w", 0))
        few = 0 < pixels * source.last < _MAX_SUMS and numbers.get("program") == _SCALED
        sums = np.arange(pixels * source.last + 1).astype(object)
        arrays = {"tables": _codes(numbers, sums, pixels)} if few else {}
        super().__init__([source], output, numbers, arrays, **options)

    def meaning(self, *codes: NDArray[Any]) -> NDArray[Any]:
        read, inside = self._taps(codes[0])
        pixels = np.maximum(inside.sum(axis=0), 1).astype(object)
        sums = np.where(inside, read, 0).sum(axis=0).astype(object)
        return _codes(self.constants.numbers, sums, pixels) if self.output.operand else self._values(sums, pixels)

    def _values(self, sums: NDArray[Any], pixels: Any) -> NDArray[np.int32]:
        numbers = self.constants.numbers
        return np.asarray(sums * int(numbers["factor"]) + pixels * int(numbers["summand"]), np.int32)


class GlobalAvgPool2d(AvgPool2d):
    """The mean of each channel of an image, (N, 1, 1, C): `AvgPool2d` with a window as large as the image.

    Args:
        channels: Channels of a pixel.
        quantization: The codes that are read.
        out: The codes that are given, as `quantization` if None; or a `Requantize` of sums, or "int32".
        rounding: "even", "up" or "down", as of `AvgPool2d`.
        layout: "NHWC" or "packed".
        out_layout: The layout of the results; `layout` if None.
        **options: `isa` and `threads`, as of `Conv2d`.

    Raises:
        SpecError: The arguments do not fit together.
    """

    def __init__(
        self,
        channels: int,
        quantization: Quantization | int,
        out: Quantization | Requantize | int | str | None = None,
        *,
        rounding: str = "even",
        layout: str = Layout.NHWC,
        out_layout: str | None = None,
        **options: Any,
    ) -> None:
        quantization = as_quantization(quantization, "quantization")
        output, numbers = _finish_sums(quantization, out, rounding)
        numbers |= {"whole_image": 1, "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1}
        source = Activations(channels, quantization.operand, layout)
        self._set_mean(source, _output_of(channels, output, out_layout, layout), numbers, options)

    def out_size(self, height: int, width: int) -> tuple[int, int]:
        if not height or not width:
            raise SpecError(f"an image of {height} x {width} has no mean")
        return 1, 1

    def _example_size(self) -> tuple[int, int]:
        return 5, 6

    def _taps(self, x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        read = x.reshape(len(x), -1, 1, 1, x.shape[-1]).swapaxes(0, 1).astype(np.int64)
        return read, np.ones(read.shape, bool)


def _output_of(channels: int, output: MatmulOperand | None, out_layout: str | None, layout: str) -> Activations:
    """Return the output: codes, or int32, which are unpacked by default."""
    usual = layout if output else Layout.NHWC
    return Activations(channels, output, first_given(out_layout, usual), "int32")


def _finish_sums(
    source: Quantization, out: Quantization | Requantize | int | str | None, rounding: str
) -> tuple[MatmulOperand | None, dict[str, Number]]:
    """Return the codes that sums of `source` become, None if they stay sums, and the numbers that say how."""
    if isinstance(out, str):
        return None, _sum_numbers(source, out)
    if isinstance(out, Requantize):
        return _requantize_numbers(source, out)
    out = source if out is None else as_quantization(out, "out")
    return out.operand, {"out_last": out.operand.codes[-1], **_mean(source, out, rounding)}


def _mean(source: Quantization, out: Quantization, rounding: str) -> dict[str, Number]:
    """Return the numbers of a mean, with the faster program if codes of input and output are the same numbers."""
    if not is_one_of(rounding, ROUNDING.words):
        raise SpecError(f"unknown rounding {rounding!r}; known: {', '.join(ROUNDING.words)}")
    numbers: dict[str, Number] = {"op": "mean pool", "rounding": rounding, "program": specs.mean(even=False).name}
    numbers["most_pixels"] = _MAX_PIXELS
    if source == out and source.operand.scale != 1:
        return {**numbers, "factor": 1, "summand": 0, "divisor": 1, "zero_point": 0}
    require_whole_steps(out)
    ratio, zero = source.exact_scale / out.exact_scale, out.zero_point - out.operand.offset
    numbers |= {**_of_values(source, ratio.numerator), "divisor": ratio.denominator, "zero_point": zero}
    if numbers["factor"] == ratio.denominator and int(numbers["summand"]) + zero * ratio.denominator == 0:
        return numbers
    most = _INT64_MAX // (_greatest(numbers) + _greatest_addend(numbers))
    if not most:
        raise SpecError(f"scales {source.scale!r} and {out.scale!r} are too far apart")
    return numbers | {"program": _SCALED, "most_pixels": min(most, _MAX_PIXELS)}


def _sum_numbers(source: Quantization, out: str) -> dict[str, Number]:
    """Return the numbers of a sum that is the result."""
    if out != "int32":
        raise SpecError(f"out must be a Quantization, a number of bits, a Requantize or 'int32', not {out!r}")
    numbers: dict[str, Number] = {"op": "mean pool", **_of_values(source, 1)}
    return numbers | {"most_pixels": min(INT32_MAX // (_greatest(numbers) // 2), _MAX_PIXELS)}


def _requantize_numbers(source: Quantization, out: Requantize) -> tuple[MatmulOperand, dict[str, Number]]:
    """Return the numbers of a requantized sum."""
    multiplier = int(broadcast_to_channels("the multiplier of sums", out.multiplier, 1, np.int32)[0])
    if out.residual is not None:
        raise SpecError("sums of a window have no residual")
    operand = MatmulOperand(out.bits, Encoding.SIGNED if out.signed else Encoding.UNSIGNED)
    first, last = (code - operand.offset for code in out.codes)
    numbers: dict[str, Number] = {"op": "mean pool", "rounding": out.rounding, "program": _SCALED, "whole_sums": 1}
    numbers |= {"out_first": first, "out_last": last, **_of_values(source, multiplier)}
    numbers |= {"divisor": 1 << out.shift, "zero_point": out.zero_point - operand.offset}
    most = (_INT64_MAX - _greatest_addend(numbers)) // max(1, _greatest(numbers))
    if most < 1:
        raise SpecError(f"a shift by {out.shift} leaves no room for sums: give a smaller one")
    return operand, numbers | {"most_pixels": min(most, _MAX_PIXELS)}


def _of_values(source: Quantization, factor: int) -> dict[str, Number]:
    """Return the factors of a sum of codes and of the pixels, if values have `factor`."""
    return {"factor": factor * source.operand.scale, "summand": factor * (source.operand.offset - source.zero_point)}


def _greatest(n: Numbers) -> int:
    """Return the most that a pixel adds to twice the numerator."""
    return 2 * (255 * abs(int(n["factor"])) + abs(int(n["summand"])))


def _greatest_addend(n: Numbers) -> int:
    """Return the most that a divisor adds to twice the numerator, or to itself."""
    return (3 + 2 * abs(int(n["zero_point"]))) * int(n["divisor"])


def _codes(n: Numbers, sums: NDArray[Any], pixels: Any) -> NDArray[np.uint8]:
    """Return the codes of sums over the pixels, as Python's integers."""
    divisors = 1 if n.get("whole_sums") else pixels
    top, bottom = sums * int(n["factor"]) + pixels * int(n["summand"]), divisors * int(n["divisor"])
    codes = _quotient(str(n["rounding"]), top, bottom) + int(n["zero_point"])
    return np.asarray(np.clip(codes, int(n.get("out_first", 0)), int(n["out_last"])), np.uint8)


def _quotient(rounding: str, top: NDArray[Any], bottom: Any) -> NDArray[Any]:
    """Return rounded quotients of Python's integers."""
    twice, whole = (top, bottom) if rounding == "down" else (2 * top + bottom, 2 * bottom)
    quotient = twice // whole
    tied = (twice % whole == 0) & (quotient % 2 != 0) if rounding == "even" else 0
    rounded: NDArray[Any] = quotient - tied
    return rounded

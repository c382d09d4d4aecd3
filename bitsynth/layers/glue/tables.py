"""Tables: any function of a code, of a pair of codes, such as their sum, or of the sum of a window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.emit.runtime_abi import Number
from bitsynth.errors import SpecError
from bitsynth.layers.geometry import Pair
from bitsynth.layers.glue.base import Activations, Glue, Numbers, codes_of, first_given
from bitsynth.layers.glue.floats import to_codes
from bitsynth.layers.glue.pools import WindowGlue, window_of
from bitsynth.layers.glue.programs import TABLE_BYTES, instruction_set, programs, repeat_table
from bitsynth.layers.glue.quantization import (
    Quantization,
    as_codes,
    as_quantization,
    require_whole_steps,
    round_to_float32,
)
from bitsynth.layers.glue.weighted import Lowered, find_weighted_sums
from bitsynth.spec import glue as specs
from bitsynth.spec.glue import MAX_SUMS
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import MAX_BITS, plain_array


def codes_table(table: ArrayLike, shapes: Sequence[tuple[int, ...]], last: int) -> NDArray[np.uint8]:
    """Return codes from 0 to `last`; raise SpecError for other entries, or a table that has none of `shapes`."""
    given = plain_array(table, "table")
    _require(given, "iub", "integers", shapes)
    if (given < 0).any() or (given > last).any():
        raise SpecError(f"entries of the table are codes from 0 to {last}; some are not")
    return given.astype(np.uint8)


def floats_table(table: ArrayLike, shapes: Sequence[tuple[int, ...]]) -> NDArray[np.float32]:
    """Return a table rounded to float32; raise SpecError for numbers beyond it, or another shape than `shapes`."""
    given = plain_array(table, "table")
    _require(given, "iuf", "numbers", shapes)
    with np.errstate(over="ignore"):
        floats = given.astype(np.float32)
    if (np.isinf(floats) & np.isfinite(given)).any():
        raise SpecError("the table has numbers that float32 does not hold")
    return floats


def _require(given: NDArray[Any], kinds: str, wanted: str, shapes: Sequence[tuple[int, ...]]) -> None:
    if given.dtype.kind not in kinds or given.shape not in shapes:
        allowed = " or ".join(map(str, dict.fromkeys(shapes)))
        raise SpecError(f"table must be {wanted} of shape {allowed}, not {given.dtype} {given.shape}")


_OF_CHANNELS, _OF_FLOATS = specs.lookup_channels(), specs.lookup_channels(floats=True)


class Lookup(Glue):
    """The entry of a table for each code: any function of a code, a table for all channels or one a channel.

    Args:
        channels: Channels of a pixel.
        table: Codes that are given, integers (codes,) or (channels, codes): an entry for each of the 2**bits codes,
            or 3 for ternary ones.
        bits: Bits of a code that is read, 1 to 8.
        out_bits: Bits of a code that is given; as `bits` if None.
        encoding: The values that codes stand for, as of `Conv2d`.
        out_encoding: The encoding of the results; `encoding` if None.
        layout: "NHWC" or "packed".
        out_layout: The layout of the results; `layout` if None.
        **options: `isa` and `threads`, as of `Conv2d`.

    Raises:
        SpecError: The table has not an entry for each code, or entries that are no codes.
    """

    def __init__(
        self,
        channels: int,
        table: ArrayLike,
        bits: int | Quantization,
        *,
        out_bits: int | None = None,
        encoding: str = "unsigned",
        out_encoding: str | None = None,
        layout: str = Layout.NHWC,
        out_layout: str | None = None,
        **options: Any,
    ) -> None:
        source = codes_of(channels, bits, encoding, layout)
        output = codes_of(
            channels, first_given(out_bits, bits), first_given(out_encoding, encoding), first_given(out_layout, layout)
        )
        self.table = codes_table(table, _shapes(source), output.last).reshape(-1, source.last + 1)
        tables = repeat_table(self.table, source.bits)
        numbers: dict[str, Number] = {"op": "lookup", "table_count": len(tables)}
        numbers |= {"program": _OF_CHANNELS.name} if len(tables) > 1 else {}
        super().__init__([source], output, numbers, {"tables": tables}, **options)

    def meaning(self, *codes: NDArray[Any]) -> NDArray[Any]:
        return _look_up(self.table, codes[0])


class FloatLookup(Glue):
    """The float32 number of a table for each code: any real function of a code, as `Dequantize` gives one of them.

    Args:
        channels: Channels of a pixel.
        table: Numbers (codes,) or (channels, codes), rounded to float32: infinite ones and NaN are, too.
        bits: Bits of a code, 1 to 8, or a quantization.
        encoding: The values that codes stand for, as of `Conv2d`.
        layout: "NHWC" or "packed", of the codes.
        **options: `isa` and `threads`, as of `Conv2d`.

    Raises:
        SpecError: The table has not a number for each code, or a number that float32 does not hold.
    """

    def __init__(
        self,
        channels: int,
        table: ArrayLike,
        bits: int | Quantization,
        *,
        encoding: str = "unsigned",
        layout: str = Layout.NHWC,
        **options: Any,
    ) -> None:
        source, output = codes_of(channels, bits, encoding, layout), Activations(channels, None)
        self.table = floats_table(table, _shapes(source)).reshape(-1, source.last + 1)
        tables = np.zeros((len(self.table), TABLE_BYTES), np.float32)
        tables[:, : source.last + 1] = self.table
        numbers: dict[str, Number] = {"op": "lookup", "table_count": len(tables), "program": _OF_FLOATS.name}
        super().__init__([source], output, numbers, {"tables": tables.view(np.uint8)}, **options)

    def meaning(self, *codes: NDArray[Any]) -> NDArray[Any]:
        return _look_up(self.table, codes[0])


def _shapes(source: Activations) -> list[tuple[int, ...]]:
    """Return the shapes of tables for codes of `source`."""
    entries = source.last + 1
    return [(entries,), (1, entries), (source.channels, entries)]


def _look_up(table: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
    """Return the entries of tables (1 or channels, codes) for codes (..., channels)."""
    entries: NDArray[Any] = table[0 if len(table) == 1 else np.arange(x.shape[-1]), x]
    return entries


class QuantizeImage(Lookup):
    """Codes of an image of bytes: quantized (byte / unit - mean) / std, in float32 and in this order.

    The quotient is then quantized as `Quantize` does. Each channel has a table of 256 entries, which that formula made,
    so that the result is exactly its.

    Args:
        mean: A number a channel.
        std: A number above 0 a channel.
        out: The codes that are given.
        unit: The byte that stands for 1: 255, or 1 for means of bytes.
        layout: "NHWC" or "packed", of results.
        **options: `isa` and `threads`, as of `Conv2d`.

    Raises:
        SpecError: Numbers are not finite or not as many as channels, or a std or the unit is not above 0.
    """

    def __init__(
        self,
        mean: ArrayLike,
        std: ArrayLike,
        out: Quantization | int,
        *,
        unit: float = 255.0,
        layout: str = Layout.NHWC,
        **options: Any,
    ) -> None:
        out = as_quantization(out, "out")
        means, stds = per_channel(mean, "mean"), per_channel(std, "std")
        whole = np.float32(round_to_float32(unit, "unit"))
        if means.shape != stds.shape or means.ndim != 1 or not means.size:
            raise SpecError(f"want a mean and a std a channel, not {means.shape} and {stds.shape}")
        if (stds <= 0).any() or whole <= 0:
            raise SpecError("std and unit must be above 0")
        x = (np.arange(TABLE_BYTES, dtype=np.float32) / whole - means[:, None]) / stds[:, None]
        super().__init__(
            means.size,
            to_codes(x, np.float32(out.scale), out),
            8,
            out_bits=out.bits,
            out_encoding=out.encoding,
            out_layout=layout,
            **options,
        )


def per_channel(values: ArrayLike, name: str) -> NDArray[np.float32]:
    """Return finite float32 numbers, one a channel; raise SpecError for others."""
    given = plain_array(values, name)
    if given.dtype.kind not in "iuf":
        raise SpecError(f"{name} must be numbers, not {given.dtype}")
    with np.errstate(over="ignore"):
        floats = given.astype(np.float32)
    if not np.isfinite(floats).all():
        raise SpecError(f"{name} has numbers that float32 does not hold")
    return floats


_FEW_BITS, _MAX_BITS = 2, 4
"""Of the codes of pairs that programs look up."""


class PairLookup(Glue):
    """The entry of a table for each pair of two inputs' codes, a pixel and channel at a time: any function of them.

    C looks up pairs of few bits by a program. For wider pairs it computes (a * f + b * g + k) >> n, if numbers near the
    scales' ratios give the table's entry for every pair of codes; else it looks the pair up in memory: ONNX Runtime's
    QLinearAdd is such a sum for most scales.

    Args:
        channels: Channels of a pixel.
        table: Codes that are given, integers (codes of the first, codes of the second): 3 for a ternary input, one less
            than 2**bits for a narrow one.
        first: The codes of the first input: a quantization, or bits of codes whose scale is 1.
        second: The codes of the second input: a quantization or bits.
        out: The codes of results: a quantization or bits.
        reachable: The number of distinct codes that each input can take, codes 0 .. n - 1; None for all. Entries of
            other codes may get any value.
        layout: "NHWC" or "packed".
        out_layout: The layout of the results; `layout` if None.
        **options: `isa` and `threads`, as of `Conv2d`.

    Attributes:
        pairs: The table, in uint8.

    Raises:
        SpecError: The table has not an entry for each pair, or entries that are no codes.
    """

    def __init__(
        self,
        channels: int,
        table: ArrayLike,
        first: Quantization | int,
        second: Quantization | int,
        out: Quantization | int,
        *,
        reachable: tuple[int, int] | None = None,
        layout: str = Layout.NHWC,
        out_layout: str | None = None,
        **options: Any,
    ) -> None:
        first, second, out = (
            as_quantization(x, name) for x, name in ((first, "first"), (second, "second"), (out, "out"))
        )
        inputs = [Activations(channels, x.operand, layout) for x in (first, second)]
        output = Activations(channels, out.operand, first_given(out_layout, layout))
        given = codes_table(table, [(inputs[0].last + 1, inputs[1].last + 1)], output.last)
        (numbers, arrays), self.pairs = _lower_pairs(
            first, second, out, given, reachable, instruction_set(options.get("isa", "auto"))
        )
        super().__init__(inputs, output, {"op": "add", **numbers}, arrays, **options)

    def meaning(self, *codes: NDArray[Any]) -> NDArray[Any]:
        results: NDArray[np.uint8] = self.pairs[codes[0], codes[1]]
        return results


def _lower_pairs(
    first: Quantization,
    second: Quantization,
    out: Quantization,
    pairs: NDArray[np.uint8],
    reachable: tuple[int, int] | None,
    isa: str,
) -> tuple[Lowered, NDArray[np.uint8]]:
    """Return the numbers and arrays of a program for `pairs`: a proved table, else a weighted sum, else a table.

    The table that the program computes is returned too: a sum may differ for codes that are not reachable.
    """
    bits = max(_FEW_BITS, first.bits, second.bits)
    if bits <= _MAX_BITS and specs.pairs(bits) in (p.spec for p in programs(isa)):
        return _pair_table_spec(pairs, bits), pairs
    some = pairs[: reachable[0], : reachable[1]] if reachable else pairs
    for wanted in [pairs] if some.shape == pairs.shape else [pairs, some]:
        if weighted := next(find_weighted_sums(first, second, out, wanted), None):
            return weighted
    return (_pair_table_spec(pairs, bits) if bits <= _MAX_BITS else _of_all(pairs)), pairs


def _pair_table_spec(pairs: NDArray[np.uint8], bits: int) -> Lowered:
    """Return the program that looks up pairs of codes of at most `bits` bits."""
    square = np.zeros((1 << bits, 1 << bits), np.uint8)
    square[: pairs.shape[0], : pairs.shape[1]] = pairs
    tables = repeat_table(square.reshape(-1), 2 * bits)
    return {"program": specs.pairs(bits).name}, {"tables": tables}


def _of_all(pairs: NDArray[np.uint8]) -> Lowered:
    """Return a table of all pairs, with the pairs of each first code together."""
    table = np.zeros((len(pairs), TABLE_BYTES), np.uint8)
    table[:, : pairs.shape[1]] = pairs
    return {"program": specs.pairs(MAX_BITS).name}, {"tables": table}


class SumLookup(WindowGlue):
    """The entry of a table for the sum of a window's codes, a channel at a time: any function of it.

    A window lies in the image: there is no padding. The sum itself is such a function, and so is every mean.

    Args:
        channels: Channels of a pixel.
        table: Codes that are given, integers (sums,): an entry for each sum from 0 to the sum of the greatest codes.
        first: The codes that are read: a quantization, or bits of codes whose scale is 1.
        out: The codes of results: a quantization or bits.
        window: Pixels of the window, one number or (height, width).
        stride: Pixels between windows: one number, or (height, width); the window's if None.
        dilation: Pixels between taps: one number, or (height, width).
        layout: "NHWC" or "packed".
        out_layout: The layout of the results; `layout` if None.
        **options: `isa` and `threads`, as of `Conv2d`.

    Raises:
        SpecError: The table has not an entry for each sum, or entries that are no codes, or there are too many sums.
    """

    def __init__(
        self,
        channels: int,
        table: ArrayLike,
        first: Quantization | int,
        out: Quantization | int,
        window: Pair,
        *,
        stride: Pair | None = None,
        dilation: Pair = 1,
        layout: str = Layout.NHWC,
        out_layout: str | None = None,
        **options: Any,
    ) -> None:
        source = Activations(channels, as_quantization(first, "first").operand, layout)
        output = Activations(channels, as_quantization(out, "out").operand, first_given(out_layout, layout))
        self.geometry = window_of(channels, window, stride, 0, dilation)
        pixels = self.geometry.kernel[0] * self.geometry.kernel[1]
        if pixels * source.last >= MAX_SUMS:
            raise SpecError(f"a window has {pixels * source.last + 1:,} sums; a table has at most {MAX_SUMS:,}")
        self.table = codes_table(table, [(pixels * source.last + 1,)], output.last)
        numbers: Numbers = {"op": "mean pool", "divisor": 1, "most_pixels": pixels, **self.geometry.window()}
        super().__init__([source], output, numbers, {"tables": self.table}, **options)

    def meaning(self, *codes: NDArray[Any]) -> NDArray[Any]:
        read, _ = self._taps(codes[0])
        results: NDArray[np.uint8] = self.table[read.sum(axis=0)]
        return results


class Add(PairLookup):
    """Sums of two inputs, a pixel and channel at a time, rounded to a code once.

    Codes a and b become round(((value_a - zero_point_a) * scale_a + (value_b - zero_point_b) * scale_b) / out.scale)
    + out.zero_point, clamped: the quotient is computed in exact numbers (scales are float32) and rounded half to even.
    The formula is computed for every pair of codes, and C gives what that table has, as of a `PairLookup`.

    Args:
        channels: Channels of a pixel.
        first: The codes of the first input: a quantization, or bits of codes whose scale is 1.
        second: The codes of the second input: a quantization or bits.
        out: The codes of results: a quantization or bits.
        layout: "NHWC" or "packed".
        out_layout: The layout of the results; `layout` if None.
        **options: `isa` and `threads`, as of `Conv2d`.

    Attributes:
        pairs: The code that is given for each pair of codes, (codes of the first, codes of the second).

    Raises:
        SpecError: The arguments do not fit together.
    """

    def __init__(
        self,
        channels: int,
        first: Quantization | int,
        second: Quantization | int,
        out: Quantization | int,
        *,
        layout: str = Layout.NHWC,
        out_layout: str | None = None,
        **options: Any,
    ) -> None:
        first, second = as_quantization(first, "first"), as_quantization(second, "second")
        require_whole_steps(out := as_quantization(out, "out"))
        table = _pairs(first, second, out)
        super().__init__(channels, table, first, second, out, layout=layout, out_layout=out_layout, **options)


def _pairs(first: Quantization, second: Quantization, out: Quantization) -> NDArray[np.uint8]:
    """Return the code of every pair, computed in Python's integers."""
    ratios = [x.exact_scale / out.exact_scale for x in (first, second)]
    divisor = ratios[0].denominator * ratios[1].denominator
    a, b = (x.steps().astype(object) * int(r * divisor) for x, r in zip((first, second), ratios, strict=True))
    return as_codes(a[:, None] + b, divisor, out)

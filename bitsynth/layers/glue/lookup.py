"""Any function of a code, by a table: codes, or floats; images of bytes as codes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.emit.runtime_abi import Number
from bitsynth.errors import SpecError
from bitsynth.layers.glue.activations import Activations, codes_of, either
from bitsynth.layers.glue.base import Glue
from bitsynth.layers.glue.floats import to_codes
from bitsynth.layers.glue.programs import ENTRIES, repeated
from bitsynth.layers.glue.quantization import Quantization, quantization, single
from bitsynth.layers.glue.table import codes_table, floats_table
from bitsynth.spec import glue as specs
from bitsynth.spec.matmul import plain_array

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
        out_encoding: Likewise, of results; as `encoding` if None.
        layout: "NHWC" or "packed".
        out_layout: Likewise, of results; as `layout` if None.
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
        layout: str = "NHWC",
        out_layout: str | None = None,
        **options: Any,
    ) -> None:
        source = codes_of(channels, bits, encoding, layout)
        output = codes_of(channels, either(out_bits, bits), either(out_encoding, encoding), either(out_layout, layout))
        self.table = codes_table(table, _shapes(source), output.last).reshape(-1, source.last + 1)
        tables = repeated(self.table, source.bits)
        numbers: dict[str, Number] = {"op": "lookup", "table_count": len(tables)}
        numbers |= {"program": _OF_CHANNELS.name} if len(tables) > 1 else {}
        super().__init__([source], output, numbers, {"tables": tables}, **options)

    def meaning(self, *codes: NDArray[Any]) -> NDArray[Any]:
        return _looked_up(self.table, codes[0])


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
        layout: str = "NHWC",
        **options: Any,
    ) -> None:
        source, output = codes_of(channels, bits, encoding, layout), Activations(channels, None)
        self.table = floats_table(table, _shapes(source)).reshape(-1, source.last + 1)
        tables = np.zeros((len(self.table), ENTRIES), np.float32)
        tables[:, : source.last + 1] = self.table
        numbers: dict[str, Number] = {"op": "lookup", "table_count": len(tables), "program": _OF_FLOATS.name}
        super().__init__([source], output, numbers, {"tables": tables.view(np.uint8)}, **options)

    def meaning(self, *codes: NDArray[Any]) -> NDArray[Any]:
        return _looked_up(self.table, codes[0])


def _shapes(source: Activations) -> list[tuple[int, ...]]:
    """Of the tables for codes of `source`."""
    entries = source.last + 1
    return [(entries,), (1, entries), (source.channels, entries)]


def _looked_up(table: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
    """Entries for codes (..., channels) in tables (1 or channels, codes)."""
    made: NDArray[Any] = table[0 if len(table) == 1 else np.arange(x.shape[-1]), x]
    return made


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
        layout: str = "NHWC",
        **options: Any,
    ) -> None:
        out = quantization(out, "out")
        means, stds = per_channel(mean, "mean"), per_channel(std, "std")
        whole = np.float32(single(unit, "unit"))
        if means.shape != stds.shape or means.ndim != 1 or not means.size:
            raise SpecError(f"want a mean and a std a channel, not {means.shape} and {stds.shape}")
        if (stds <= 0).any() or whole <= 0:
            raise SpecError("std and unit must be above 0")
        x = (np.arange(ENTRIES, dtype=np.float32) / whole - means[:, None]) / stds[:, None]
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
    """Finite float32 numbers; SpecError for others."""
    given = plain_array(values, name)
    if given.dtype.kind not in "iuf":
        raise SpecError(f"{name} must be numbers, not {given.dtype}")
    with np.errstate(over="ignore"):
        made = given.astype(np.float32)
    if not np.isfinite(made).all():
        raise SpecError(f"{name} has numbers that float32 does not hold")
    return made

"""Any function of the sum of a window, by a table."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.errors import SpecError
from bitsynth.layers.geometry import Pair
from bitsynth.layers.glue.activations import Activations, either
from bitsynth.layers.glue.base import Numbers
from bitsynth.layers.glue.quantization import Quantization, quantization
from bitsynth.layers.glue.table import codes_table
from bitsynth.layers.glue.window import WindowGlue, window_of
from bitsynth.spec.glue import MOST_SUMS


class SumLookup(WindowGlue):
    """The entry of a table for the sum of a window's codes, a channel at a time: any function of it.

    A window lies in the image: there is no padding. The sum itself is such a function, and so is every mean.

    Args:
        channels: Channels of a pixel.
        table: Codes that are given, integers (sums,): an entry for each sum from 0 to that of the greatest codes.
        first: The codes that are read: a quantization, or bits of codes whose scale is 1.
        out: The codes that are given, likewise.
        window: Pixels of the window, one number or (height, width).
        stride: Pixels between windows, likewise; the window's if None.
        dilation: Pixels between taps, likewise.
        layout: "NHWC" or "packed".
        out_layout: Likewise, of results; as `layout` if None.
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
        layout: str = "NHWC",
        out_layout: str | None = None,
        **options: Any,
    ) -> None:
        source = Activations(channels, quantization(first, "first").operand, layout)
        output = Activations(channels, quantization(out, "out").operand, either(out_layout, layout))
        self.geometry = window_of(channels, window, stride, 0, dilation)
        pixels = self.geometry.kernel[0] * self.geometry.kernel[1]
        if pixels * source.last >= MOST_SUMS:
            raise SpecError(f"a window has {pixels * source.last + 1:,} sums; a table has at most {MOST_SUMS:,}")
        self.table = codes_table(table, [(pixels * source.last + 1,)], output.last)
        numbers: Numbers = {"op": "mean pool", "divisor": 1, "most_pixels": pixels, **self.geometry.window()}
        super().__init__([source], output, numbers, {"tables": self.table}, **options)

    def meaning(self, *codes: NDArray[Any]) -> NDArray[Any]:
        read, _ = self._taps(codes[0])
        made: NDArray[np.uint8] = self.table[read.sum(axis=0)]
        return made

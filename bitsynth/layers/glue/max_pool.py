"""The greatest code of a window."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.layers.geometry import Pair
from bitsynth.layers.glue.activations import codes_of, either
from bitsynth.layers.glue.base import Numbers
from bitsynth.layers.glue.quantization import Quantization
from bitsynth.layers.glue.window import WindowGlue, window_of


class MaxPool2d(WindowGlue):
    """The greatest code of a window, a channel at a time; padding never is.

    Packed words are compared as they are, a plane at a time. A window that holds padding alone gives code 0.

    Args:
        channels: Channels of a pixel.
        bits: Bits of a code, 1 to 8, or a quantization.
        window: Pixels of the window, one number or (height, width).
        stride: Pixels between windows, likewise; the window's if None.
        padding: Pixels of padding: one number, (height, width) or (top, left, bottom, right); fewer than a window
            reaches over.
        dilation: Pixels between taps, one number or (height, width).
        encoding: The values that codes stand for, as of `Conv2d`.
        layout: "NHWC" or "packed".
        out_layout: Likewise, of results; as `layout` if None.
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
        layout: str = "NHWC",
        out_layout: str | None = None,
        **options: Any,
    ) -> None:
        source = codes_of(channels, bits, encoding, layout)
        output = codes_of(channels, bits, encoding, either(out_layout, layout))
        self.geometry = window_of(channels, window, stride, padding, dilation)
        words = layout == output.layout == "packed"
        numbers: Numbers = {"op": "max pool", "words": int(words), **self.geometry.window()}
        super().__init__([source], output, numbers, **options)

    def meaning(self, *codes: NDArray[Any]) -> NDArray[Any]:
        read, inside = self._taps(codes[0])
        return np.asarray(np.where(inside, read, 0).max(axis=0), np.uint8)

"""Padding of images of codes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import SpecError
from bitsynth.layers.geometry import edges
from bitsynth.layers.glue.activations import codes_of
from bitsynth.layers.glue.base import Glue
from bitsynth.layers.glue.quantization import Quantization


class Pad2d(Glue):
    """Pixels of one code around an image, on codes or packed words.

    Args:
        channels: Channels of a pixel.
        bits: Bits of a code, 1 to 8, or a quantization.
        padding: Pixels at the edges: one number, (height, width) or (top, left, bottom, right).
        code: The code of padding.
        encoding: The values that codes stand for, as of `Conv2d`.
        layout: "NHWC" or "packed".
        **options: `isa` and `threads`, as of `Conv2d`.

    Raises:
        SpecError: The arguments do not fit together.
    """

    def __init__(
        self,
        channels: int,
        bits: int | Quantization,
        padding: Any,
        *,
        code: int = 0,
        encoding: str = "unsigned",
        layout: str = "NHWC",
        **options: Any,
    ) -> None:
        kind = codes_of(channels, bits, encoding, layout)
        if type(code) is not int or not 0 <= code <= kind.last:
            raise SpecError(f"code must be a whole number from 0 to {kind.last}, not {code!r}")
        self.padding, self.code = edges(padding), code
        sides = dict(zip(("pad_top", "pad_left", "pad_bottom", "pad_right"), self.padding, strict=True))
        fill = kind.laid(np.full((1, 1, 1, channels), code, np.uint8))
        super().__init__(
            [kind], kind, {"op": "pad", "words": int(layout == "packed"), **sides}, {"fill": fill}, **options
        )

    def out_size(self, height: int, width: int) -> tuple[int, int]:
        top, left, bottom, right = self.padding
        if not height or not width:
            raise SpecError(f"an image of {height} x {width} has nothing to pad")
        return height + top + bottom, width + left + right

    def meaning(self, *codes: NDArray[Any]) -> NDArray[Any]:
        top, left, bottom, right = self.padding
        return np.pad(codes[0], ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=self.code)

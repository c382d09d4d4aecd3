"""Images of codes in another size, by the nearest pixel."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import SpecError
from bitsynth.layers.geometry import Pair, pair
from bitsynth.layers.glue.activations import codes_of
from bitsynth.layers.glue.base import Glue, Numbers
from bitsynth.layers.glue.quantization import Quantization


class Resize(Glue):
    """Each pixel of the output shows the nearest one of the input, on codes or packed words.

    Of H lines for OH the line y shows floor(y * H / OH), or by centers floor((2 * y + 1) * H / (2 * OH)), in exact
    numbers; columns likewise. (ONNX: asymmetric and half_pixel; torch: nearest and nearest-exact.)

    Args:
        channels: Channels of a pixel.
        bits: Bits of a code, 1 to 8, or a quantization.
        scale: Times as many lines and columns, one number or (height, width); or
        size: (height, width) of the output.
        centers: Whether the nearest pixel is that of the output pixel's center.
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
        scale: Pair | None = None,
        *,
        size: tuple[int, int] | None = None,
        centers: bool = False,
        encoding: str = "unsigned",
        layout: str = "NHWC",
        **options: Any,
    ) -> None:
        if (scale is None) == (size is None):
            raise SpecError("a Resize has a scale or a size: give one of them")
        kind = codes_of(channels, bits, encoding, layout)
        self.scale = pair("scale", 1 if scale is None else scale, 1)
        self.size = None if size is None else pair("size", size, 1)
        if type(centers) is not bool:
            raise SpecError(f"centers must be True or False, not {centers!r}")
        self.centers = centers
        names = ("scale_h", "scale_w", "size_h", "size_w")
        sizes = dict(zip(names, (*self.scale, *(self.size or (0, 0))), strict=True))
        numbers: Numbers = {"op": "resize", "words": int(layout == "packed"), "centers": int(self.centers), **sizes}
        super().__init__([kind], kind, numbers, **options)

    def out_size(self, height: int, width: int) -> tuple[int, int]:
        if not height or not width:
            raise SpecError(f"an image of {height} x {width} has no nearest pixel")
        return self.size or (height * self.scale[0], width * self.scale[1])

    def meaning(self, *codes: NDArray[Any]) -> NDArray[Any]:
        (x,), (_, height, width, _) = codes, codes[0].shape
        sizes = zip((height, width), self.out_size(height, width), strict=True)
        rows, columns = ((2 * np.arange(out) + self.centers) * n // (2 * out) for n, out in sizes)
        return x[:, rows][:, :, columns]

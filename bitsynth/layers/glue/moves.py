"""Glue that moves codes: padding, resizing, blocks of pixels, and concatenation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.glue_abi import INPUTS
from bitsynth.errors import SpecError
from bitsynth.layers.geometry import Pair, edges, pair
from bitsynth.layers.glue.base import Activations, Glue, Numbers, codes_of, first_given
from bitsynth.layers.glue.programs import repeat_table
from bitsynth.layers.glue.quantization import Quantization, as_quantization, requantize_codes
from bitsynth.layers.packed_codes import WORD_CHANNELS
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import is_one_of


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
        layout: str = Layout.NHWC,
        **options: Any,
    ) -> None:
        kind = codes_of(channels, bits, encoding, layout)
        if type(code) is not int or not 0 <= code <= kind.last:
            raise SpecError(f"code must be a whole number from 0 to {kind.last}, not {code!r}")
        self.padding, self.code = edges(padding), code
        sides = dict(zip(("pad_top", "pad_left", "pad_bottom", "pad_right"), self.padding, strict=True))
        fill = kind.lay_out(np.full((1, 1, 1, channels), code, np.uint8))
        super().__init__(
            [kind], kind, {"op": "pad", "words": int(layout == Layout.PACKED), **sides}, {"fill": fill}, **options
        )

    def out_size(self, height: int, width: int) -> tuple[int, int]:
        top, left, bottom, right = self.padding
        if not height or not width:
            raise SpecError(f"an image of {height} x {width} has nothing to pad")
        return height + top + bottom, width + left + right

    def meaning(self, *codes: NDArray[Any]) -> NDArray[Any]:
        top, left, bottom, right = self.padding
        return np.pad(codes[0], ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=self.code)


class Resize(Glue):
    """Each pixel of the output shows the nearest one of the input, on codes or packed words.

    Of H lines for OH the line y shows floor(y * H / OH), or by centers floor((2 * y + 1) * H / (2 * OH)), in exact
    numbers; columns in the same way. (ONNX: asymmetric and half_pixel; torch: nearest and nearest-exact.)

    Args:
        channels: Channels of a pixel.
        bits: Bits of a code, 1 to 8, or a quantization.
        scale: Times as many lines and columns, one number or (height, width); or
        size: (height, width) of the output.
        centers: Whether the nearest pixel is the one nearest to the output pixel's center.
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
        layout: str = Layout.NHWC,
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
        numbers: Numbers = {
            "op": "resize",
            "words": int(layout == Layout.PACKED),
            "centers": int(self.centers),
            **sizes,
        }
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


class DepthToSpace(Glue):
    """Channels of a pixel as a block of pixels, as ONNX's DepthToSpace.

    With the mode "DCR" the channels of a block's pixel lie together; with "CRD" (torch's pixel_shuffle) the pixels of
    a channel do. Packed words whose parts are whole (DCR, a multiple of 64 channels out) are moved as they are.

    Args:
        channels: Channels of the input, a multiple of block * block.
        bits: Bits of a code, 1 to 8, or a quantization.
        block: Pixels a side of a block.
        mode: "DCR" or "CRD".
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
        block: int,
        *,
        mode: str = "DCR",
        encoding: str = "unsigned",
        layout: str = Layout.NHWC,
        **options: Any,
    ) -> None:
        source = codes_of(channels, bits, encoding, layout)
        self.block, self.mode = pair("block", block, 1)[0], mode
        if not is_one_of(mode, ("DCR", "CRD")):
            raise SpecError(f"unknown mode {mode!r}; known: DCR, CRD")
        if channels % self.block**2:
            raise SpecError(f"{channels} channels are no blocks of {self.block} x {self.block}")
        output = codes_of(channels // self.block**2, bits, encoding, layout)
        words = layout == Layout.PACKED and mode == "DCR" and output.channels % WORD_CHANNELS == 0
        pixel = output.elements * 8 if words else output.channels
        apart = {"channel_apart": 1, "pixel_apart": pixel} if mode == "DCR" else {}
        apart = apart or {"channel_apart": self.block**2, "pixel_apart": 1}
        super().__init__(
            [source], output, {"op": "blocks", "words": int(words), "block": self.block, **apart}, **options
        )

    def out_size(self, height: int, width: int) -> tuple[int, int]:
        return height * self.block, width * self.block

    def meaning(self, *codes: NDArray[Any]) -> NDArray[Any]:
        (x,), block, channels = codes, self.block, self.output.channels
        n, height, width, _ = x.shape
        if self.mode == "DCR":
            parts = x.reshape(n, height, width, block, block, channels).transpose(0, 1, 3, 2, 4, 5)
        else:
            parts = x.reshape(n, height, width, channels, block, block).transpose(0, 1, 4, 2, 5, 3)
        return parts.reshape(n, height * block, width * block, channels)


class Concatenate(Glue):
    """The channels of up to 4 inputs behind each other, each code requantized to one scale.

    A code of input i becomes round((value - zero_point_i) * scale_i / out.scale) + out.zero_point, clamped: the
    quotient is computed in exact numbers and rounded once, half to even. Inputs that have the output's quantization are
    copied; so are packed words if all inputs have it and a multiple of 64 channels.

    Args:
        inputs: Channels and quantization of each input, or the bits of codes whose scale is 1.
        out: The codes of results: a quantization or bits.
        layout: "NHWC" or "packed".
        out_layout: The layout of the results; `layout` if None.
        **options: `isa` and `threads`, as of `Conv2d`.

    Raises:
        SpecError: The arguments do not fit together.
    """

    def __init__(
        self,
        inputs: Sequence[tuple[int, Quantization | int]],
        out: Quantization | int,
        *,
        layout: str = Layout.NHWC,
        out_layout: str | None = None,
        **options: Any,
    ) -> None:
        of_inputs, out = [as_quantization(given, "inputs") for _, given in _pairs(inputs)], as_quantization(out, "out")
        given = zip(_pairs(inputs), of_inputs, strict=True)
        sources = [Activations(channels, each.operand, layout) for (channels, _), each in given]
        output = Activations(sum(x.channels for x in sources), out.operand, first_given(out_layout, layout))
        alike = all(each == out for each in of_inputs)
        self.tables = [_table(each, out) for each in of_inputs]
        whole = all(x.channels % WORD_CHANNELS == 0 for x in sources)
        words = alike and whole and layout == output.layout == Layout.PACKED
        arrays = (
            {}
            if alike
            else {
                "tables": np.stack([repeat_table(x, each.bits) for x, each in zip(self.tables, of_inputs, strict=True)])
            }
        )
        super().__init__(sources, output, {"op": "concat", "words": int(words)}, arrays, **options)

    def meaning(self, *codes: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([t[x] for t, x in zip(self.tables, codes, strict=True)], axis=-1)


def _pairs(inputs: Any) -> Sequence[tuple[Any, Any]]:
    """Yield channels and quantizations of inputs; raise SpecError for other values, or too many."""
    if not isinstance(inputs, list | tuple) or not all(isinstance(x, list | tuple) and len(x) == 2 for x in inputs):
        raise SpecError(f"inputs are pairs of channels and a Quantization, not {inputs!r}")
    if not 1 <= len(inputs) <= INPUTS:
        raise SpecError(f"a concatenation has 1 to {INPUTS} inputs, not {len(inputs)}")
    return inputs


def _table(source: Quantization, out: Quantization) -> NDArray[np.uint8]:
    """Return the code of `out` for each of `source`."""
    return np.arange(1 << source.bits, dtype=np.uint8) if source == out else requantize_codes(source, out)

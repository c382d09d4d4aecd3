"""Channels as pixels of blocks."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from bitsynth.errors import SpecError
from bitsynth.layers.geometry import pair
from bitsynth.layers.glue.activations import codes_of
from bitsynth.layers.glue.base import Glue
from bitsynth.layers.glue.quantization import Quantization
from bitsynth.layers.words import WORD_CHANNELS
from bitsynth.spec.matmul import is_one_of


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
        layout: str = "NHWC",
        **options: Any,
    ) -> None:
        source = codes_of(channels, bits, encoding, layout)
        self.block, self.mode = pair("block", block, 1)[0], mode
        if not is_one_of(mode, ("DCR", "CRD")):
            raise SpecError(f"unknown mode {mode!r}; known: DCR, CRD")
        if channels % self.block**2:
            raise SpecError(f"{channels} channels are no blocks of {self.block} x {self.block}")
        output = codes_of(channels // self.block**2, bits, encoding, layout)
        words = layout == "packed" and mode == "DCR" and output.channels % WORD_CHANNELS == 0
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

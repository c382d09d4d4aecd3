"""The specification of a layer: what it computes, without kernel and schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import SpecError
from bitsynth.layers.flatten import FlatImage
from bitsynth.layers.geometry import Geometry, pair
from bitsynth.layers.packed_codes import Packed, packed_words
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec, is_one_of

LAYOUTS = (Layout.NHWC, Layout.NCHW, Layout.PACKED)
"""The layouts of layers."""
MAX_ZERO_POINT = (1 << 15) - 1
TYPICAL_IMAGE = (28, 28)
"""The image size that a schedule is chosen for by default: height and width."""


def check_zero_point(value: Any) -> None:
    """Raise SpecError unless a number can be a zero point."""
    if type(value) is not int or abs(value) > MAX_ZERO_POINT:
        raise SpecError(f"zero_point must be a whole number of at most {MAX_ZERO_POINT:,}, not {value!r}")


@dataclass(frozen=True)
class LayerSpec:
    """A convolution of activations `act` and weights `wgt`: all of it but the weights' values and the epilogue.

    `layout` is the layout of activations in memory, and `out_layout` the layout of results, as activations if it is
    empty: "NHWC", "NCHW" or "packed", words of 64 channels (`packed_words`). The schedule is chosen for `image`,
    (height, width) in pixels; the layer takes any size. `out_encoding` says which values packed results stand for, ""
    for any. `zero_point` is the value of activations that stands for 0: products are of (activation - zero point), and
    padding has it. `flat` is the image that a dense layer's features are, if they are one. SpecError for an unknown
    layout or encoding, or an image of no size.
    """

    act: MatmulOperand
    wgt: MatmulOperand
    geometry: Geometry
    layout: str = Layout.NHWC
    out_layout: str = ""
    image: tuple[int, int] | None = None
    out_encoding: str = ""
    zero_point: int = 0
    flat: FlatImage | None = None

    def __post_init__(self) -> None:
        if is_one_of(self.out_layout, ("",)):
            object.__setattr__(self, "out_layout", self.layout)
        if not is_one_of(self.out_encoding, ("",)):
            Encoding.parse(self.out_encoding)
        for name in ("layout", "out_layout"):
            object.__setattr__(self, name, Layout.parse(getattr(self, name), LAYOUTS))
        check_zero_point(self.zero_point)
        object.__setattr__(self, "image", None if self.image is None else pair("image", self.image, 1))

    def product(self, isa: str) -> MatmulSpec:
        """Return the product of its operands on an instruction set."""
        return MatmulSpec(isa, self.act, self.wgt)

    @property
    def typical_image(self) -> tuple[int, int]:
        """Height and width that a schedule is chosen for: `image`, else usual ones with room for the window."""
        if self.image:
            return self.image
        (top, left, bottom, right), reach = self.geometry.padding, self.geometry.reach
        return max(TYPICAL_IMAGE[0], reach[0] - top - bottom), max(TYPICAL_IMAGE[1], reach[1] - left - right)

    @property
    def out_rows(self) -> int:
        """Rows of the output for the typical image."""
        return self.geometry.output(*self.typical_image)[0]

    @property
    def in_type(self) -> np.dtype[Any]:
        """The type of an input's elements: codes, or words if activations are packed."""
        return np.dtype(np.uint64 if self.layout == Layout.PACKED else np.uint8)

    @property
    def in_elements(self) -> int:
        """Elements of a pixel of the input: channels, or words if activations are packed."""
        channels = self.geometry.in_channels
        return packed_words(self.act.bits, channels) if self.layout == Layout.PACKED else channels

    def check_codes(self, codes: NDArray[Any]) -> None:
        """Raise SpecError unless an array holds codes of the activations, or words of such codes."""
        if isinstance(codes, Packed):
            self.check_packed(codes)
        if not isinstance(codes, np.ndarray):
            raise SpecError(f"codes are a numpy array, not {type(codes).__name__}")
        if isinstance(codes, np.ma.MaskedArray):
            raise SpecError("codes are a masked array; fill its gaps first, with .filled()")
        if codes.dtype != self.in_type:
            raise SpecError(f"want {self.in_type} codes, not {codes.dtype}")
        last = self.act.codes[-1]
        if self.layout != Layout.PACKED:
            bad = codes.size and codes.max() > last
        else:
            bad = last < (1 << self.act.bits) - 1 and self._has_all_ones(codes)
        if bad:
            raise SpecError(f"codes of {self.act} go to {last}; some are greater")

    def check_packed(self, words: Packed) -> None:
        """Raise SpecError for words that are not of the activations' codes, or are not wanted at all."""
        if self.layout != Layout.PACKED:
            raise SpecError(f"want activations of layout {self.layout}, not Packed words: unpack them")
        words.require(self.act, self.geometry.in_channels)

    def _has_all_ones(self, words: NDArray[Any]) -> bool:
        """Return whether a code has every bit set; a pixel of another number of words is for `shape` to refuse."""
        *lead, count = words.shape or (0,)
        if count % self.act.bits:
            return False
        planes = words.reshape(*lead, count // self.act.bits, self.act.bits)
        return bool(np.bitwise_and.reduce(planes, axis=-1).any())

    def shape(self, codes: NDArray[Any]) -> tuple[int, int, int]:
        """Return batch, height and width of an input; raise SpecError if it is not one of this layer."""
        at = 1 if self.layout == Layout.NCHW else 3
        if codes.ndim != 4 or codes.shape[at] != self.in_elements:
            letters = "N, C, H, W" if at == 1 else "N, H, W, C"
            raise SpecError(f"want activations ({letters}) with C = {self.in_elements}, not {codes.shape}")
        batch, height, width = (n for k, n in enumerate(codes.shape) if k != at)
        return batch, height, width

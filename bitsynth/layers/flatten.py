"""Flattened images: the features of a dense layer after a convolution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import SpecError
from bitsynth.layers.packed_codes import WORD_CHANNELS, Packed, pack_words
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import MatmulOperand, is_one_of

ORDERS = (Layout.NCHW, Layout.NHWC)


@dataclass(frozen=True)
class FlatImage:
    """Images (height, width, channels) that a dense layer reads, pixel by pixel; if `packed`, of whole words each."""

    height: int
    width: int
    channels: int
    packed: bool = False

    def __post_init__(self) -> None:
        if not all(type(n) is int and n >= 1 for n in self.shape):
            raise SpecError(f"flatten must be (height, width, channels), whole numbers of at least 1, not {self.shape}")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        return self.height, self.width, self.channels

    @property
    def idle(self) -> int:
        """Which features of packed pixels have no channel: padding of words."""
        return -self.channels % WORD_CHANNELS * self.height * self.width if self.packed else 0

    def weights(self, weight: NDArray[Any], order: str, fill: int) -> NDArray[Any]:
        """Return `weight` (OC, features) of images flattened in `order` in memory order; `fill` for idle features."""
        if not is_one_of(order, ORDERS):
            raise SpecError(f"flatten_order must be {' or '.join(ORDERS)}, not {order!r}")
        if weight.shape[1] != math.prod(self.shape):
            raise SpecError(f"images of {self.shape} have {math.prod(self.shape)} features, not {weight.shape[1]}")
        first = order == Layout.NCHW
        pixels = weight.reshape(-1, *((self.channels, self.height, self.width) if first else self.shape))
        pixels = pixels.transpose(0, 2, 3, 1) if first else pixels
        idle = -self.channels % WORD_CHANNELS if self.packed else 0
        return np.pad(pixels, ((0, 0), (0, 0), (0, 0), (0, idle)), constant_values=fill).reshape(len(weight), -1)

    def idle_sum(self, act: MatmulOperand, wgt: MatmulOperand, zero_point: int) -> int:
        """Return what idle features, whose codes are 0 on both sides, add to a sum; `zero_point` is of activations."""
        return self.idle * wgt.value(0) * (act.value(0) - zero_point)

    def features(self, images: NDArray[Any], act: MatmulOperand) -> NDArray[Any]:
        """Return `images` (N, H, W, C), or their words, as (N, features); flat ones unchanged. SpecError for others."""
        if isinstance(images, Packed):
            images = images.require(act, self.channels)
        if images.ndim == 4:
            if images.shape[1:3] != self.shape[:2]:
                raise SpecError(f"want images of {self.height} x {self.width} pixels, not {images.shape}")
            images = images.reshape(len(images), math.prod(images.shape[1:]))
        return self._without_idle_bits(images, act.bits) if self.idle else images

    def _without_idle_bits(self, words: NDArray[Any], bits: int) -> NDArray[Any]:
        """Return flat words with bits outside all channels cleared; other arrays unchanged."""
        every = _channel_bits(self, bits)
        return words & every if words.dtype == every.dtype and words.shape[1:] == every.shape else words


@lru_cache(maxsize=64)
def _channel_bits(image: FlatImage, bits: int) -> NDArray[np.uint64]:
    """Return the bits of an image's words that are channels'."""
    every = np.tile(pack_words(np.full(image.channels, (1 << bits) - 1, np.uint8), bits), image.height * image.width)
    every.flags.writeable = False
    return every

"""Forms of a layer in a network: how its input and results lie, and what becomes of its sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.layers import Requantize, Scale, Thresholds, pack_words
from bitsynth.layers.epilogue import Epilogue

Sums = NDArray[np.int64]
_SHIFT = 16


@dataclass(frozen=True)
class Made:
    """An epilogue for sums (N, H, W, C), and the results that it should give of them; sums themselves if None."""

    epilogue: Epilogue | None
    results: NDArray[Any]


@dataclass(frozen=True)
class Form:
    """A form: layouts, an epilogue for a layer's sums and the bits of its results, and other options of `Conv2d`."""

    name: str
    layout: str
    out_layout: str
    make: Callable[[Sums, int], Made]
    options: dict[str, Any] = field(default_factory=dict)

    def codes(self, codes: NDArray[np.uint8], bits: int) -> NDArray[Any]:
        """Codes (N, H, W, C) as a layer of this form reads them."""
        return pack_words(codes, bits) if self.layout == "packed" else codes

    def results(self, made: Made, bits: int) -> NDArray[Any]:
        """The results as a layer of this form gives them."""
        return pack_words(made.results.astype(np.uint8), bits) if self.out_layout == "packed" else made.results


def sums(found: Sums, bits: int) -> Made:
    """No epilogue."""
    return Made(None, found)


def thresholds(found: Sums, bits: int) -> Made:
    """Thresholds between which the sums of a channel are as many each."""
    shares = np.arange(1, 1 << bits) / (1 << bits)
    values = np.floor(np.quantile(found, shares, axis=(0, 1, 2))).astype(np.int64).T
    return Made(Thresholds(values), (found[..., None] > values).sum(-1))


def requantize(found: Sums, bits: int) -> Made:
    """A multiplier a channel, for which the greatest sum is the greatest code."""
    most = (1 << bits) - 1
    multiplier = np.maximum(1, (most << _SHIFT) // np.maximum(1, found.max(axis=(0, 1, 2))))
    codes = np.clip((found * multiplier + (1 << _SHIFT - 1)) >> _SHIFT, 0, most)
    return Made(Requantize(multiplier, _SHIFT, bits), codes)


def scale(found: Sums, bits: int) -> Made:
    """A factor and a summand a channel."""
    channels = np.arange(found.shape[-1], dtype=np.float32)
    factor, summand = np.float32(0.01) + channels / np.float32(7), channels - np.float32(3)
    return Made(Scale(factor, summand), factor * found.astype(np.float32) + summand)


SUMS = Form("codes to int32", "NHWC", "NHWC", sums)
PACKED = Form("packed to packed, thresholds", "packed", "packed", thresholds)
EPILOGUES = (
    SUMS,
    Form("packed to int32", "packed", "NHWC", sums),
    Form("codes to codes, thresholds", "NHWC", "NHWC", thresholds),
    PACKED,
    Form("codes to codes, Requantize", "NHWC", "NHWC", requantize),
    Form("packed to packed, Requantize", "packed", "packed", requantize),
    Form("codes to float32, Scale", "NHWC", "NHWC", scale),
    Form("codes to int32, signed weights", "NHWC", "NHWC", sums, {"weight_encoding": "signed"}),
    Form("packed to packed, thresholds, signed weights", "packed", "packed", thresholds, {"weight_encoding": "signed"}),
)
"""The forms that are timed beside codes to int32, which come first."""

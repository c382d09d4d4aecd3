"""Forms in which layers of a network are timed: layouts of input and results, and the epilogue between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.layers import Requantize, Rescale, Residual, Scale, Thresholds, pack_words
from bitsynth.layers.epilogues import Epilogue
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import MAX_BITS, Encoding

_Sums = NDArray[np.int64]
_SHIFT = 16


@dataclass(frozen=True)
class LayerForm:
    """A form: layouts, an epilogue, and other options of `Conv2d`.

    `epilogue` makes the epilogue from a layer's accumulators and the bits of its results. `values` is the type of the
    values with which Python calls the layer; if empty, the layer is bound to codes and runs from C. `residual` is the
    type of a second tensor that is added; none if empty.
    """

    name: str
    layout: Layout
    out_layout: Layout
    epilogue: Callable[[_Sums, int], Thresholds | Requantize | Rescale | Scale | None]
    options: dict[str, Any] = field(default_factory=dict)
    values: str = ""
    residual: str = ""

    def replace_weights(self, encoding: str) -> LayerForm:
        """Return the form with weights of that encoding."""
        return replace(self, name=f"{self.name}, {encoding} weights", options={"weight_encoding": encoding})

    def on(self, cpu: str) -> LayerForm:
        """Return the form of layers that are chosen for that processor."""
        return replace(self, options={**self.options, "cpu": cpu})

    def replace_activations(self, encoding: str) -> LayerForm:
        """Return the form with activations of that encoding."""
        return replace(self, name=f"{self.name}, {encoding} activations", options={"act_encoding": encoding})

    def with_residual(self, kind: str) -> LayerForm:
        """Return the form with a residual of that type."""
        return replace(self, name=f"{self.name}, {kind} residual", residual=kind)

    def has(self, act_bits: int, w_bits: int) -> bool:
        """Return whether the form's encodings have these widths."""
        act, wgt = (self.options.get(side) for side in ("act_encoding", "weight_encoding"))
        return all(not x or bits in Encoding(x).widths for x, bits in ((act, act_bits), (wgt, w_bits)))

    def codes(self, codes: NDArray[np.uint8], bits: int) -> NDArray[Any]:
        """Return codes (N, H, W, C) as a layer of this form reads them."""
        return pack_words(codes, bits) if self.layout == Layout.PACKED else codes

    def elements(self, sums: _Sums) -> NDArray[Any] | None:
        """Return random 8-bit elements of a residual, in the shape of the sums (N, H, W, C); None without a
        residual."""
        return (
            np.random.default_rng(0).integers(0, 1 << MAX_BITS, sums.shape).astype(self.residual)
            if self.residual
            else None
        )

    def make_epilogue(self, sums: _Sums, bits: int) -> Epilogue | None:
        """Return the epilogue, with the form's residual."""
        epilogue = self.epilogue(sums, bits)
        if epilogue is None or not self.residual:
            return epilogue
        floats = epilogue.adds_floats
        return replace(epilogue, residual=Residual(self.residual, 0.5 if floats else 3))

    def results(self, epilogue: Epilogue | None, sums: _Sums, bits: int) -> NDArray[Any]:
        """Return the results of a layer of this form for accumulators (N, H, W, C)."""
        codes: NDArray[Any] = epilogue.reference(sums.astype(np.int32), self.elements(sums)) if epilogue else sums
        return pack_words(codes, bits) if self.out_layout == Layout.PACKED else codes


def no_epilogue(sums: _Sums, bits: int) -> None:
    """Return None: results are the accumulators."""


def thresholds(sums: _Sums, bits: int) -> Thresholds:
    """Return thresholds that divide the sums of a channel into equal shares."""
    shares = np.arange(1, 1 << bits) / (1 << bits)
    return Thresholds(np.floor(np.quantile(sums, shares, axis=(0, 1, 2))).astype(np.int64).T)


def requantize(sums: _Sums, bits: int) -> Requantize:
    """Return a multiplier for each channel, which maps the sum farthest from 0 to the greatest code."""
    most = (1 << bits) - 1
    return Requantize(np.maximum(1, (most << _SHIFT) // np.maximum(1, np.abs(sums).max(axis=(0, 1, 2)))), _SHIFT, bits)


def rescale(sums: _Sums, bits: int) -> Rescale:
    """Return one factor, which maps the greatest sum to the greatest code of 8 bits."""
    return Rescale(np.float32(((1 << MAX_BITS) - 1) / max(1, int(sums.max()))))


def scale(sums: _Sums, bits: int) -> Scale:
    """Return a factor and a summand for each channel."""
    channels = np.arange(sums.shape[-1], dtype=np.float32)
    return Scale(np.float32(0.01) + channels / np.float32(7), channels - np.float32(3))


SUMS = LayerForm("codes to int32", Layout.NHWC, Layout.NHWC, no_epilogue)
PACKED = LayerForm("packed to packed, thresholds", Layout.PACKED, Layout.PACKED, thresholds)
BYTES = LayerForm("codes to bytes, Requantize", Layout.NHWC, Layout.NHWC, lambda sums, bits: requantize(sums, MAX_BITS))
FLOATS = LayerForm("codes to float32, Scale", Layout.NHWC, Layout.NHWC, scale)
FORMS = {"sums": SUMS, "packed": PACKED}
"""The forms that layers of a network are measured in, by the names that `bitsynth bench` gives them."""
EPILOGUES = (
    SUMS,
    *(replace(SUMS, name=f"{name} to int32, called", values=name) for name in ("uint8", "int64")),
    LayerForm("packed to int32", Layout.PACKED, Layout.NHWC, no_epilogue),
    LayerForm("codes to codes, thresholds", Layout.NHWC, Layout.NHWC, thresholds),
    PACKED,
    LayerForm("codes to codes, Requantize", Layout.NHWC, Layout.NHWC, requantize),
    LayerForm("packed to packed, Requantize", Layout.PACKED, Layout.PACKED, requantize),
    BYTES,
    FLOATS,
    *(SUMS.replace_weights(encoding) for encoding in ("signed", "ternary")),
    *(SUMS.replace_activations(encoding) for encoding in ("signed", "bipolar")),
    *(PACKED.replace_weights(encoding) for encoding in ("signed", "ternary")),
    *(PACKED.with_residual(kind) for kind in ("uint8", "int32")),
    BYTES.with_residual("uint8"),
    LayerForm("codes to bytes, Rescale", Layout.NHWC, Layout.NHWC, rescale).with_residual("uint8"),
    FLOATS.with_residual("float32"),
)
"""The forms that are timed, codes to int32 first."""

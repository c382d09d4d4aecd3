"""Layers of random chains that multiply: convolutions, with residuals or without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from bitsynth import Conv2d, Requantize, Residual, Thresholds
from bitsynth.layers.geometry import Geometry, geometry_of
from bitsynth.layers.schedule import LayerSchedule, gathers
from support.chain_deck import Deck, Kind
from support.chain_tensors import Tensor, Values, tensor
from support.layer_cases import operand
from support.random_drawing import one_of

FORMS = 3
"""Layers of one kind, layout, number of channels and greatest window."""
SHIFT = 16
"""Of multipliers."""


@dataclass(frozen=True, eq=False)
class Product:
    """A convolution and what its results must be.

    `weights` (groups, C / groups * KH * KW, OC / groups) are float64, in which products and their sums are exact.
    """

    kind: Kind
    geometry: Geometry
    weights: Values
    residual: Residual | None

    def sums(self, codes: Values) -> Values:
        """int64 sums (N, H, W, OC) of `codes`, which the residual adds too if there is one."""
        sums = convolution(self.kind.act.decode(codes), self.weights, self.geometry)
        if self.residual is not None:
            sums += np.asarray(self.residual.scale) * (codes.astype(np.int64) - self.residual.zero_point)
        return sums


@dataclass(frozen=True, eq=False)
class Layer:
    """A product whose sums become codes."""

    product: Product
    epilogue: Any
    compiled: Conv2d

    def run(self, rng: Generator, x: Tensor) -> Tensor:
        """What the layer made, and what it must; sums that it keeps are compared."""
        kind, residual = self.product.kind, self.product.residual
        sums = self.product.sums(x.want)
        results = self.compiled.run(x.made, residual=None if residual is None else x.codes.astype(kind.elements))
        if residual is not None and residual.keep_sum:
            results, kept = results
            np.testing.assert_array_equal(kept, sums)
        return tensor(rng, self.codes(sums), results, kind.bits, kind.layout)

    def codes(self, sums: Values) -> Values:
        """What the epilogue must make of sums."""
        one, kind = self.epilogue, self.product.kind
        if isinstance(one, Thresholds):
            levels = np.asarray(one.values)
            above, below = (sums[..., None] > levels).sum(-1), (sums[..., None] < levels).sum(-1)
            return np.asarray(np.where(one.rising, above, below), np.uint8)
        rounded = requantized(sums * one.multiplier, SHIFT, kind.epilogue).clip(0, (1 << kind.bits) - 1)
        return np.asarray(rounded, np.uint8)


def conv(rng: Generator, x: Tensor, deck: Deck) -> Tensor:
    """A convolution whose sums become codes."""
    kind, most = deck.kind(rng, x.operand, residual=False), tuple(min(3, n) for n in x.want.shape[1:3])
    layer: Layer = deck.once(_conv, deck, kind, x.layout, x.channels, most, int(rng.integers(0, FORMS)))
    return layer.run(rng, x)


def block(rng: Generator, x: Tensor, deck: Deck) -> Tensor:
    """A convolution of as many channels and pixels as its input, whose codes are added before sums become codes."""
    kind = deck.kind(rng, x.operand, residual=True)
    layer: Layer = deck.once(_block, deck, kind, x.layout, x.channels, int(rng.integers(0, FORMS)))
    return layer.run(rng, x)


def _conv(deck: Deck, kind: Kind, layout: str, channels: int, most: tuple[int, int], form: int) -> Layer:
    rng = deck.rng(kind, layout, channels, most, form)
    groups = channels if kind.method == "grouped" else 1
    out = groups if groups > 1 else one_of(rng, (1, 7, 16, 64, 65))
    shape = out, channels // groups, *(int(rng.integers(1, n + 1)) for n in most)
    stride, padding = tuple(rng.integers(1, 3, 2).tolist()), tuple(rng.integers(0, 2, 4).tolist())
    geometry = geometry_of(shape, stride=stride, padding=padding, dilation=1, groups=groups)
    return _layer(rng, deck, kind, layout, geometry, None)


def _block(deck: Deck, kind: Kind, layout: str, channels: int, form: int) -> Layer:
    rng = deck.rng(kind, layout, channels, form)
    groups = channels if kind.method == "grouped" else 1
    span = int(rng.integers(1, 1 << int(rng.integers(1, 8))))
    zero = 0 if kind.elements == "int32" else int(rng.integers(0, 1 << kind.act.bits))
    scale = rng.integers(-span, span + 1, channels)
    residual = Residual(kind.elements, scale, zero, keep_sum=bool(rng.integers(0, 2)))
    shape = channels, channels // groups, 3, 3
    geometry = geometry_of(shape, stride=1, padding=1, dilation=1, groups=groups)
    return _layer(rng, deck, kind, layout, geometry, residual)


def _layer(rng: Generator, deck: Deck, kind: Kind, layout: str, g: Geometry, residual: Residual | None) -> Layer:
    """A layer of random weights, whose epilogue spreads the sums of a random image over its codes."""
    w = operand(rng, kind.wgt, g.weight_shape, "random")
    by_groups = w.reshape(g.groups, g.out_channels // g.groups, -1).swapaxes(1, 2)
    product = Product(kind, g, np.ascontiguousarray(by_groups, np.float64), residual)
    sample = rng.integers(0, kind.act.codes[-1] + 1, (2, 6, 6, g.in_channels))
    epilogue = _epilogue(rng, product.sums(sample.astype(np.uint8)), kind, residual)
    layer = Conv2d(
        w,
        kind.act.bits,
        kind.wgt.bits,
        stride=g.stride,
        padding=g.padding,
        groups=g.groups,
        act_encoding=kind.act.encoding,
        weight_encoding=kind.wgt.encoding,
        layout=layout,
        out_layout=kind.layout,
        epilogue=epilogue,
        isa=deck.isa,
        schedule=_schedule(rng, deck.isa, kind),
    )
    return Layer(product, epilogue, layer)


def _schedule(rng: Generator, isa: str, kind: Kind) -> LayerSchedule | None:
    """A schedule of a kind and of any order; None where the layer finds one."""
    if kind.method in ("default", "grouped"):
        return None
    method, _, model = kind.method.partition("-")
    return LayerSchedule(
        isa=isa,
        method=method,
        channels=64,
        model=model or "ops",
        gather=one_of(rng, gathers(pairs=method == "pairs")),
        columns_first=bool(rng.integers(0, 2)),
        block_rows=one_of(rng, (0, 7, 64)),
        band_rows=one_of(rng, (0, 2)),
    )


def _epilogue(rng: Generator, sums: Values, kind: Kind, residual: Residual | None) -> Any:
    """An epilogue that spreads sums over codes."""
    bits, channels = kind.bits, sums.shape[-1]
    if kind.epilogue in ("rising", "mixed"):
        levels = np.sort(rng.choice(sums.reshape(-1), (channels, (1 << bits) - 1)), axis=1)
        rising = rng.integers(kind.epilogue == "rising", 2, channels).astype(bool)
        return Thresholds(levels, rising, residual)
    span = max(1, int(np.abs(sums).max()))
    multiplier = rng.integers(-1, 2, channels) * ((1 << SHIFT + bits) // span)
    return Requantize(multiplier, SHIFT, bits, rounding=kind.epilogue, residual=residual)


def convolution(x: Values, weights: Values, g: Geometry) -> Values:
    """int64 sums of values `x` (N, H, W, C) and weights as a `Product` has them; padding is 0."""
    top, left, bottom, right = g.padding
    n, height, width, channels = x.shape
    whole = np.zeros((n, height + top + bottom, width + left + right, channels))
    whole[:, top : top + height, left : left + width] = x
    seen = np.lib.stride_tricks.sliding_window_view(whole, g.kernel, axis=(1, 2))[:, :: g.stride[0], :: g.stride[1]]
    rows = seen.reshape(*seen.shape[:3], g.groups, 1, -1)
    return (rows @ weights).astype(np.int64).reshape(*seen.shape[:3], -1)


def requantized(product: Values, shift: int, rounding: str) -> Values:
    """Products over 2**shift, rounded half up, or half to even by the rest of the division."""
    quotient, rest, half = product >> shift, product & ((1 << shift) - 1), 1 << (shift - 1)
    up = (rest > half) | ((rest == half) & ((quotient & 1 == 1) | (rounding == "up")))
    rounded: Values = quotient + up
    return rounded

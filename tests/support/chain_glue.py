"""Layers of random chains that do not multiply: glue on codes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator

from bitsynth import Add, Concatenate, GlobalAvgPool2d, Lookup, MaxPool2d, Pad2d, Quantization, Resize, pack
from support.chain_deck import Deck
from support.chain_tensors import Tensor, Values, tensor


def same(layer: Any, x: Tensor, want: Values) -> Tensor:
    """What glue of the same codes made."""
    return Tensor(want, layer(x.made), x.operand, x.layout)


def max_pool(rng: Generator, x: Tensor, deck: Deck) -> Tensor:
    """The greatest code of windows of 2 x 2 pixels."""
    size, stride = 2, int(rng.integers(1, 3))
    if min(x.want.shape[1:3]) < size:
        return lookup(rng, x, deck)
    seen = np.lib.stride_tricks.sliding_window_view(x.want, (size, size), axis=(1, 2))[:, ::stride, ::stride]
    layer = deck.once(MaxPool2d, x.channels, x.operand.bits, size, stride=stride, **described(x, deck))
    return same(layer, x, seen.max(axis=(-2, -1)))


def pad(rng: Generator, x: Tensor, deck: Deck) -> Tensor:
    """Pixels of a code around the image."""
    code, width = int(rng.integers(0, 1 << x.operand.bits)), int(rng.integers(0, 3))
    want = np.pad(x.want, ((0, 0), (width, width), (width, width), (0, 0)), constant_values=code)
    return same(deck.once(Pad2d, x.channels, x.operand.bits, width, code=code, **described(x, deck)), x, want)


def resize(rng: Generator, x: Tensor, deck: Deck) -> Tensor:
    """Each pixel twice, in either direction."""
    return same(
        deck.once(Resize, x.channels, x.operand.bits, 2, **described(x, deck)),
        x,
        x.want.repeat(2, axis=1).repeat(2, axis=2),
    )


def lookup(rng: Generator, x: Tensor, deck: Deck) -> Tensor:
    """Any function of a code."""
    bits = x.operand.bits
    table = deck.rng("table", bits, int(rng.integers(0, 8))).integers(0, 1 << bits, 1 << bits)
    layer = deck.once(Lookup, x.channels, tuple(table.tolist()), bits, **described(x, deck))
    return same(layer, x, table[x.want].astype(np.uint8))


def add(rng: Generator, x: Tensor, deck: Deck) -> Tensor:
    """A residual: codes of another path, in eighths of a scale, added and rounded half to even once."""
    other = rng.integers(0, 1 << x.operand.bits, x.want.shape).astype(np.uint8)
    first, second = (Quantization(x.operand.bits, int(k) / 8) for k in rng.integers(1, 12, 2))
    out = Quantization(x.operand.bits, 1.0)
    eighths = x.want.astype(np.int64) * int(first.scale * 8) + other.astype(np.int64) * int(second.scale * 8)
    want = nearest(eighths, 8).clip(0, (1 << x.operand.bits) - 1).astype(np.uint8)
    given = pack(other, x.operand.bits, "unsigned") if x.layout == "packed" else other
    results = deck.once(Add, x.channels, first, second, out, layout=x.layout, isa=deck.isa)(x.unsigned, given)
    return tensor(rng, want, results, x.operand.bits, x.layout)


def average(rng: Generator, x: Tensor, deck: Deck) -> Tensor:
    """The mean of all pixels, in thirds of a code, rounded half to even."""
    sums, pixels = 3 * x.want.astype(np.int64).sum(axis=(1, 2), keepdims=True), int(np.prod(x.want.shape[1:3]))
    want = nearest(sums, pixels).clip(0, (1 << x.operand.bits) - 1).astype(np.uint8)
    kinds = Quantization(x.operand.bits, 3.0), Quantization(x.operand.bits, 1.0)
    results = deck.once(GlobalAvgPool2d, x.channels, *kinds, layout=x.layout, isa=deck.isa)(x.unsigned)
    return tensor(rng, want, results, x.operand.bits, x.layout)


def concatenate(rng: Generator, x: Tensor, deck: Deck) -> Tensor:
    """The channels, and those again of half the scale."""
    bits = x.operand.bits
    first, second = Quantization(bits, 1.0), Quantization(bits, 0.5)
    want = np.concatenate([x.want, nearest(x.want.astype(np.int64), 2)], axis=-1).astype(np.uint8)
    layer = deck.once(Concatenate, ((x.channels, first), (x.channels, second)), first, layout=x.layout, isa=deck.isa)
    codes = x.unsigned
    return tensor(rng, want, layer(codes, codes), bits, x.layout)


def nearest(top: Values, bottom: int) -> Values:
    """Quotients rounded half to even."""
    quotient, rest = np.divmod(top, bottom)
    rounded: Values = quotient + ((2 * rest > bottom) | ((2 * rest == bottom) & (quotient & 1 == 1)))
    return rounded


def described(x: Tensor, deck: Deck) -> dict[str, Any]:
    return {"encoding": x.operand.encoding.value, "layout": x.layout, "isa": deck.isa}

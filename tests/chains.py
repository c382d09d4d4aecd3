"""Chains of layers drawn at random, as networks have them: codes in, codes out, glue and residuals between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from cases import convolution, encodings, operand
from numpy.random import Generator
from numpy.typing import NDArray

from bitsynth import (
    Add,
    Concatenate,
    Conv2d,
    GlobalAvgPool2d,
    Lookup,
    MaxPool2d,
    Pad2d,
    Quantization,
    Requantize,
    Residual,
    Resize,
    Thresholds,
    pack,
    unpack,
)
from bitsynth.layers.schedule import CONV_ALGORITHMS, LayerSchedule
from bitsynth.spec.matmul import Encoding, MatmulOperand

Values = NDArray[Any]
METHODS = ("popcount", "lookup", "multiply")
WIDTHS = ((1, 1), (2, 1), (2, 2), (3, 2))
"""Bits of activations and weights: few, as each has a kernel that is compiled."""


@dataclass(frozen=True)
class Tensor:
    """Codes (N, H, W, C) between two layers: what they must be, and what the layers before made of them."""

    want: Values
    made: Values
    operand: MatmulOperand
    layout: str

    @property
    def codes(self) -> Values:
        """What the layers made, a code an element."""
        return unpack(self.made) if self.layout == "packed" else self.made  # type: ignore[arg-type]

    @property
    def channels(self) -> int:
        return int(self.want.shape[3])

    def check(self) -> None:
        assert self.codes.shape == self.want.shape
        np.testing.assert_array_equal(self.codes, self.want)


@dataclass(frozen=True)
class Chain:
    """A random chain of layers of `isa`."""

    isa: str
    seed: int

    def run(self) -> list[str]:
        """Run every layer on what the one before gave, compare each result; the layers' names."""
        rng = np.random.default_rng(self.seed)
        bits = int(rng.integers(1, 4))
        shape = (int(rng.integers(1, 3)), *rng.integers(3, 9, 2), int(rng.choice([1, 5, 16, 64, 70])))
        x = tensor(rng, rng.integers(0, 1 << bits, shape).astype(np.uint8), None, bits)
        names: list[str] = []
        for _ in range(rng.integers(2, 6)):
            step = rng.choice(np.array(STEPS, object), p=CHANCES)
            x = step(rng, x, self.isa)
            x.check()
            names.append(step.__name__)
        return names


def tensor(rng: Generator, want: Values, made: Values | None, bits: int, layout: str = "") -> Tensor:
    """Codes under any encoding of their width; they are laid out anyhow if no layer has `made` them."""
    known = [e for e in encodings(bits) if Encoding(e) not in (Encoding.TERNARY, Encoding.NARROW)]
    encoding = str(rng.choice(known))
    layout = layout or str(rng.choice(["NHWC", "packed"]))
    if made is None:
        made = pack(want, bits, encoding) if layout == "packed" else want
    elif layout == "packed":
        made = pack(unpack(made), bits, encoding)  # type: ignore[arg-type]
    return Tensor(want, made, MatmulOperand(bits, Encoding(encoding)), layout)


def conv(rng: Generator, x: Tensor, isa: str) -> Tensor:
    """A convolution whose sums become codes."""
    groups = x.channels if rng.integers(0, 6) == 0 else 1
    out = groups if groups > 1 else int(rng.choice([1, 7, 16, 64, 65]))
    window = [int(min(k, n)) for k, n in zip(rng.integers(1, 4, 2), x.want.shape[1:3], strict=True)]
    stride, padding = tuple(map(int, rng.integers(1, 3, 2))), tuple(map(int, rng.integers(0, 2, 4)))
    placed = {"stride": stride, "padding": padding, "dilation": (1, 1), "groups": groups}
    return convolved(rng, x, isa, (out, x.channels // groups, *window), placed)


def block(rng: Generator, x: Tensor, isa: str) -> Tensor:
    """A convolution of as many channels and pixels as its input, whose codes are added before sums become codes."""
    groups = x.channels if rng.integers(0, 6) == 0 else 1
    shape = x.channels, x.channels // groups, 3, 3
    elements = x.codes.astype(rng.choice(["uint8", "int8", "int16", "int32"]))
    span = int(rng.integers(1, 1 << int(rng.integers(1, 8))))
    zero = 0 if elements.dtype == np.int32 else int(rng.integers(0, 1 << x.operand.bits))
    scale = rng.integers(-span, span + 1, x.channels)
    residual = Residual(elements.dtype.name, scale, zero, keep_sum=bool(rng.integers(0, 2)))
    placed = {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": groups}
    return convolved(rng, x, isa, shape, placed, (elements, residual))


def convolved(
    rng: Generator,
    x: Tensor,
    isa: str,
    shape: tuple[int, ...],
    placed: dict[str, Any],
    more: tuple[Values, Residual] | None = None,
) -> Tensor:
    """A convolution of random weights of a shape, with the elements of a residual if they are given."""
    a_bits, w_bits = WIDTHS[rng.choice([k for k, (a, _) in enumerate(WIDTHS) if a == x.operand.bits])]
    wgt = MatmulOperand(w_bits, Encoding(rng.choice(encodings(w_bits))))
    w = operand(rng, wgt, shape, "random")
    sums = convolution(x.operand.decode(x.want), w, **placed)
    elements, residual = more or (None, None)
    if residual is not None and elements is not None:
        sums = sums + np.asarray(residual.scale) * (elements.astype(np.int64) - residual.zero_point)
    epilogue, want, bits = finish(rng, sums, residual)
    layout = str(rng.choice(["NHWC", "packed"]))
    layer = Conv2d(
        w,
        a_bits,
        w_bits,
        act_encoding=x.operand.encoding,
        weight_encoding=wgt.encoding,
        layout=x.layout,
        out_layout=layout,
        epilogue=epilogue,
        isa=isa,
        schedule=scheduled(rng, isa) if placed["groups"] == 1 and rng.integers(0, 20) else None,
        **placed,
    )
    made = layer.run(x.made, residual=elements)
    if residual is not None and residual.keep_sum:
        made, kept = made
        np.testing.assert_array_equal(kept, sums)
    return tensor(rng, want, made, bits, layout)


def scheduled(rng: Generator, isa: str) -> LayerSchedule:
    """A schedule of any method and order: to look for the best of each layer would take longer than to run it."""
    return LayerSchedule(
        isa=isa,
        method=str(rng.choice(METHODS)),
        channels=64,
        gather=str(rng.choice(CONV_ALGORITHMS)),
        columns_first=bool(rng.integers(0, 2)),
        block_rows=int(rng.choice([0, 7, 64])),
        band_rows=int(rng.choice([0, 2])),
    )


def finish(rng: Generator, sums: Values, residual: Residual | None = None) -> tuple[Any, Values, int]:
    """An epilogue that spreads the sums over codes of 1 to 3 bits, and those codes."""
    bits, channels = int(rng.integers(1, 4)), sums.shape[-1]
    if rng.integers(0, 2):
        levels = np.sort(rng.choice(sums.reshape(-1), (channels, (1 << bits) - 1)), axis=1)
        rising = rng.integers(0, 2, channels).astype(bool)
        above, below = (sums[..., None] > levels).sum(-1), (sums[..., None] < levels).sum(-1)
        return Thresholds(levels, rising, residual), np.where(rising, above, below).astype(np.uint8), bits
    span = max(1, int(np.abs(sums).max()))
    shift = 16
    multiplier = rng.integers(-1, 2, channels) * ((1 << shift + bits) // span)
    rounding = str(rng.choice(["up", "even"]))
    return (
        Requantize(multiplier, shift, bits, rounding=rounding, residual=residual),
        requantized(sums * multiplier, shift, rounding).clip(0, (1 << bits) - 1).astype(np.uint8),
        bits,
    )


def requantized(product: Values, shift: int, rounding: str) -> Values:
    """Products over 2**shift, rounded half up, or half to even by the rest of the division."""
    quotient, rest, half = product >> shift, product & ((1 << shift) - 1), 1 << (shift - 1)
    up = (rest > half) | ((rest == half) & ((quotient & 1 == 1) | (rounding == "up")))
    made: Values = quotient + up
    return made


def same(layer: Any, x: Tensor, want: Values) -> Tensor:
    """What glue of the same codes made."""
    return Tensor(want, layer(x.made), x.operand, x.layout)


def max_pool(rng: Generator, x: Tensor, isa: str) -> Tensor:
    """The greatest code of windows of 2 x 2 pixels."""
    size, stride = 2, int(rng.integers(1, 3))
    if min(x.want.shape[1:3]) < size:
        return lookup(rng, x, isa)
    seen = np.lib.stride_tricks.sliding_window_view(x.want, (size, size), axis=(1, 2))[:, ::stride, ::stride]
    layer = MaxPool2d(x.channels, x.operand.bits, size, stride=stride, **described(x, isa))
    return same(layer, x, seen.max(axis=(-2, -1)))


def pad(rng: Generator, x: Tensor, isa: str) -> Tensor:
    """Pixels of a code around the image."""
    code, width = int(rng.integers(0, 1 << x.operand.bits)), int(rng.integers(0, 3))
    want = np.pad(x.want, ((0, 0), (width, width), (width, width), (0, 0)), constant_values=code)
    return same(Pad2d(x.channels, x.operand.bits, width, code=code, **described(x, isa)), x, want)


def resize(rng: Generator, x: Tensor, isa: str) -> Tensor:
    """Each pixel twice, in either direction."""
    return same(
        Resize(x.channels, x.operand.bits, 2, **described(x, isa)), x, x.want.repeat(2, axis=1).repeat(2, axis=2)
    )


def lookup(rng: Generator, x: Tensor, isa: str) -> Tensor:
    """Any function of a code."""
    table = rng.integers(0, 1 << x.operand.bits, 1 << x.operand.bits)
    layer = Lookup(x.channels, table, x.operand.bits, **described(x, isa))
    return same(layer, x, table[x.want].astype(np.uint8))


def add(rng: Generator, x: Tensor, isa: str) -> Tensor:
    """A residual: codes of another path, in eighths of a scale, added and rounded half to even once."""
    other = rng.integers(0, 1 << x.operand.bits, x.want.shape).astype(np.uint8)
    first, second = (Quantization(x.operand.bits, int(k) / 8) for k in rng.integers(1, 20, 2))
    out = Quantization(x.operand.bits, 1.0)
    eighths = x.want.astype(np.int64) * int(first.scale * 8) + other.astype(np.int64) * int(second.scale * 8)
    want = nearest(eighths, 8).clip(0, (1 << x.operand.bits) - 1).astype(np.uint8)
    given = pack(other, x.operand.bits, "unsigned") if x.layout == "packed" else other
    made = Add(x.channels, first, second, out, layout=x.layout, isa=isa)(unsigned(x), given)
    return tensor(rng, want, made, x.operand.bits, x.layout)


def average(rng: Generator, x: Tensor, isa: str) -> Tensor:
    """The mean of all pixels, in thirds of a code, rounded half to even."""
    sums, pixels = 3 * x.want.astype(np.int64).sum(axis=(1, 2), keepdims=True), int(np.prod(x.want.shape[1:3]))
    want = nearest(sums, pixels).clip(0, (1 << x.operand.bits) - 1).astype(np.uint8)
    kinds = Quantization(x.operand.bits, 3.0), Quantization(x.operand.bits, 1.0)
    made = GlobalAvgPool2d(x.channels, *kinds, layout=x.layout, isa=isa)(unsigned(x))
    return tensor(rng, want, made, x.operand.bits, x.layout)


def concatenate(rng: Generator, x: Tensor, isa: str) -> Tensor:
    """The channels, and those again of half the scale."""
    bits = x.operand.bits
    first, second = Quantization(bits, 1.0), Quantization(bits, 0.5)
    want = np.concatenate([x.want, nearest(x.want.astype(np.int64), 2)], axis=-1).astype(np.uint8)
    layer = Concatenate([(x.channels, first), (x.channels, second)], first, layout=x.layout, isa=isa)
    return tensor(rng, want, layer(unsigned(x), unsigned(x)), bits, x.layout)


def nearest(top: Values, bottom: int) -> Values:
    """Quotients rounded half to even."""
    quotient, rest = np.divmod(top, bottom)
    made: Values = quotient + ((2 * rest > bottom) | ((2 * rest == bottom) & (quotient & 1 == 1)))
    return made


def unsigned(x: Tensor) -> Values:
    """The codes as numbers from 0 on."""
    return pack(x.codes, x.operand.bits) if x.layout == "packed" else x.made


def described(x: Tensor, isa: str) -> dict[str, Any]:
    return {"encoding": x.operand.encoding.value, "layout": x.layout, "isa": isa}


Layer = Callable[[Generator, Tensor, str], Tensor]
STEPS: tuple[Layer, ...] = (conv, block, max_pool, pad, resize, lookup, add, average, concatenate)
CHANCES = (0.4, 0.2, 0.1, 0.05, 0.05, 0.05, 0.1, 0.01, 0.04)

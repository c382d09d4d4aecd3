"""Layers of glue drawn at random, with inputs: any operation, shape, layout, width and encoding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from bitsynth.layers import Requantize, glue

SCALES = (1.0, 0.5, 2.0, 0.1, 0.37, 3.0, 0.0078125, 1.9)
ENCODINGS = ("unsigned", "signed", "bipolar", "ternary", "narrow")


@dataclass(frozen=True)
class GlueCase:
    """A layer, and its input: codes or floats (N, H, W, C)."""

    layer: glue.Glue
    given: tuple[NDArray[Any], ...]

    def laid(self) -> list[NDArray[Any]]:
        """The inputs as the layer reads them."""
        return [kind.lay_out(x) for kind, x in zip(self.layer.inputs, self.given, strict=True)]


def check(case: GlueCase) -> None:
    """C gives numpy's results, in the declared type."""
    layer = case.layer
    want, got = layer.meaning(*case.given), layer(*case.laid())
    assert got.shape == (*want.shape[:3], layer.output.elements)
    np.testing.assert_array_equal(got, layer.output.lay_out(want), strict=True)


@st.composite
def quantizations(draw: st.DrawFn, /, encodings: tuple[str, ...] = ENCODINGS) -> glue.Quantization:
    encoding = draw(st.sampled_from(encodings))
    bits = 2 if encoding == "ternary" else draw(st.integers(1 + (encoding == "narrow"), 8))
    zero = 0 if encoding in ("bipolar", "ternary") else draw(st.integers(0, (1 << bits - 1) - 1 or 0))
    return glue.Quantization(bits, draw(st.sampled_from(SCALES)), zero, encoding)


WHOLE = ("unsigned", "signed", "ternary", "narrow")


@st.composite
def layers(draw: st.DrawFn, /, **options: Any) -> glue.Glue:
    def one(low: int, high: int) -> Any:
        return draw(st.integers(low, high))

    def layout() -> str:
        return str(draw(st.sampled_from(("NHWC", "packed"))))

    channels, q = draw(st.sampled_from((1, 3, 8, 63, 64, 65, 128, 130))), draw(quantizations())
    options |= {"layout": layout()}
    codes, both = {"encoding": q.encoding, **options}, {"out_layout": layout(), **options}
    window = one(1, 3), one(1, 3)
    padding = tuple(one(0, n - 1) for n in window * 2)
    rng = np.random.default_rng(one(0, 99))

    def table() -> NDArray[Any]:
        return rng.integers(0, 16, (draw(st.sampled_from((1, channels))), q.operand.codes[-1] + 1))

    def of_pairs() -> glue.Glue:
        other, out = draw(quantizations()), draw(quantizations())
        pairs = rng.integers(0, out.operand.codes[-1] + 1, (q.operand.codes[-1] + 1, other.operand.codes[-1] + 1))
        return glue.PairLookup(channels, pairs, q, other, out, **both)

    def of_floats() -> glue.Glue:
        return glue.FloatLookup(channels, _floats(rng, table().shape), q, **options)

    def of_sums() -> glue.Glue:
        out, sums = draw(quantizations()), window[0] * window[1] * q.operand.codes[-1] + 1
        entries = rng.integers(0, out.operand.codes[-1] + 1, sums)
        dilation = tuple(one(1, 1 + (n < 3)) for n in window)
        apart: dict[str, Any] = {"stride": (one(1, 3), one(1, 3)), "dilation": dilation}
        return glue.SumLookup(channels, entries, q, out, window, **apart, **both)

    def shuffled() -> glue.Glue:
        block = one(1, 3)
        mode = draw(st.sampled_from(("DCR", "CRD")))
        return glue.DepthToSpace(draw(st.sampled_from((1, 64, 3))) * block**2, q.bits, block, mode=mode, **codes)

    def resized() -> glue.Glue:
        scale, size = draw(st.sampled_from(((window, None), (None, (one(1, 9), one(1, 9))))))
        return glue.Resize(channels, q.bits, scale, size=size, centers=draw(st.booleans()), **codes)

    def pooled() -> glue.Glue:
        stride, rounding = (one(1, 3), one(1, 3)), draw(st.sampled_from(("even", "up", "down")))
        sums = Requantize(one(-99, 99), one(0, 9), one(1, 8), draw(st.sampled_from(("up", "even"))))
        out = draw(st.none() | quantizations(WHOLE) | st.just(sums))
        return glue.AvgPool2d(channels, q, window, out, stride=stride, padding=padding, rounding=rounding, **both)

    def quantized() -> glue.Glue:
        out = draw(quantizations(WHOLE))
        scale = draw(st.sampled_from((None, rng.uniform(0.1, 3, channels))))
        return glue.Quantize(channels, out, scale=scale, **options)

    makers: list[Callable[[], glue.Glue]] = [
        lambda: glue.MaxPool2d(
            channels, q.bits, window, stride=(one(1, 3), one(1, 3)), padding=padding, encoding=q.encoding, **both
        ),
        pooled,
        lambda: glue.GlobalAvgPool2d(channels, q, draw(st.none() | quantizations(WHOLE)), **both),
        lambda: glue.Pad2d(channels, q.bits, padding, code=one(0, q.operand.codes[-1]), **codes),
        resized,
        shuffled,
        lambda: glue.Lookup(
            channels, table(), q.bits, out_bits=4, out_encoding="unsigned", encoding=q.encoding, **both
        ),
        of_pairs,
        of_floats,
        of_sums,
        lambda: glue.Concatenate(
            [(c, draw(quantizations())) for c in (channels, 64, 3)[: one(1, 3)]], draw(quantizations(WHOLE)), **both
        ),
        lambda: glue.Concatenate([(64, q)] * one(1, 4), q, **both),
        lambda: glue.Add(channels, q, draw(quantizations()), draw(quantizations(WHOLE)), **both),
        quantized,
        lambda: glue.Quantize(channels, glue.Quantization(1, 0.3, 0, "bipolar"), **options),
        lambda: glue.Dequantize(channels, q, **options),
        lambda: glue.QuantizeImage(rng.normal(size=3), rng.uniform(0.1, 2, 3), draw(quantizations(WHOLE)), **options),
    ]
    drawn: glue.Glue = draw(st.sampled_from(makers))()
    return drawn


@st.composite
def cases(draw: st.DrawFn, /, most: int = 9, **options: Any) -> GlueCase:
    layer = draw(layers(**options))
    batch, height, width = draw(st.integers(1, 3)), draw(st.integers(3, most)), draw(st.integers(3, most))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    given = []
    for kind in layer.inputs:
        shape = (batch, height, width, kind.channels)
        codes = rng.integers(0, kind.last + 1, shape, np.uint8)
        given.append(codes if kind.operand else _floats(rng, shape))
    return GlueCase(layer, tuple(given))


def _floats(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Numbers near codes, ties, and what is no number."""
    numbers = rng.normal(scale=3, size=shape)
    odd = rng.integers(0, 9, shape)
    numbers = np.where(odd == 0, np.round(numbers * 2) / 2, numbers)
    numbers[odd == 1] = rng.choice([np.nan, np.inf, -np.inf, -0.0, 1e-45, -1e-45, 3e38], int((odd == 1).sum()))
    return np.asarray(numbers, np.float32)

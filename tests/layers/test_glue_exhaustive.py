"""Glue on every input there is: codes, pairs of codes, sums of windows, and (slowly) all floats within a range."""

import numpy as np
import pytest
from support.glue_cases import SCALES

from bitsynth.layers.glue import Add, AvgPool2d, Dequantize, Lookup, MaxPool2d, Quantization, Quantize

CHANNELS = 65
"""One more than a word or a register holds: each code is tried in every place."""
PAIRS_AT_ONCE = 4096


def everywhere(codes):
    """(1, 1, codes, CHANNELS): each in all channels."""
    return np.ascontiguousarray(np.broadcast_to(codes[None, None, :, None], (1, 1, len(codes), CHANNELS)), np.uint8)


def pairs(bits):
    """Both codes of every pair of so many bits, some at a time."""
    a, b = (x.ravel() for x in np.meshgrid(np.arange(1 << bits[0]), np.arange(1 << bits[1])))
    for n in range(0, a.size, PAIRS_AT_ONCE):
        yield everywhere(a[n : n + PAIRS_AT_ONCE]), everywhere(b[n : n + PAIRS_AT_ONCE])


@pytest.mark.parametrize("layout", ["NHWC", "packed"])
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, pytest.param(8, marks=pytest.mark.slow)])
def test_the_greater_of_every_pair(bits, layout):
    layer = MaxPool2d(CHANNELS, bits, (2, 1), layout=layout)
    for a, b in pairs((bits, bits)):
        result = layer(layer.inputs[0].lay_out(np.concatenate([a, b], axis=1)))
        np.testing.assert_array_equal(result, layer.output.lay_out(np.maximum(a, b)))


@pytest.mark.parametrize("layout", ["NHWC", "packed"])
@pytest.mark.parametrize("bits", range(1, 9))
def test_the_entry_of_every_code(bits, layout):
    table = np.random.default_rng(bits).permutation(1 << bits)
    layer, x = Lookup(CHANNELS, table, bits, layout=layout), everywhere(np.arange(1 << bits))
    np.testing.assert_array_equal(layer(layer.inputs[0].lay_out(x)), layer.output.lay_out(table[x].astype(np.uint8)))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("bits", [(2, 2), (2, 4), (4, 4), pytest.param((8, 8), marks=pytest.mark.slow)])
def test_the_sum_of_every_pair(bits, scale):
    """C gives the formula; where float64 is far enough from a tie to tell, that is the nearest code."""
    a, b, out = Quantization(bits[0], scale, 1), Quantization(bits[1], 0.37), Quantization(6, 0.6, 3)
    layer = Add(CHANNELS, a, b, out)
    for x, y in pairs(bits):
        result = layer(x, y)
        np.testing.assert_array_equal(result, layer.meaning(x, y))
        real = ((x - 1.0) * np.float32(a.scale) + y * np.float64(np.float32(b.scale))) / np.float32(out.scale)
        clear = np.abs(real % 1 - 0.5) > 1e-6
        np.testing.assert_array_equal(result[clear], np.clip(np.rint(real) + 3, 0, 63)[clear])
        assert clear.any()


@pytest.mark.parametrize("rounding", ["even", "up", "down"])
@pytest.mark.parametrize("pixels", [2, 3, 9, 49, 100])
def test_the_mean_of_every_sum(pixels, rounding):
    """Of 4-bit codes: windows of every sum from 0 to 15 * pixels."""
    sums = np.arange(15 * pixels + 1)
    codes = np.clip(sums[:, None] - 15 * np.arange(pixels), 0, 15).astype(np.uint8).reshape(1, 1, -1, 1)
    results = AvgPool2d(1, Quantization(4), (1, pixels), rounding=rounding)(codes).ravel()
    exact = {"down": sums // pixels, "up": (2 * sums + pixels) // (2 * pixels), "even": np.rint(sums / pixels)}
    np.testing.assert_array_equal(results, exact[rounding])


def floats(first, count):
    """Floats whose bits are numbers from `first` on."""
    return np.arange(first, first + count, dtype=np.uint64).astype(np.uint32).view(np.float32).reshape(1, 1, -1, 64)


def compare(layer, first, count):
    x = floats(first, count)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(layer(x), layer.meaning(x))


LAYERS = [
    Quantize(64, Quantization(8, 0.37, 3)),
    Quantize(64, Quantization(2, 1e-38)),
    Quantize(64, Quantization(1, 3.0, 0, "bipolar")),
]


@pytest.mark.parametrize("layer", LAYERS, ids=["8 bits", "denormal", "signs"])
def test_floats_around_every_power_of_two(layer):
    for sign in (0, 1 << 31):
        for exponent in range(256):
            compare(layer, sign + (exponent << 23), 64)
            compare(layer, sign + (exponent << 23) + (1 << 23) - 64, 64)


@pytest.mark.slow
def test_every_float_of_many_codes_becomes_its_code():
    """From 1/16 to 128, of both signs: smaller ones have the code of 0, greater ones the least or the greatest."""
    for sign in (0, 1 << 31):
        for exponent in range(127 - 4, 127 + 7):
            compare(LAYERS[0], sign + (exponent << 23), 1 << 23)


@pytest.mark.parametrize("encoding", ["unsigned", "signed"])
def test_every_code_as_a_float(encoding):
    layer = Dequantize(CHANNELS, Quantization(8, 0.1, 5, encoding))
    np.testing.assert_array_equal(layer(everywhere(np.arange(256))), layer.meaning(everywhere(np.arange(256))))

"""Layers that read the input in place: a row alone, and pixels of a stride; and lines that are copied as a whole."""

import numpy as np
import pytest
from support.layer_cases import Case, check, laid, machine, usable

from bitsynth.layers import Dense

MACHINES = [
    machine("avx512", "dot", 8, 8, "unsigned", "signed"),
    machine("avx2", "multiply", 8, 8, "unsigned", "signed"),
]
RESULTS = [
    ("none", "NHWC", ""),
    ("none", "NCHW", ""),
    ("requantize", "NCHW", ""),
    ("scale", "NHWC", "float32"),
    ("requantize", "NHWC", "int32"),
    ("thresholds", "NHWC", "int8"),
    ("thresholds", "packed", ""),
]


@pytest.fixture(params=MACHINES, ids=str)
def m(request, skip_isa):
    usable(request.param, skip_isa)
    return request.param


@pytest.mark.parametrize(("epilogue", "out_layout", "residual"), RESULTS, ids="-".join)
@pytest.mark.parametrize("outputs", [5, 130])
def test_one_row(m, outputs, epilogue, out_layout, residual):
    """Fewer columns than a tile or a unit, and more; a tile has several rows, and one is wanted."""
    one = {"epilogue": epilogue, "out_layout": out_layout, "residual": residual, "biased": True}
    case = Case(m, 1, (1, 1), (96, outputs), (1, 1), **one)
    layer, x, want = case.prepared()
    if not residual:
        np.testing.assert_array_equal(layer(x), want)
        return
    more, kept = case.residual_and_sums()
    for got, wanted in zip(
        layer(x, residual=laid(more, out_layout, 0)), (want, laid(kept, out_layout, 0)), strict=True
    ):
        np.testing.assert_array_equal(got, wanted)


def test_one_row_is_a_row_of_many(m):
    """Whatever the number of samples and threads: each of these runs another way."""
    rng = np.random.default_rng(3)
    x, w = rng.integers(0, 256, (3, 64)).astype(np.uint8), rng.integers(-7, 8, (70, 64))
    layer = Dense(w, act_bits=8, w_bits=m.wgt.bits, weight_encoding=m.wgt.encoding, isa=m.isa)
    threaded = Dense(w, act_bits=8, w_bits=m.wgt.bits, weight_encoding=m.wgt.encoding, isa=m.isa, threads=2)
    for some in (x, x[:1]):
        np.testing.assert_array_equal(layer(some), some.astype(int) @ w.T)
        np.testing.assert_array_equal(threaded(some), some.astype(int) @ w.T)


@pytest.mark.parametrize("more", [{}, {"groups": 2}, {"layout": "NCHW"}, {"threads": 2, "band_rows": 2}], ids=str)
def test_pixels_of_a_stride(m, more):
    """Of several images, whose last lines and pixels no window reads."""
    check(Case(m, 2, (8, 6), (8, 20), (1, 1), stride=(3, 2), gather="im2col", **more))


@pytest.mark.parametrize(("channels", "groups"), [(3, 1), (4, 1), (5, 1), (3, 2), (8, 2)])
@pytest.mark.parametrize("padding", [(1, 1, 1, 1), (2, 0, 0, 3)])
def test_lines_that_are_copied(m, channels, groups, padding):
    """Padding is a code other than 0; the last pixel of a line has padding behind it, or none."""
    check(Case(m, 2, (5, 9), (channels, 7), (3, 3), padding=padding, groups=groups, zero_point=9))

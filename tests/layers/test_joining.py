"""Narrow layers: sums of several pixels fill units of an epilogue together, and none of their results moves."""

import numpy as np
import pytest
from support.case_selection import quick

from bitsynth.errors import ToolError
from bitsynth.layers import Conv2d, Requantize, Residual, Thresholds
from bitsynth.layers.epilogues import Epilogue


def epilogue(rng, channels, kind, residual):
    if kind == "thresholds":
        rising = rng.integers(0, 2, channels).astype(bool)
        return Thresholds(np.sort(rng.integers(-40, 40, (channels, 3)), axis=1), rising, residual=residual)
    return Requantize(rng.integers(-(1 << 22), 1 << 22, channels), 24, 8, "even", zero_point=9, residual=residual)


def check(channels, isa, kind, adds, threads=1, **options):
    """Codes at every pixel of two images, whose last strips end within a period."""
    rng = np.random.default_rng(channels)
    residual = Residual("uint8", rng.integers(-3, 4, channels), 5, keep_sum=True) if adds else None
    w, x = rng.choice([-1, 1], (channels, 10, 3, 3)), rng.integers(0, 4, (2, 7, 9, 10))
    how: Epilogue = epilogue(rng, channels, kind, residual)
    sums = Conv2d(w, 2, 2, padding=1, isa=isa, **options)(x)
    given = rng.integers(0, 256, sums.shape).astype(np.uint8) if adds else None
    layer = Conv2d(w, 2, 2, padding=1, isa=isa, image=(7, 9), threads=threads, epilogue=how, **options)
    got = layer(x, residual=given) if adds else layer(x)
    if adds:
        got, kept = got
        np.testing.assert_array_equal(kept, how.value(sums, given))
    np.testing.assert_array_equal(got, how.reference(sums, given) if adds else how.reference(sums))
    return layer.packed.constants.numbers["joined_pixels"]


JOINED = {12: True, 16: True, 29: False, 48: True, 64: False, 100: False}


@pytest.mark.parametrize("isa", quick(["avx2"], of=["avx2", "avx512"]))
@pytest.mark.parametrize("channels", quick([29, 64], of=JOINED))
def test_channels_that_fill_no_unit(isa, channels):
    """29 channels would fill units after too many pixels, as the part of a unit after a pixel is computed later."""
    assert bool(check(channels, isa, "thresholds", adds=False)) is JOINED[channels]


@pytest.mark.parametrize("isa", quick(["avx2"], of=["avx2", "avx512"]))
def test_residuals_and_zero_points(isa):
    """What padding adds is in no sum of the program's; a residual ends with its last pixel."""
    assert check(20, isa, "requantize", adds=True, zero_point=1)
    assert check(24, isa, "thresholds", adds=True, threads=3)


@pytest.mark.parametrize("channels", [29, 100])
def test_units_that_reach_into_pixels_of_other_threads(channels):
    for threads in (2, 5):
        assert not check(channels, "avx2", "requantize", adds=False, threads=threads)
        assert not check(channels, "avx2", "thresholds", adds=True, threads=threads)


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["avx2", "avx512", "avxvnni", "neon", "armv7_neon"])
@pytest.mark.parametrize("kind", ["thresholds", "requantize"])
def test_on_every_set(isa, kind, skip_isa, skip_lesser):
    skip_lesser(isa)
    try:
        for channels in (12, 20, 29, 80):
            for adds in (False, True):
                check(channels, isa, kind, adds, zero_point=1)
    except ToolError as why:
        skip_isa(isa, str(why))

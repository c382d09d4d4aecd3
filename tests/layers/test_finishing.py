"""Epilogues that layers have as programs: what they make of sums is what Python says of them."""

import numpy as np
import pytest

from bitsynth.layers import Conv2d, Thresholds, unpack_words

RNG = np.random.default_rng(5)
W = RNG.integers(0, 2, (70, 24, 3, 3)) * 2 - 1
X = RNG.integers(0, 4, (1, 5, 6, 24))


@pytest.fixture(scope="module")
def sums():
    return Conv2d(W, 2, 1, padding=1)(X)


@pytest.mark.parametrize("out_layout", ["NHWC", "packed"])
def test_falling_channels(sums, out_layout):
    levels = np.sort(RNG.choice(sums.reshape(-1), (70, 3)), axis=1)
    epilogue = Thresholds(levels, rising=RNG.integers(0, 2, 70).astype(bool))
    layer = Conv2d(W, 2, 1, padding=1, epilogue=epilogue, out_layout=out_layout)
    got = layer(X)
    codes = got if out_layout == "NHWC" else unpack_words(np.asarray(got), 2, 70)
    np.testing.assert_array_equal(codes, epilogue.reference(sums))
    assert layer.packed.programs.program is not None
    order = list(layer.packed.programs.program.order)
    assert sorted(order) == list(range(len(order)))

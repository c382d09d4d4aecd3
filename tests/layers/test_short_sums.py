"""Sums whose low 16 bits are all: thresholds of them where no input makes others, at both ends."""

import numpy as np
import pytest
from support.case_selection import quick

from bitsynth.errors import ToolError
from bitsynth.layers import Conv2d, Thresholds, pack_words
from bitsynth.layers.schedule import LayerSchedule

POPCOUNT = LayerSchedule("neon", "popcount", 64, "direct")
LEVELS = np.array([-32766, 0, 32766])


def layer(channels, bias=0):
    """All weights of one sign, +1 in even channels, of activations up to 3."""
    weight = np.ones((64, channels, 1, 1), np.int64)
    weight[1::2] = -1
    return Conv2d(weight, 2, 1, schedule=POPCOUNT, layout="packed", epilogue=Thresholds(LEVELS), bias=bias)


@pytest.mark.parametrize(
    ("channels", "bias", "is_short"),
    [(10922, 0, True), (10922, 1, True), (10922, 2, False), (10923, 0, False), (1, -32764, True), (1, -32765, False)],
)
def test_sums_are_short_if_no_input_makes_others(channels, bias, is_short):
    """3 * 10922 is 32766."""
    assert ("short" in layer(channels, bias).packed.programs.program.spec.name) == is_short


@pytest.mark.parametrize(
    ("channels", "bias"),
    quick([(10922, 1), (10923, 0)], of=[(10922, 1), (10922, 2), (10923, 0), (11000, -9)], spread=True),
)
def test_results_at_both_ends(channels, bias, skip_isa):
    codes = np.zeros((1, 2, 2, channels), np.uint8)
    codes[0, 0, 0], codes[0, 0, 1, :2], codes[0, 1, 0, : channels // 2] = 3, 2, 3
    conv = layer(channels, bias)
    sums = codes.astype(np.int64).sum(axis=-1)[..., None] * np.where(np.arange(64) % 2, -1, 1) + bias
    try:
        got = conv.run(pack_words(codes, 2))
    except ToolError as why:
        skip_isa("neon", str(why))
    np.testing.assert_array_equal(got, pack_words((sums[..., None] > LEVELS).sum(axis=-1).astype(np.uint8), 2))

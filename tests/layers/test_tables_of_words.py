"""Rows of tables that are looked up by the bits of packed words, compared with tables computed from codes."""

import numpy as np
import pytest

from bitsynth.emit.kernel import expands_bytes
from bitsynth.emit.packing import takes_tables
from bitsynth.errors import ToolError
from bitsynth.layers import Conv2d, pack_words
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.matmul import get_kernel

WIDTHS = [("pairs", 1, 1), ("pairs", 2, 1), ("pairs", 2, 2), ("lookup", 3, 3), ("lookup", 4, 4)]
SLOW = pytest.mark.slow


def kernel(isa, method, act_bits, w_bits):
    return get_kernel(isa, act_bits, w_bits, method=method, channels=64).entry.kernel


@pytest.mark.parametrize(("method", "act_bits", "w_bits"), WIDTHS)
def test_tables_that_fill_registers_are_taken(method, act_bits, w_bits):
    taken = kernel("neon", method, act_bits, w_bits)
    assert takes_tables(taken)
    assert not expands_bytes(taken)


def test_other_rows_are_made_of_codes():
    assert not takes_tables(kernel("avx2", "lookup", 2, 1))
    assert not takes_tables(kernel("neon", "popcount", 2, 1))


@pytest.mark.parametrize("widths", [WIDTHS[1], *(pytest.param(x, marks=SLOW) for x in WIDTHS if x != WIDTHS[1])])
@pytest.mark.parametrize(
    ("act", "window"),
    [("unsigned", (1, 1, 1, "direct")), ("signed", (67, 3, 2, "direct")), ("unsigned", (200, 1, 2, "im2col"))],
)
def test_words_give_the_sums_of_their_codes(widths, act, window, skip_isa):
    (method, act_bits, w_bits), (channels, size, stride, gather) = widths, window
    rng = np.random.default_rng(channels)
    codes = rng.integers(0, 1 << act_bits, (2, 6, 7, channels), np.uint8)
    values = np.arange(1 << w_bits) * 2 - (1 << w_bits) + 1
    weight = rng.choice(values, (70, channels, size, size))
    schedule = LayerSchedule("neon", method, 64, gather)
    options = {"act_encoding": act, "stride": stride, "padding": size // 2, "schedule": schedule, "out_layout": "NHWC"}
    words, plain = (Conv2d(weight, act_bits, w_bits, layout=of, **options) for of in ("packed", "NHWC"))
    try:
        got = words.run(pack_words(codes, act_bits))
    except ToolError as why:
        skip_isa("neon", str(why))
    np.testing.assert_array_equal(got, plain.run(codes))

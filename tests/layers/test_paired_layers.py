"""Layers whose kernels read rows in pairs: pixels that are computed together share bytes."""

import numpy as np
import pytest
from support.layer_cases import Case, machine

from bitsynth.errors import SpecError
from bitsynth.layers import Conv2d, planning
from bitsynth.layers.candidates import candidates
from bitsynth.layers.cost import Estimate
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.planning import rank
from bitsynth.layers.schedule import LayerSchedule, gathers
from bitsynth.layers.spec import LayerSpec
from bitsynth.spec.matmul import Encoding, MatmulOperand


def spec(image, channels=128, size=3):
    geometry = Geometry(channels, channels, 1, (size, size), (1, 1), (size // 2,) * 4, (1, 1))
    return LayerSpec(MatmulOperand(2, Encoding.UNSIGNED), MatmulOperand(1, Encoding.BIPOLAR), geometry, image=image)


def estimate(image, **how):
    """The kernel of four rows by 64 columns on the Cortex-A53."""
    result = spec(image)
    (candidate,) = [x for x in candidates(result.act, result.wgt, "neon") if (x.method, x.channels) == ("pairs", 64)]
    return Estimate(candidate, result, "direct", 4, "a53", **how)


def test_neighbours_in_the_image_of_padding_have_no_pairs():
    assert gathers(pairs=True) == ("direct", "im2col")
    weight = np.ones((64, 64, 3, 3), int)
    with pytest.raises(SpecError, match="reads rows in pairs: gather is direct or im2col, not indirect"):
        Conv2d(weight, 2, 1, isa="neon", schedule=LayerSchedule("neon", "pairs", 64, "indirect"))


def test_windows_of_neighbours_are_read_once_where_loads_block():
    """Of a tile of four pixels two pairs of three taps are five pixels a line; a line of the window has six."""
    found = estimate((28, 28))
    a_pixel = 128 // 4 * 16
    assert found._tile_bytes == 3 * 5 * a_pixel


@pytest.mark.parametrize(("cpu", "orders"), [("a53", {False, True}), ("a72", {False})])
def test_columns_come_first_only_where_what_is_read_is_waited_for(cpu, orders):
    found = rank(spec((28, 28)), "neon", cpu=cpu)
    assert {x.schedule.columns_first for x in found if x.candidate.method == "pairs"} == orders


def test_weights_that_stay_near_are_read_once():
    """Lines of tables do not stay beside weights of 18 KB: each comes three times for each tile of columns."""
    pixels, columns = (estimate((28, 28), columns_first=first) for first in (False, True))
    assert sum(columns._far_bytes) < sum(pixels._far_bytes) / 3


def test_what_no_step_asks_for_is_waited_for():
    """Loops of 21 steps ask for nothing in the first, which is apart, nor in the last turn.

    Steps of 16 bytes a row ask for lines 64 bytes ahead; a segment is 3 pixels of 128 codes, four bytes each.
    """
    found = estimate((28, 28))
    rows, weights = found._far_bytes
    asked, start = 19 / 21, 64 / (3 * 128 * 4)
    assert found._stall_bytes(rows, weights) == pytest.approx(rows * (1 - asked * (1 - start)) + weights * (1 - asked))


@pytest.mark.parametrize(("k_step", "asked"), [(0, 17 / 18), (128, 8 / 9)])
def test_loops_that_go_on_from_segment_to_segment_end_once(k_step, asked):
    """Three rows of three pixels of 128 channels: 18 steps of 64 positions, or 9 of 128."""
    operands = MatmulOperand(1, Encoding.UNSIGNED), MatmulOperand(1, Encoding.BIPOLAR)
    geometry = Geometry(128, 128, 1, (3, 3), (1, 1), (1,) * 4, (1, 1))
    spec = LayerSpec(*operands, geometry, image=(28, 28))
    (found,) = (
        x
        for x in candidates(*operands, "neon", methods=["popcount"])
        if (x.channels, x.kernel_options.k_step, x.model) == (64, k_step, "ops")
    )
    assert Estimate(found, spec, "direct", 12, "a53")._prefetching_share == pytest.approx(asked)


def test_loops_of_two_steps_ask_for_nothing():
    """Products of 3 by 3 bits have such: weights are read again for every tile of pixels unless columns come first."""
    operands = MatmulOperand(3, Encoding.UNSIGNED), MatmulOperand(3, Encoding.BIPOLAR)
    geometry = Geometry(64, 128, 1, (3, 3), (2, 2), (1,) * 4, (1, 1))
    spec = LayerSpec(*operands, geometry, image=(56, 56))
    (found,) = (x for x in candidates(*operands, "neon") if (x.method, x.channels) == ("multiply", 32))
    first = Estimate(found, spec, "direct", 4, "a53")
    assert first._stall_bytes(0.0, 1000.0) == 1000.0
    products = [x for x in rank(spec, "neon", cpu="a53") if x.candidate.method == "multiply"]
    assert planning.choose_by_prediction(products).schedule.columns_first


@pytest.mark.parametrize("w_bits", [1, 2])
@pytest.mark.parametrize(
    ("image", "channels", "stride", "layout"),
    [((7, 9), (128, 70), (1, 1), "NHWC"), ((6, 7), (20, 33), (2, 1), "packed"), ((5, 8), (64, 64), (1, 2), "NCHW")],
)
def test_layers_of_pairs_are_exact_on_avx2(image, channels, stride, layout, w_bits):
    """Lines of odd and even widths, pixels whose tables fill no registers, and strides of either direction."""
    case = Case(machine("avx2", "pairs", 1, w_bits), 2, image, channels, (3, 3), stride, (1, 1, 1, 1), layout=layout)
    layer, given, want = case.prepared()
    np.testing.assert_array_equal(layer(given), want)


def test_default_layers_are_of_pairs_where_merged_tables_serve_many_products():
    """A 3 x 3 window of 128 channels merges a table for 9 x 128 columns, a 1 x 1 window of 64 channels for 64."""
    operands = MatmulOperand(1, Encoding.UNSIGNED), MatmulOperand(1, Encoding.BIPOLAR)
    for channels, size, method in ((128, 3, "pairs"), (64, 1, "lookup")):
        geometry = Geometry(channels, channels, 1, (size, size), (1, 1), (size // 2,) * 4, (1, 1))
        spec = LayerSpec(*operands, geometry, image=(28, 28))
        assert planning.default_schedule(spec, "avx2", cpu="zen4").method == method

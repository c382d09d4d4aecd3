"""Grids of quantizers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitsynth.errors import SpecError
from bitsynth.quantization.grids import (
    LEAST_SQUARES,
    MIN_MAX,
    RangeRule,
    WeightCodes,
    activation_grid,
    range_rule,
    shorten,
    weight_grid,
)


@pytest.fixture
def rng():
    return np.random.default_rng(11)


@settings(max_examples=50)
@given(st.integers(2, 8), st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=50))
def test_a_grid_of_activations_holds_0_and_is_as_close_as_the_whole_range(bits, numbers):
    values = np.array(numbers, np.float32)
    grid = activation_grid(values, bits)
    low, high = grid.limits
    assert low <= grid.zero <= high
    assert grid.quantize(np.zeros(1, np.float32)) == 0
    whole = max(0.0, float(values.max())) - min(0.0, float(values.min()))
    step = whole / high
    assert np.square(values - grid.quantize(values)).mean() <= (step / 2 + 0.02 * whole) ** 2 + 1e-30


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_grid_of_weights_has_a_scale_a_channel(bits, axis, rng):
    weights = rng.normal(size=(6, 5)).astype(np.float32) * np.logspace(-2, 2, (6, 5)[axis]).reshape(
        (-1, 1)[:: 1 - 2 * axis]
    )
    grid = weight_grid(weights, WeightCodes(bits), axis)
    assert grid.scale.size == (6, 5)[axis]
    error = np.abs(weights - grid.quantize(weights)) / grid.scale
    assert (error[np.abs(weights) <= grid.scale * grid.limits[1]] <= 0.5001).all() or bits == 1


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_bipolar_weights_are_odd(bits, rng):
    """Four values lose less of normal weights than the three of narrow codes."""
    weights = rng.normal(size=(6, 500)).astype(np.float32)
    narrow, bipolar = (weight_grid(weights, WeightCodes(bits, is_bipolar), 0) for is_bipolar in (False, True))
    codes = np.unique(np.rint(bipolar.quantize(weights) / bipolar.scale))
    assert codes.tolist() == list(range(1 - 2**bits, 2**bits, 2))
    numbers = bipolar.quantize(weights)
    inside = np.abs(weights) <= bipolar.scale * 2**bits
    assert (np.abs(weights - numbers)[inside] <= 1.0001 * np.broadcast_to(bipolar.scale, weights.shape)[inside]).all()
    assert np.square(weights - numbers).mean() < np.square(weights - narrow.quantize(weights)).mean()


def test_weights_of_0_have_a_grid():
    grid = weight_grid(np.zeros((2, 4), np.float32), WeightCodes(4), 0)
    assert (grid.scale > 0).all()
    assert not grid.quantize(np.zeros((2, 4), np.float32)).any()


@given(st.floats(1e-30, 1e30))
def test_short_scales_are_near(scale):
    short = float(shorten(scale))
    assert abs(short - scale) <= 2.0**-6 * scale
    assert (np.frexp(short)[0] * 64).is_integer()


@pytest.mark.parametrize("significant", [1, 3])
def test_scales_have_as_many_significant_bits_as_asked(significant, rng):
    values = np.abs(rng.normal(size=500)).astype(np.float32)
    grids = (
        activation_grid(values, 8, significant),
        weight_grid(values.reshape(10, 50), WeightCodes(8), 0, lambda s: shorten(s, significant)),
    )
    for grid in grids:
        assert (np.frexp(grid.scale)[0] * 2**significant % 1 == 0).all()


@settings(max_examples=50)
@given(st.integers(2, 8), st.integers(1, 6), st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=50))
def test_min_max_is_off_by_half_a_step_at_most(bits, significant, numbers):
    """Of numbers with a sign the zero point, which is even, may shift the range by another half a step."""
    values = np.array(numbers, np.float32)
    grid = activation_grid(values, bits, significant, MIN_MAX)
    off = np.abs(values - grid.quantize(values)).max()
    assert off <= grid.scale * (0.5001 if (values >= 0).all() else 1.0001)


def test_a_percentile_leaves_outliers_out(rng):
    values = np.append(np.abs(rng.normal(size=9999)), 1000).astype(np.float32)
    ends = {p: activation_grid(values, 8, 6, RangeRule(p)).scale * 255 for p in (99.0, 99.9, 100.0)}
    assert 2 < ends[99.0] < ends[99.9] < 5
    assert ends[100.0] > 900
    assert activation_grid(np.append(np.zeros(9999), 7).astype(np.float32), 8, 6, RangeRule(99.0)).scale > 0.02


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("auto", LEAST_SQUARES),
        ("mse", LEAST_SQUARES),
        ("minmax", MIN_MAX),
        ("percentile", RangeRule(99.9)),
        ("percentile=99.99", RangeRule(99.99)),
        ("percentile=100", MIN_MAX),
    ],
)
def test_rules_of_ranges_have_names(text, rule):
    assert range_rule(text) == rule


@pytest.mark.parametrize("text", ["", "max", "percentile=50", "percentile=101", "percentile=1e2", "percentile="])
def test_other_names_of_ranges_are_refused(text):
    with pytest.raises(SpecError, match="ranges are auto"):
        range_rule(text)

"""Rounding of weights by the inputs that were seen."""

import itertools

import numpy as np
import pytest

from bitsynth.quantization.grids import WeightCodes, shorten, weight_grid
from bitsynth.quantization.rounding import learn_rounding, round_by_inputs


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def correlated_inputs(rng, depth):
    """Return inputs (400, depth) that follow 6 numbers but for noise."""
    return rng.normal(size=(400, 6)) @ rng.normal(size=(6, depth)) + rng.normal(size=(400, depth)) / 10


def lost(inputs, weights, rounded):
    """Return the mean squared error of products of inputs."""
    return np.square(inputs @ (rounded - weights).T).mean()


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_rounding_by_inputs_loses_less_of_products(bits, rng):
    """Correlated inputs: errors of one weight are made good by others."""
    inputs = correlated_inputs(rng, 24)
    weights = rng.normal(size=(8, 24)).astype(np.float32)
    grid = weight_grid(weights, WeightCodes(bits), 0)
    rounded = round_by_inputs(weights, grid, inputs.T @ inputs)
    codes = rounded / grid.scale
    assert np.allclose(codes, np.rint(codes), atol=1e-3)
    assert np.abs(codes).max() <= grid.limits[1] + 1e-3

    assert lost(inputs, weights, rounded) < 0.7 * lost(inputs, weights, grid.quantize(weights))


@pytest.mark.parametrize(("bits", "share"), [(1, 0.5), (2, 0.6), (3, 1.0), (4, 1.0), (8, 1.0)])
def test_learned_rounding_loses_less_than_gptq(bits, share, rng):
    """Of 1 bit, than the nearest codes. Columns of several blocks."""
    inputs = correlated_inputs(rng, 150)
    weights = rng.normal(size=(8, 150)).astype(np.float32)
    grid = weight_grid(weights, WeightCodes(bits), 0)
    first = grid.quantize(weights) if bits == 1 else round_by_inputs(weights, grid, inputs.T @ inputs)
    learned, rounded = learn_rounding(weights, grid, inputs.T @ inputs, shorten)
    codes = rounded / learned.scale
    assert np.allclose(codes, np.rint(codes), atol=1e-3)
    assert set(np.unique(np.abs(np.rint(codes)))) <= ({1} if bits == 1 else set(range(learned.limits[1] + 1)))
    assert (learned.scale == shorten(learned.scale)).all()
    assert lost(inputs, weights, rounded) <= share * lost(inputs, weights, first) * (1 + 1e-6)


def test_learned_codes_are_near_the_best_of_all(rng):
    """With the scale that was learned, no choice of 6 ternary codes loses much less."""
    inputs = correlated_inputs(rng, 6)
    weights = rng.normal(size=(5, 6)).astype(np.float32)
    grid, rounded = learn_rounding(weights, weight_grid(weights, WeightCodes(2), 0), inputs.T @ inputs, shorten)
    every = np.array(list(itertools.product((-1, 0, 1), repeat=6)))
    for channel in range(5):
        best = min(lost(inputs, weights[[channel]], codes[None] * grid.scale[channel]) for codes in every)
        assert lost(inputs, weights[[channel]], rounded[[channel]]) <= 1.5 * best


@pytest.mark.parametrize("bits", [1, 2, 8])
def test_weights_and_inputs_of_0_can_be_rounded(bits):
    weights = np.zeros((2, 4), np.float32)
    grid, rounded = learn_rounding(weights, weight_grid(weights, WeightCodes(bits), 0), np.zeros((4, 4)), shorten)
    assert np.isfinite(rounded).all()
    assert (grid.scale > 0).all()

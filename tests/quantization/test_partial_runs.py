"""Runs that start in the middle of a network."""

import numpy as np
import pytest
from support.onnx_files import float_network, node

from bitsynth.quantization import partial_runs
from bitsynth.quantization.float_model import FloatRunner
from bitsynth.quantization.partial_runs import PartialRuns

pytest.importorskip("onnxruntime")


def residual(rng, gain):
    """A network with a residual addition; `gain` is the gain of its last product."""
    weights = {"w1": rng.normal(size=(4, 3)), "w2": gain * np.ones((3, 3))}
    nodes = [
        node("MatMul", "x w1", "a"),
        node("Relu", "a", "b"),
        node("MatMul", "b w2", "c"),
        node("Add", "c a", "y"),
    ]
    return float_network(nodes, {"x": (2, 4)}, weights)


@pytest.mark.parametrize("most", [1 << 30, 8])
def test_a_run_from_a_place_gives_what_a_whole_run_gives(most, monkeypatch):
    """Also where nothing may be kept."""
    monkeypatch.setattr(partial_runs, "_MAX_BYTES", most)
    samples = [{"x": x} for x in np.random.default_rng(1).normal(size=(3, 2, 4)).astype(np.float32)]
    runs = PartialRuns(samples)
    for place in range(5):
        runs.advance(residual(np.random.default_rng(2), 1.0), place)
        gain = 2.0 if place < 3 else 1.0  # the nodes after the place may change
        other = residual(np.random.default_rng(2), gain)
        whole = FloatRunner(other, ["y"])
        for sample, values in zip(samples, runs.run(other, ["y"]), strict=True):
            np.testing.assert_array_equal(values["y"], whole(sample)["y"])


def test_what_is_before_a_place_is_not_run_again():
    samples = [{"x": np.ones((2, 4), np.float32)}]
    runs = PartialRuns(samples)
    runs.advance(residual(np.random.default_rng(2), 1.0), 2)
    other = residual(np.random.default_rng(3), 1.0)  # other weights of the first product
    (values,) = runs.run(other, ["y"])
    assert (values["y"] == FloatRunner(residual(np.random.default_rng(2), 1.0), ["y"])(samples[0])["y"]).all()

"""Equalization of channels across layers."""

import numpy as np
import pytest
from support.onnx_files import float_network, node

from bitsynth.quantization.equalization import equalize
from bitsynth.quantization.float_model import FloatModel, FloatRunner

pytest.importorskip("onnxruntime")


VERY_UNEVEN = (0, 4, -3, 5, -5, 1, 2, -4)


def depthwise(middle, *, more=(), exponents=VERY_UNEVEN):
    """A network of a convolution whose channels have different ranges, `middle`, a depthwise and a dense layer."""
    rng = np.random.default_rng(2)
    uneven = np.exp2(exponents).astype(np.float32)
    values = {
        "w1": rng.normal(size=(8, 3, 3, 3)) * uneven[:, None, None, None],
        "b1": rng.normal(size=8) * uneven,
        "w2": rng.normal(size=(8, 1, 3, 3)) / uneven[:, None, None, None],
        "w3": rng.normal(size=(8, 5)) / 3,
        "b3": rng.normal(size=5),
        "zero": np.array(0),
        "six": np.array(6),
    }
    nodes = [
        node("Conv", "x w1 b1", "c1"),
        *middle,
        node("Conv", "a1 w2", "c2", group=8),
        node("Relu", "c2", "a2"),
        node("GlobalAveragePool", "a2", "p"),
        node("Flatten", "p", "f"),
        node("Gemm", "f w3 b3", "y"),
        *more,
    ]
    return FloatModel(float_network(nodes, {"x": (1, 3, 8, 8)}, values, outputs="y z" if more else "y"))


@pytest.fixture(scope="module")
def samples():
    return [{"x": x} for x in np.random.default_rng(1).normal(size=(6, 1, 3, 8, 8)).astype(np.float32)]


@pytest.mark.parametrize("op", ["Relu", "LeakyRelu"])
def test_the_float_network_gives_the_same_numbers(op, samples):
    network = depthwise([node(op, "c1", "a1")])
    equalized = equalize(network, samples)
    assert equalized.edges == ("a1",)
    before, after = (FloatRunner(each.model, ["a1", "y"]) for each in (network, equalized.network))
    ranges = []
    for sample in samples:
        one, other = before(sample), after(sample)
        np.testing.assert_array_equal(one["y"], other["y"])
        ranges.append([np.abs(each["a1"]).max(axis=(0, 2, 3)) for each in (one, other)])
    spread = [np.ptp(np.log2(most)) for most in np.max(ranges, axis=0)]
    assert spread[0] > 8
    assert spread[1] <= 1.01


def test_channels_that_differ_little_are_equal_before_a_depthwise_product(samples):
    """Each result reads one channel, so that no weights share a scale. The largest channel loses none of its codes."""
    network = depthwise([node("Relu", "c1", "a1")], exponents=(0, 1.2, 0, 0.7, 0, 2.3, 0, 0.4))
    ranges = []
    for each in (network, equalize(network, samples).network):
        run = FloatRunner(each.model, ["a1"])
        ranges.append(np.max([run(sample)["a1"].max(axis=(0, 2, 3)) for sample in samples], axis=0))
    before, after = (each / each.max() for each in ranges)
    assert before.min() < 0.3
    assert after.min() > 0.5
    assert after[before.argmax()] == 1


@pytest.mark.parametrize(
    ("middle", "more", "why"),
    [
        ([node("Clip", "c1 zero six", "a1")], [], "Clip is not homogeneous"),
        ([node("Relu", "c1", "a1")], [node("ReduceMean", "a1", "z")], "several nodes read a1"),
    ],
)
def test_what_would_change_results_is_left(middle, more, why, samples):
    equalized = equalize(depthwise(middle, more=more), samples)
    assert "a1" not in equalized.edges
    assert equalized.left["a1"] == why


def test_even_channels_are_left(samples):
    network = depthwise([node("Relu", "c1", "a1")])
    once = equalize(network, samples).network
    assert equalize(once, samples).edges == ()


def test_pools_along_the_channels_of_a_matrix_product_are_left():
    rng = np.random.default_rng(2)
    uneven = rng.normal(size=(8, 8)) * [1, 1, 1, 1024, 1, 1, 1, 1]
    nodes = [
        node("MatMul", "x w1", "c1"),
        node("MaxPool", "c1", "p", kernel_shape=[1, 2], strides=[1, 2]),
        node("MatMul", "p w2", "y"),
    ]
    constants = {"w1": uneven, "w2": rng.normal(size=(4, 5))}
    network = FloatModel(float_network(nodes, {"x": (1, 1, 8, 8)}, constants))
    equalized = equalize(network, [{"x": rng.normal(size=(1, 1, 8, 8)).astype(np.float32)}])
    assert equalized.edges == ()
    assert equalized.left == {"p": "a pool mixes channels of c1, which are along the last axis"}


@pytest.mark.parametrize("size", [3e38, 1e-44])
def test_weights_that_float32_would_not_hold_are_left(size, samples):
    rng = np.random.default_rng(2)
    uneven = np.exp2([0, 4, -3, 5, -5, 1, 2, -4])[:, None, None, None]
    nodes = [node("Conv", "x w1", "c1"), node("Relu", "c1", "a1"), node("Conv", "a1 w2", "y", group=8)]
    constants = {"w1": rng.normal(size=(8, 3, 3, 3)) * uneven, "w2": np.full((8, 1, 3, 3), size)}
    equalized = equalize(FloatModel(float_network(nodes, {"x": (1, 3, 8, 8)}, constants)), samples)
    assert equalized.edges == ()
    assert equalized.left == {"a1": "float32 does not hold the scaled weights"}

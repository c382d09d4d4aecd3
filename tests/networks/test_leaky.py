"""Leaky ReLUs behind products: thresholds of the layer where no slope is negative, and the reference's codes anyway."""

import copy
from typing import Any

import numpy as np
import pytest
from support.certificate_networks import layer
from support.certificates import certified, encode_json_array, failure
from support.onnx_files import QONNX, model, node

import bitsynth
from bitsynth.graph import run
from bitsynth.network.certificate import checker

SLOPES = {
    "0": np.zeros(1),
    "0.1": np.full(1, 0.1),
    "1.7": np.full(1, 1.7),
    "by channel": np.linspace(0, 0.9, 8).reshape(8, 1, 1),
    "one negative": np.linspace(-0.3, 0.9, 8).reshape(8, 1, 1),
    "-0.25": np.full(1, -0.25),
}


def network(rng, slope, op):
    """A convolution of codes of 2 bits, a batch norm with gains of both signs, PRelu or LeakyRelu, and a quantizer."""
    about: dict[str, Any] = {"domain": QONNX, "signed": 1, "narrow": 0, "rounding_mode": "ROUND"}
    constants = {"s": np.float32(0.5), "t": np.float32(0.75), "z": np.float32(0), "b": np.float32(2)}
    constants |= {"w": rng.choice([-1.0, 0, 1.0], (8, 16, 3, 3)), "slope": slope, "d": np.float32(3)}
    constants |= {k: rng.normal(size=8) for k in ("gain", "bias", "mean")} | {"variance": rng.uniform(0.5, 2, 8)}
    bend = node("PRelu", "n slope", "a") if op == "PRelu" else node("LeakyRelu", "n", "a", alpha=float(slope[0]))
    nodes = [node("Quant", "x s z b", "q", **about), node("Conv", "q w", "c", pads=[1] * 4),
             node("BatchNormalization", "c gain bias mean variance", "n"), bend,
             node("Quant", "a t z d", "y", **about)]  # fmt: skip
    return model(nodes, {"x": (1, 16, 6, 6)}, {k: np.asarray(v, np.float32) for k, v in constants.items()})


CASES = [
    (name, op, "exact") for name in SLOPES for op in ("PRelu", "LeakyRelu") if SLOPES[name].size == 1 or op == "PRelu"
]
CASES += [("by channel", "PRelu", "onnx"), ("0.1", "LeakyRelu", "onnx"), ("-0.25", "LeakyRelu", "onnx")]


@pytest.mark.parametrize(("name", "op", "reference"), CASES)
def test_slopes_of_0_or_more_are_thresholds(rng, name, op, reference):
    slope = SLOPES[name]
    net = bitsynth.compile(network(rng, slope, op), isa="avx2", reference=reference)
    is_in_layer = any(s.kind == "layer" and len(s.nodes) == 4 for s in net.program.steps)
    assert is_in_layer == bool((slope >= 0).all())
    x = {"x": rng.normal(size=(1, 16, 6, 6)).astype(np.float32)}
    np.testing.assert_array_equal(net(x), run(net.graph, x).outputs()[0])


@pytest.mark.parametrize("slope", [0.1, np.linspace(0, 0.9, 6, dtype=np.float32).reshape(1, 6, 1, 1)])
def test_thresholds_of_a_leaky_relu_are_claimed_and_hold(slope):
    graph = layer(np.random.default_rng(3), between=lambda b, x: b.add("leaky_relu", x, alpha=slope), low=-3, high=3)
    found = certified(graph)
    (k,) = [k for k, step in enumerate(found["steps"]) if step["claims"] and step["claims"][0]["by"] == "thresholds"]
    assert found["steps"][k]["unclaimed"] == ""
    assert failure(found) == ""
    negative = copy.deepcopy(found)
    constants = negative["steps"][k]["constants"]
    changed = 0
    for name, array in constants.items():
        numbers = checker.array(array)
        if np.array_equal(np.sort(numbers.ravel()), np.sort(np.ravel(np.asarray(slope, numbers.dtype)))):
            constants[name], changed = encode_json_array(-1 - numbers), changed + 1
    assert changed == 1
    assert failure(negative) != ""

"""Activations and norms that are written in other operators: what their definition says, in every reference."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.onnx_files import QONNX, model, node

import bitsynth
from bitsynth.errors import SpecError
from bitsynth.graph import read, run

SHAPE = (2, 4, 3, 5)
COLUMN = np.array([0.25, -1, 0.5, 2], np.float32).reshape(4, 1, 1)


def softplus(x):
    return np.logaddexp(x, 0)


def normed(x, *axes):
    apart = x - x.mean(axes, keepdims=True)
    return apart / np.sqrt((apart**2).mean(axes, keepdims=True) + 1e-5)


def log_softmax(x):
    return x - np.log(np.exp(x).sum(1, keepdims=True))


GATES: dict[str, Callable[[Any], Any]] = {
    "none": np.vectorize(lambda x: math.erf(x / math.sqrt(2))),
    "tanh": lambda x: np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)),
}
DEFINED: dict[str, tuple[Callable[[Any], Any], dict[str, Any]]] = {
    "Celu": (lambda x: np.where(x > 0, x, 1.5 * np.expm1(x / 1.5)), {"alpha": 1.5}),
    "Elu": (lambda x: np.where(x > 0, x, 0.5 * np.expm1(x)), {"alpha": 0.5}),
    "Erf": (np.vectorize(math.erf), {}),
    "LogSoftmax": (log_softmax, {"axis": 1}),
    "Mish": (lambda x: x * np.tanh(softplus(x)), {}),
    "Selu": (lambda x: 3 * np.where(x > 0, x, 2 * np.expm1(x)), {"gamma": 3.0, "alpha": 2.0}),
    "Softplus": (softplus, {}),
    "Softsign": (lambda x: x / (1 + abs(x)), {}),
    "Swish": (lambda x: x / (1 + np.exp(-1.7 * x)), {"alpha": 1.7}),
}
CASES: dict[str, tuple[str, Callable[[Any], Any], dict[str, Any], str, dict[str, Any]]] = {
    name: (name, *rest, "x", {}) for name, rest in DEFINED.items()
}


def gelu(gate):
    return lambda x: x / 2 * (1 + gate(x))


CASES |= {f"Gelu, {how}": ("Gelu", gelu(gate), {"approximate": how}, "x", {}) for how, gate in GATES.items()}
CASES["PRelu"] = ("PRelu", lambda x: np.where(x < 0, x * COLUMN, x), {}, "x s", {"s": COLUMN})
ROW = {"g": np.arange(1, 6, dtype=np.float32), "b": np.arange(5, dtype=np.float32)}
CHANNELS = {"g": np.arange(1, 5, dtype=np.float32), "b": np.arange(4, dtype=np.float32)}
BY_CHANNEL = [x.reshape(4, 1, 1) for x in CHANNELS.values()]
CASES["LayerNormalization"] = ("LayerNormalization", lambda x: normed(x, 3) * ROW["g"] + ROW["b"], {}, "x g b", ROW)
CASES["InstanceNormalization"] = (
    "InstanceNormalization",
    lambda x: normed(x, 2, 3) * BY_CHANNEL[0] + BY_CHANNEL[1],
    {},
    "x g b",
    CHANNELS,
)
CASES["GroupNormalization"] = (
    "GroupNormalization",
    lambda x: normed(x.reshape(2, 2, 2, 3, 5), 2, 3, 4).reshape(SHAPE) * BY_CHANNEL[0] + BY_CHANNEL[1],
    {"num_groups": 2},
    "x g b",
    CHANNELS,
)


@pytest.mark.parametrize("reference", ["exact", "onnxruntime", "onnx"])
@pytest.mark.parametrize("name", CASES)
def test_activations_follow_their_definition(rng, name, reference):
    op, formula, options, inputs, constants = CASES[name]
    graph = read(model([node(op, inputs, **options)], {"x": SHAPE}, constants, opset=24), reference=reference)
    graph.check()
    x = (rng.normal(size=SHAPE) * 3).astype(np.float32)
    got = run(graph, {"x": x}).outputs()[0]
    np.testing.assert_allclose(got, formula(x.astype(np.float64)), rtol=3e-6, atol=3e-6)


def test_functions_of_great_numbers():
    """Where e**x leaves float32."""
    x = np.array([[-200, -90, 90, 200]], np.float32)
    for op, want in (("Softplus", np.maximum(x, 0)), ("Mish", np.maximum(x, 0)), ("LogSoftmax", x - 200)):
        graph = read(model([node(op, "x")], {"x": x.shape}, opset=18), reference="onnx")
        np.testing.assert_allclose(run(graph, {"x": x}).outputs()[0], want, atol=1e-30)


@pytest.mark.parametrize(("groups", "opset"), [(3, 21), (0, 21), (2, 18)])
def test_odd_groups_are_refused(groups, opset):
    onnx_model = model([node("GroupNormalization", "x g b", num_groups=groups)], {"x": SHAPE}, CHANNELS, opset=opset)
    with pytest.raises(SpecError, match=f"{groups} groups of 4 channels"):
        read(onnx_model)


@pytest.mark.parametrize("rounding", ["FLOOR", "CEIL", "ROUND"])
def test_powers_beyond_float64_have_the_greatest_code(rounding):
    """They are infinite in C, where the rest of a pair of float64 would make them NaN, and that the least code."""
    nodes = [
        node("Quant", "x one z b", "q", domain=QONNX, signed=1, narrow=0),
        node("Mul", "q k", "m"),
        node("Exp", "m", "e"),
        node("Mul", "e k", "f"),
        node("Add", "f e", "g"),
        node("Quant", "g s z b", "y", domain=QONNX, signed=1, narrow=0, rounding_mode=rounding),
    ]
    scales = {"one": np.float32(1), "k": np.float32(11.3), "s": np.float32(3e38)}
    onnx_model = model(nodes, {"x": (1, 8)}, scales | {"z": np.float32(0), "b": np.float32(7)})
    x = np.array([[63, 64, 62, 8, 7, -63, -64, 0]], np.float32)
    values, net = run(read(onnx_model), {"x": x}), bitsynth.compile(onnx_model, isa="avx2")
    np.testing.assert_array_equal(net(x), values.floats("y"))
    assert (values["y"][0, :3] == 63).all()

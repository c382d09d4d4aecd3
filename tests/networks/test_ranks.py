"""Places of the greatest and least behind functions that rise, where float64 no longer tells numbers apart."""

import numpy as np
import pytest
from support.onnx_files import model, node

import bitsynth
from bitsynth.graph import read

X = np.array([[-1800, -1940, -1900, -1940], [900, 2000, 1000, -3], [-900, 0, 1000, 2000]], np.float32)
CODES = {"scale": np.float32(20), "zero": np.int8(0)}
QDQ = [node("QuantizeLinear", "x scale zero", "q"), node("DequantizeLinear", "q scale zero", "d")]
FUNCTIONS = {
    "sigmoid": [node("Sigmoid", "d", "f")],
    "tanh": [node("Tanh", "d", "f")],
    "softmax": [node("Softmax", "d", "f", axis=1)],
    "both": [node("Softmax", "d", "s", axis=1), node("Sigmoid", "s", "f")],
}


def places_of(x, last):
    return x.shape[1] - 1 - np.flip(x, 1).argmin(1) if last else x.argmin(1)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_least_elements_are_ranked(name, last):
    least = node("ArgMin", "f", "y", axis=1, keepdims=0, select_last_index=last)
    net = bitsynth.compile(model([*QDQ, *FUNCTIONS[name], least], {"x": X.shape}, CODES), isa="avx2")
    assert net(X).tolist() == places_of(X, last).tolist()


def test_the_greatest_two_and_their_values():
    nodes = [*QDQ, *FUNCTIONS["softmax"], node("TopK", "f k", "v y", axis=1)]
    net = bitsynth.compile(model(nodes, {"x": X.shape}, CODES | {"k": np.array([2])}, outputs="v y"), isa="avx2")
    values, places = net(X)
    assert places.tolist() == np.argsort(-X, 1, kind="stable")[:, :2].tolist()
    want = np.exp(X - X.max(1, keepdims=True)).astype(np.float64)
    assert np.allclose(values, -np.sort(-want / want.sum(1, keepdims=True), 1)[:, :2])


@pytest.mark.parametrize("nodes", [[], [node("Relu", "d", "f")], [node("Softmax", "d", "f", axis=0)]])
def test_what_does_not_rise_along_the_axis_stays(nodes):
    least = node("ArgMin", "f" if nodes else "d", "y", axis=1)
    graph = read(model([*QDQ, *nodes, least], {"x": X.shape}, CODES))
    assert sum(x.op == "rank" for x in graph.nodes) == 1
    assert not any(name.endswith(".early") for name in graph.edges)


def test_floats_are_ranked_as_they_are():
    least = node("ArgMin", "f", "y", axis=1)
    graph = read(model([*QDQ, *FUNCTIONS["sigmoid"], least], {"x": X.shape}, CODES), reference="onnxruntime")
    (ranked,) = (n for n in graph.nodes if n.op == "rank")
    assert graph.makers[ranked.inputs[0]].op == "sigmoid"

"""Fake quantization as trainers export it: Div, Clip, Round and Mul of floats."""

import numpy as np
import pytest
from support.float_files import File

from bitsynth.graph import read, run
from bitsynth.graph.types import Integers
from bitsynth.network.fusion.codes import operand_of

STEP, LIMIT = np.float32(0.3), np.float32(4.7)


def lsq(f, x, step=STEP, low=0, high=15):
    return f.add("Mul", f.add("Round", f.add("Clip", f.add("Div", x, step), low, high)), step)


def lsq_cut_last(f, x):
    return f.add("Mul", f.add("Clip", f.add("Round", f.add("Div", x, STEP)), 0, 15), STEP)


def dorefa(f, x, levels=15):
    return f.add("Div", f.add("Round", f.add("Mul", f.add("Clip", x, 0, 1), levels)), levels)


def pact(f, x, limit=LIMIT):
    sizes = f.add("Abs", x), f.add("Abs", f.add("Sub", x, limit))
    cut = f.add("Mul", f.add("Add", f.add("Sub", *sizes), limit), 0.5)
    return f.add("Div", f.add("Mul", f.add("Round", f.add("Div", f.add("Mul", cut, 15), limit)), limit), 15)


def straight_through(f, x):
    return f.add("Add", f.add("Sub", lsq(f, x), x), x)


def down(f, x):
    return f.add("Floor", f.add("Add", f.add("Mul", f.add("Sigmoid", x), 7), 0.5))


def limits_of_tensors(f, x):
    return f.add("Round", f.add("Min", f.add("Max", f.add("Div", x, STEP), 0), 15))


def sign(f, x):
    return f.add("Sign", x)


ACTIVATIONS = {
    "lsq": (lsq, 15),
    "lsq cut last": (lsq_cut_last, 15),
    "dorefa": (dorefa, 15),
    "pact": (pact, 15),
    "straight through": (straight_through, 15),
    "down": (down, 7),
    "limits of tensors": (limits_of_tensors, 15),
    "sign": (sign, 1),
}


def quantizers(graph):
    return [node for node in graph.nodes if node.op == "quantize"]


def codes_of(graph):
    (result,) = {node.outputs[0] for node in quantizers(graph)}
    return graph.edges[result].integers


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_becomes_one_quantizer(name, rng):
    written, most = ACTIVATIONS[name]
    file = File()
    graph = read(file.model((1, 6), written(file, "x")))
    assert graph.reference == "exact"
    assert codes_of(graph).most == most
    x = np.concatenate([rng.uniform(-3, 7, 4), [0.0, 0.45]]).astype(np.float32)[None]
    floats = read(file.model((1, 6), *[n.output[0] for n in file.nodes[-1:]]), reference="onnx")
    (want,), (got,) = run(floats, {"x": x}).outputs(), run(graph, {"x": x}).outputs()
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_a_clip_between_whole_numbers_and_a_division_are_the_quantizers_own():
    file = File()
    graph = read(file.model((1, 6), lsq(file, "x")))
    assert [node.op for node in graph.nodes] == ["quantize"]
    assert graph.nodes[0].attributes["scale"] == graph.nodes[0].attributes["out_scale"] == STEP


def test_rounding_without_limits_stays():
    file = File()
    graph = read(file.model((1, 6), file.add("Round", file.add("Mul", "x", 3))))
    assert [node.op for node in graph.nodes] == ["mul", "round"]


def test_a_clip_between_others_stays(rng):
    file = File()
    graph = read(file.model((1, 9), file.add("Clip", file.add("Round", "x"), 0.5, 3.5)))
    x = np.arange(-4, 5, dtype=np.float32)[None]
    assert run(graph, {"x": x}).outputs()[0].tolist() == [np.clip(x[0], 0.5, 3.5).tolist()]


def dorefa_weights(f, w, levels=3):
    bent = f.add("Tanh", w)
    most = f.add("Mul", f.add("ReduceMax", f.add("Abs", bent), keepdims=0), 2)
    rounded = f.add("Round", f.add("Mul", f.add("Add", f.add("Div", bent, most), 0.5), levels))
    return f.add("Sub", f.add("Mul", f.add("Div", rounded, levels), 2), 1)


def binary_weights(f, w):
    return f.add("Mul", f.add("Sign", w), f.add("ReduceMean", f.add("Abs", w), axes=[1, 2, 3]))


def binary_first(f, w):
    return f.add("Mul", f.add("ReduceMean", f.add("Abs", w), axes=[1, 2, 3]), f.add("Sign", w))


def lsq_weights(f, w):
    return lsq(f, w, np.full((4, 1, 1, 1), 0.11, np.float32), -8, 7)


WEIGHTS = {"dorefa": dorefa_weights, "binary": binary_weights, "binary first": binary_first, "lsq": lsq_weights}


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("activations", ["lsq", "dorefa", "pact"])
def test_a_convolution_is_one_of_integers(weights, activations, rng):
    file = File()
    x = ACTIVATIONS[activations][0](file, "x")
    pooled = file.add("MaxPool", x, kernel_shape=[2, 2])
    w = WEIGHTS[weights](file, file.constant(rng.normal(size=(4, 3, 3, 3)) * 0.3))
    y = lsq(file, file.add("Conv", pooled, w))
    model = file.model((1, 3, 8, 8), y)
    graph = read(model)
    (product,) = (node for node in graph.nodes if node.op == "conv")
    assert all(isinstance(graph.edges[name].type, Integers) for name in (*product.inputs, *product.outputs))
    assert product.inputs[1] in graph.constants
    assert operand_of(graph.edges[product.inputs[0]])
    given = {"x": rng.uniform(-1, 5, (1, 3, 8, 8)).astype(np.float32)}
    (got,), (want,) = run(graph, given).outputs(), run(read(model, reference="onnx"), given).outputs()
    np.testing.assert_allclose(got, want, atol=1e-5)
    assert len(np.unique(got)) > 1


def test_quotients_of_one_divisor_are_added(rng):
    file = File()
    y = file.add("Add", dorefa(file, "x"), dorefa(file, file.add("Neg", "x")))
    graph = read(file.model((1, 32), y))
    (added,) = (node for node in graph.nodes if node.op == "add")
    assert all(isinstance(graph.edges[name].type, Integers) for name in (*added.inputs, *added.outputs))
    x = rng.uniform(-1, 1, (1, 32)).astype(np.float32)
    want = np.rint(np.float64(x).clip(0, 1) * 15) + np.rint(-np.float64(x).clip(-1, 0) * 15)
    np.testing.assert_allclose(run(graph, {"x": x}).outputs()[0], want / 15, atol=1e-6)


def test_weights_that_a_thousand_nodes_compute_are_computed_once(rng):
    """Neither the number of ways to a node nor how many are behind each other matters."""
    f = File()
    w = f.add("Abs", f.constant(rng.uniform(0.9, 1.1, (4, 3)).astype(np.float32)))
    for _ in range(500):
        w = f.add("Sub", f.add("Mul", w, w), f.add("Mul", w, np.float32(0.25)))
    graph = read(f.model((1, 4), f.add("MatMul", lsq(f, "x"), lsq(f, w, low=-1, high=1))))
    assert "round" not in {node.op for node in graph.nodes}

"""Places in a float network that decide how scales and biases are chosen."""

import numpy as np
import pytest
from support.onnx_files import float_network, node, tensor

from bitsynth.quantization.float_model import FloatModel


@pytest.fixture
def network():
    """Two convolutions, the second with a residual; a pool of the sum, and a dense layer."""
    rng = np.random.default_rng(5)
    weights = {"w1": (4, 3, 3, 3), "w2": (4, 4, 3, 3), "w3": (4, 5)}
    nodes = [
        node("Conv", "x w1", "c1", pads=[1, 1, 1, 1]),
        node("Relu", "c1", "a1"),
        node("Conv", "a1 w2", "c2", pads=[1, 1, 1, 1]),
        node("Add", "c2 a1", "s"),
        node("Relu", "s", "a2"),
        node("GlobalAveragePool", "a2", "p"),
        node("Flatten", "p", "f"),
        node("Gemm", "f w3", "y"),
    ]
    values = {name: rng.normal(size=shape) for name, shape in weights.items()}
    return FloatModel(float_network(nodes, {"x": (1, 3, 6, 6)}, values))


def test_the_quantizer_after_a_product_is_found_through_a_residual_addition(network):
    assert [network.find_quantized_after(product.output) for product in network.products] == ["a1", "a2", None]


def test_edges_of_codes_that_layers_compute(network):
    """Neither inputs nor means of pools, whose scales no accumulators are divided by."""
    assert network.computed_edges == {"a1", "a2"}


def test_numbers_of_outputs_stay_in_floats():
    """Of a recurrent cell: the state is an output, next to another one, and is read by a product through Relu."""
    nodes = [
        node("MatMul", "x w", "g"),
        node("Add", "g c", "n"),
        node("Tanh", "n", "h"),
        node("Concat", "h n", "state", axis=1),
        node("Unsqueeze", "state axes", "s"),
        node("Relu", "h", "r"),
        node("MatMul", "r v", "y"),
    ]
    rng = np.random.default_rng(5)
    values = {"w": rng.normal(size=(4, 6)), "v": rng.normal(size=(6, 2))}
    onnx_model = float_network(nodes, {"x": (1, 4), "c": (1, 6)}, values, outputs="y s")
    onnx_model.graph.initializer.append(tensor(np.array([0], np.int64), "axes"))
    network = FloatModel(onnx_model)
    assert network.searched_edges == ("r",)
    assert set(network.other_edges) == {"x", "c"}


WRITTEN_OUT = {
    "hard swish": [("Add", "h three", "a"), ("Clip", "a zero six", "g"), ("Mul", "h g", "m"), ("Div", "m six", "r")],
    "swish": [("Sigmoid", "h", "g"), ("Mul", "h g", "r")],
    "softplus": [("Exp", "h", "e"), ("Add", "e one", "a"), ("Log", "a", "g"), ("Tanh", "g", "t"), ("Mul", "t h", "r")],
    "square": [("Mul", "h h", "g"), ("Sub", "g h", "r")],
}


def written_out(nodes, *more):
    """A convolution, an activation written out in several operators, and another convolution; more outputs."""
    rng = np.random.default_rng(5)
    every = [node("Conv", "x w", "h"), *(node(*each) for each in nodes), node("Conv", "r v", "y")]
    values = {name: rng.normal(size=(3, 3, 1, 1)) for name in "wv"}
    values |= {name: np.array(number) for name, number in (("zero", 0.0), ("one", 1.0), ("three", 3.0), ("six", 6.0))}
    return FloatModel(float_network(every, {"x": (1, 3, 6, 6)}, values, outputs=" ".join(("y", *more))))


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_an_activation_written_out_has_no_quantizer_inside(name):
    network = written_out(WRITTEN_OUT[name])
    assert network.searched_edges == ("r",)
    assert network.other_edges == ("x", "h")


def test_edges_that_others_read_are_not_inside_an_activation():
    gate = WRITTEN_OUT["swish"]
    assert written_out(gate, "g").inner_edges == frozenset()
    assert written_out([*gate, ("GlobalAveragePool", "g", "p")], "p").inner_edges == frozenset()
    assert written_out([*gate[:1], ("Mul", "x g", "r")]).inner_edges == frozenset()
    assert written_out(gate).inner_edges == {"g"}


def test_residual_additions_before_the_next_quantizer(network):
    assert [network.is_added(product.output) for product in network.products] == [False, True, False]

"""Scales of rows that are known at run time alone: products read the codes, and the scales follow."""

from typing import Any

import numpy as np
import pytest
from support.case_selection import quick
from support.onnx_files import model, node

import bitsynth
from bitsynth.graph import read, run

ROWS, K, N = 6, 48, 20


def network(rng, scaled, *, shape=(ROWS, K), axis=-1):
    """A model: codes c of 8 bits, by the greatest number of each row, whose scale is 1 / s; and the nodes `scaled`."""
    constants: dict[str, Any] = {"eps": np.float32(1e-5), "most": np.float32(127), "ax": np.array([axis])}
    constants |= {"low": np.float32(-128), "w": rng.choice([-1.0, 0, 1.0], (K, N)).astype(np.float32)}
    constants |= {"ws": np.float32(0.013), "v": rng.normal(size=(K, N)).astype(np.float32)}
    nodes = [
        *(node("Abs", "x", "a"), node("ReduceMax", "a ax", "r", keepdims=1), node("Max", "r eps", "p")),
        *(
            node("Div", "most p", "s"),
            node("Mul", "x s", "m"),
            node("Round", "m", "o"),
            node("Clip", "o low most", "c"),
        ),
        *scaled,
    ]
    return model(nodes, {"x": shape}, constants)


SCALED = {
    "divided": [node("Div", "c s", "n"), node("MatMul", "n w", "u"), node("Mul", "u ws")],
    "multiplied": [node("Reciprocal", "s", "i"), node("Mul", "c i", "n"), node("MatMul", "n w")],
}
"""From codes c and the divisor s of each row to a product with the weights w."""


def product_of_integers(graph):
    (product,) = [n for n in graph.nodes if n.op == "matmul"]
    return graph.edges[product.outputs[0]].is_float and hasattr(graph.edges[product.outputs[0]].type, "low")


@pytest.mark.parametrize("shape", quick([(2, 3, K)], of=[(ROWS, K), (2, 3, K)]))
@pytest.mark.parametrize("name", SCALED)
def test_products_of_scaled_rows_are_layers(rng, name, shape):
    result = network(rng, SCALED[name], shape=shape)
    net = bitsynth.compile(result, isa="avx2")
    assert [step.kind for step in net.program.steps].count("layer") == 1
    x = {"x": (rng.normal(size=shape) * np.geomspace(1e-3, 1e3, shape[-2])[:, None]).astype(np.float32)}
    (got,) = run(net.graph, x).outputs()
    np.testing.assert_allclose(net(x), got, rtol=1e-6)
    (floats,) = run(read(result, reference="onnx"), x).outputs()
    np.testing.assert_allclose(got, floats, rtol=1e-3, atol=1e-4 * np.abs(floats).max())


LEFT_ALONE: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "scales of columns": (SCALED["divided"], {"axis": 0}),
    "float weights": ([node("Div", "c s", "n"), node("MatMul", "n v")], {}),
    "on the right": ([node("Div", "c s", "n"), node("Transpose", "w", "t"), node("MatMul", "t n")], {"shape": (K, 5)}),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_other_products_read_real_numbers(rng, name):
    scaled, more = LEFT_ALONE[name]
    assert not product_of_integers(read(network(rng, scaled, **more)))


def test_a_reference_of_floats_keeps_the_order_of_the_file(rng):
    result = network(rng, SCALED["divided"])
    assert product_of_integers(read(result))
    assert not product_of_integers(read(result, reference="onnx"))

"""Quantizers of codes on their grid: quantizers that change nothing are left out, others stay."""

from typing import Any

import numpy as np
import pytest
from support.onnx_files import model, node

from bitsynth.graph import read, run

SHAPE = (1, 6, 4, 4)


def twice(outputs="y", moves="Transpose", **second: Any):
    """Codes, a move, codes again of another grid if `second` says so, and what reads them."""
    given = {"s": np.float32(0.031), "z": np.uint8(131)}
    given |= {"t": second.get("scale", given["s"]), "u": second.get("zero", given["z"])}
    nodes = [
        node("QuantizeLinear", "x s z", "a"),
        node("DequantizeLinear", "a s z", "b"),
        node(moves, "b", "c"),
        node("QuantizeLinear", "c t u", "d"),
        node("DequantizeLinear", "d t u", "e"),
        node("Tanh", "e", "y"),
    ]
    return model(nodes, {"x": SHAPE}, given, outputs=outputs, opset=13)


@pytest.mark.parametrize("reference", ["exact", "onnxruntime", "onnx"])
def test_the_second_is_left_out(rng, reference):
    graph = read(twice(), reference=reference)
    graph.check()
    assert [n.op for n in graph.nodes] == ["quantize", "transpose", "tanh"]
    x = (rng.normal(size=SHAPE) * 3).astype(np.float32)
    codes = np.clip(np.rint(x / np.float32(0.031)) + 131, 0, 255)
    want = np.tanh((codes - 131) * 0.031).transpose()
    np.testing.assert_allclose(run(graph, {"x": x}).outputs()[0], want, rtol=1e-6)


OTHERS: dict[str, dict[str, Any]] = {
    "scale": {"scale": np.float32(0.0311)},
    "zero point": {"zero": np.uint8(130)},
    "type": {"zero": np.int8(3)},
    "an output": {"outputs": "e"},
    "numbers between": {"moves": "Exp"},
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_nodes_are_not_merged(name):
    graph = read(twice(**OTHERS[name]))
    assert [n.op for n in graph.nodes].count("quantize") == 2


@pytest.mark.parametrize("reference", ["exact", "onnxruntime"])
@pytest.mark.parametrize("scale", [1e-20, 0.1, 1 / 3, 7.7e12])
def test_every_code_comes_back(reference, scale):
    """What is left out would have changed no code."""
    graph = read(twice(scale=np.float32(scale)), reference=reference)
    (second,) = (n for n in graph.nodes if n.op == "quantize" and n.inputs != ("x",))
    codes, s = np.arange(256) - 131, np.float32(scale)
    assert second.attributes["scale"] == s
    assert (np.rint(codes.astype(np.float32) * s / s) == codes).all()

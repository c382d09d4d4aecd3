"""Padding before a convolution is its own: of codes with a zero point, before a quantizer, of channels last."""

from typing import Any

import numpy as np
import pytest
from support.network_batches import same
from support.onnx_files import model, node

import bitsynth
from bitsynth.graph import read, run

SHAPE = (1, 8, 6, 6)


def quantized(edge, result, scale="s", zero="z"):
    """QuantizeLinear and DequantizeLinear."""
    return [
        node("QuantizeLinear", f"{edge} {scale} {zero}", f"{result}q", name=f"q {result}"),
        node("DequantizeLinear", f"{result}q {scale} {zero}", result, name=f"d {result}"),
    ]


def net(before, rng, zero=114, pads=(0, 0, 1, 0, 0, 0, 1, 2), padding=(0, 0, 0, 0)):
    """Codes, `before` from `a` to `p`, and a convolution of that to codes."""
    given: dict[str, Any] = {"s": np.float32(0.02), "z": np.uint8(zero), "t": np.float32(0.05), "u": np.uint8(100)}
    given |= {"w": rng.integers(-7, 8, (16, 8, 3, 3)).astype(np.float32)}
    given |= {"pads": np.array(pads), "last": np.array(pads)[[0, 2, 3, 1, 4, 6, 7, 5]]}
    behind = [node("Conv", "p w", "c", pads=padding), *quantized("c", "y", "t", "u")]
    return model([*quantized("x", "a"), *before, *behind], {"x": SHAPE}, given)


ALONE = [node("Pad", "a pads", "p")]
QUANTIZED = [node("Pad", "a pads", "b"), *quantized("b", "p")]
LAST = [
    node("Transpose", "a", "b", name="last", perm=[0, 2, 3, 1]),
    node("Pad", "b last", "c0"),
    node("Transpose", "c0", "p", name="first", perm=[0, 3, 1, 2]),
]


@pytest.mark.parametrize("before", [ALONE, QUANTIZED], ids=["alone", "quantized"])
@pytest.mark.parametrize("zero", [0, 114])
def test_padding_is_the_convolutions_own(before, zero, rng):
    network = net(before, rng, zero)
    compiled = bitsynth.compile(network, isa="avx2")
    assert not [n for n in compiled.graph.nodes if n.op == "pad"]
    assert [step.kind for step in compiled.report().steps].count("layer") == 1
    x = rng.normal(0, 2, SHAPE).astype(np.float32)
    values, floats = run(compiled.graph, {"x": x}), run(read(network, reference="onnx"), {"x": x})
    assert (values.outputs()[0] == floats.outputs()[0]).all()
    assert all(same(values, name, got) for name, got in compiled.trace(x).items())


def test_it_is_added_to_the_windows(rng):
    graph = read(net(ALONE, rng, padding=[1, 1, 1, 1]))
    (conv,) = [n for n in graph.nodes if n.op == "conv"]
    assert (conv.attributes["window"].begins, conv.attributes["window"].ends) == ((2, 1), (2, 3))


def test_channels_last_are_padded_so(rng):
    graph = read(net(LAST, rng))
    assert [n.op for n in graph.nodes] == ["quantize", "conv", "quantize"]


@pytest.mark.parametrize(("pads", "mode"), [((0, 0, 1, 0, 1, 0, 1, 2), "constant"), ((0, 0, 1, 0, 0, 0, 1, 2), "edge")])
def test_other_padding_stays(pads, mode, rng):
    """That of the batch, and what is not 0."""
    graph = read(net([node("Pad", "a pads", "p", mode=mode)], rng, pads=pads))
    assert "pad" in [n.op for n in graph.nodes]

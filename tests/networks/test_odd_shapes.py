"""Shapes that are rare: no axis, many axes, windows that no processor gets through."""

from typing import Any

import numpy as np
import pytest
from support.onnx_files import QONNX, model, node

import bitsynth
from bitsynth.errors import SpecError
from bitsynth.graph import read, run

SCALES = {"s": np.float32(0.5), "z": np.float32(0), "b": np.float32(3)}


def quant(given, result):
    """A quantizer of 3 bits with a sign."""
    return node("Quant", f"{given} s z b", result, domain=QONNX, signed=1, narrow=0)


@pytest.mark.parametrize(
    ("nodes", "shape"),
    [
        ([node("ReduceMean", "q", "t", keepdims=0)], (4, 4)),
        ([node("ReduceSum", "q", "t", keepdims=0)], (4, 4)),
        ([node("ReduceMax", "q", "t", keepdims=0)], (4,)),
        ([node("Squeeze", "q", "t")], (1, 1)),
        ([node("MatMul", "q w", "t")], (4,)),
        ([node("Relu", "q", "t")], ()),
    ],
    ids=["mean", "sum", "max", "squeeze", "dot", "input"],
)
@pytest.mark.parametrize("is_quantized", [True, False])
def test_an_edge_without_axes(nodes, shape, is_quantized, rng):
    ends = [quant("t", "y")] if is_quantized else [node("Identity", "t", "y")]
    onnx_model = model(
        [quant("x", "q"), *nodes, *ends], {"x": shape}, {**SCALES, "w": np.array([1, -1, 2, 0], np.float32)}
    )
    net = bitsynth.compile(onnx_model, isa="avx2")
    x = rng.normal(size=shape).astype(np.float32)
    np.testing.assert_allclose(net(x), run(net.graph, {"x": x}).outputs()[0], rtol=1e-6)
    assert net.files("net")


@pytest.mark.parametrize("axes", [33, 50, 65])
def test_more_axes_than_numpy_s_are_refused(axes):
    with pytest.raises(SpecError, match=f"input x has {axes} axes, more than 32; reshape it to fewer"):
        read(model([node("Relu", "x")], {"x": (1,) * axes}))


def test_a_tensor_of_more_axes_is_refused():
    onnx_model = model([node("Reshape", "x to", "y")], {"x": (1, 4)}, {"to": np.array([1] * 32 + [4])})
    with pytest.raises(SpecError, match="makes a tensor of 33 axes, more than 32"):
        read(onnx_model)


@pytest.mark.parametrize("pool", ["MaxPool", "AveragePool"])
def test_windows_that_read_too_much_are_refused(pool):
    """A file of 420 bytes that took minutes to compile."""
    onnx_model = model(
        [quant("x", "q"), node(pool, "q", "y", kernel_shape=[3000, 3000])], {"x": (1, 1, 6000, 6000)}, SCALES
    )
    with pytest.raises(SpecError, match=r"its windows of \(3000, 3000\) read 81,054,009,000,000 elements"):
        read(onnx_model)


@pytest.mark.parametrize("op", ["Conv", "AveragePool"])
@pytest.mark.parametrize("pads", [(0, 1, 0, 0), (1, 2, 0, 0)])
@pytest.mark.parametrize("channels", [1, 40])
def test_windows_may_see_padding_alone(op, pads, channels, rng):
    """No window reads an element of an image one pixel wide: copies of it to padded memory are empty."""
    window: dict[str, Any] = {"kernel_shape": [1, 1], "strides": [1, 3], "pads": pads}
    nodes = [node(op, "x w", **window) if op == "Conv" else node(op, "x", **window, count_include_pad=1)]
    weights = {"w": rng.normal(size=(40, channels, 1, 1)).astype(np.float32)} if op == "Conv" else {}
    net = bitsynth.compile(model(nodes, {"x": (1, channels, 2, 1)}, weights), isa="avx2")
    y = net(rng.normal(size=(1, channels, 2, 1)).astype(np.float32))
    assert y.shape == (1, 40 if op == "Conv" else channels, 2 + pads[0], 1)
    assert not y.any()

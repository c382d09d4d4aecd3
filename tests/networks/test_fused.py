"""Nodes that ONNX Runtime's optimizer fuses: results equal its own, but for the order of sums."""

from typing import Any

import numpy as np
import pytest
from support.onnx_files import MICROSOFT, model, node

from bitsynth.errors import SpecError
from bitsynth.graph import read, run
from bitsynth.graph.read.nodes import microsoft


def floats(rng, *shape):
    return rng.normal(0, 0.3, shape).astype(np.float32)


def conv(rng, more="", **attributes):
    given = {"w": floats(rng, 6, 3, 3, 3), "b": floats(rng, 6), "z": floats(rng, 1, 6, 8, 8)}
    return node("FusedConv", f"x w b{more}", domain=MICROSOFT, pads=[1, 1, 1, 1], **attributes), given, (1, 3, 8, 8)


def simple(rng, op, inputs="x", shape=(2, 5, 8), **attributes):
    given = {"v": floats(rng, 8), "u": floats(rng, 8), "t": floats(rng, 8), "s": floats(rng, 2, 5, 8)}
    given |= {"m": floats(rng, 2, 3, 8), "n": floats(rng, 8, 6), "o": floats(rng, 6)}
    return node(op, inputs, domain=MICROSOFT, **attributes), given, shape


CASES: dict[str, Any] = {
    "leaky": lambda rng: conv(rng, activation="LeakyRelu", activation_params=[0.1]),
    "clip": lambda rng: conv(rng, activation="Clip", activation_params=[0.0, 0.5]),
    "sum": lambda rng: conv(rng, " z", activation="Relu"),
    "alone": conv,
    "gemm": lambda rng: simple(rng, "FusedGemm", "x n o", (4, 8), activation="LeakyRelu", activation_alpha=0.2),
    "matmul": lambda rng: simple(rng, "FusedMatMul", "x m", alpha=0.125, transB=1),
    "gelu": lambda rng: simple(rng, "Gelu"),
    "fast gelu": lambda rng: simple(rng, "FastGelu", "x v"),
    "quick gelu": lambda rng: simple(rng, "QuickGelu"),
    "bias gelu": lambda rng: simple(rng, "BiasGelu", "x v"),
    "norm": lambda rng: simple(rng, "SkipLayerNormalization", "x s v u t", epsilon=1e-5),
    "root": lambda rng: simple(rng, "SkipSimplifiedLayerNormalization", "x s v u", epsilon=1e-5),
}


def runtime(onnx_model, given):
    onnxruntime = pytest.importorskip("onnxruntime")
    return onnxruntime.InferenceSession(onnx_model.SerializeToString()).run(None, given)


@pytest.mark.parametrize("name", CASES)
def test_fused_nodes_are_what_they_join(name, rng):
    one, given, shape = CASES[name](rng)
    onnx_model = model([one], {"x": shape}, {k: v for k, v in given.items() if k in one.input}, opset=17)
    x = rng.normal(0, 2, shape).astype(np.float32)
    (got,), (want, *_) = run(read(onnx_model), {"x": x}).outputs(), runtime(onnx_model, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_every_operator_of_floats_has_a_case(rng):
    """`test_microsoft.py` has the operators of codes."""
    of_codes = {"DynamicQuantizeMatMul", "MatMulIntegerToFloat", "MatMulNBits", "NhwcMaxPool", "QLinearConv"}
    assert {each(rng)[0].op_type for each in CASES.values()} == microsoft.FUSED_READERS.keys() - of_codes


def test_an_activation_that_is_not_known_is_refused(rng):
    one, given, shape = conv(rng, activation="Sinh")
    with pytest.raises(SpecError, match=r"FusedConv the_FusedConv: activation 'Sinh' is not known; known: Clip"):
        read(model([one], {"x": shape}, {k: v for k, v in given.items() if k in one.input}))


@pytest.mark.parametrize("op", ["MatMulIntegerToFloat", "DynamicQuantizeMatMul"])
def test_products_of_dynamic_codes(op, rng):
    given = {"w": rng.integers(-100, 100, (8, 6)).astype(np.int8), "t": np.float32(0.01), "z": np.int8(0)}
    given |= {"b": floats(rng, 6)}
    nodes = [node("DynamicQuantizeLinear", "x", "q s p"), node(op, "q w s t p z b", domain=MICROSOFT)]
    if op == "DynamicQuantizeMatMul":
        nodes = [node(op, "x w t z b", domain=MICROSOFT)]
    onnx_model = model(nodes, {"x": (3, 8)}, given, opset=17)
    x = rng.normal(size=(3, 8)).astype(np.float32)
    (got,), (want,) = run(read(onnx_model), {"x": x}).outputs(), runtime(onnx_model, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_codes_of_channels_last(rng):
    """The integer operators as ONNX Runtime saves them, optimized for a processor."""
    given = {"s": np.float32(0.03), "z": np.uint8(128), "t": np.float32(0.01), "e": np.int8(0)}
    given |= {"w": rng.integers(-100, 100, (16, 8, 3, 3)).astype(np.int8)}
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("QLinearConv", "q s z w t e s z", "c", domain=MICROSOFT, channels_last=1, pads=[1, 1, 1, 1]),
        node("NhwcMaxPool", "c", "m", domain=MICROSOFT, kernel_shape=[2, 2], strides=[2, 2]),
        node("DequantizeLinear", "m s z"),
    ]
    onnx_model = model(nodes, {"x": (1, 8, 8, 8)}, given, opset=17)
    x = rng.normal(size=(1, 8, 8, 8)).astype(np.float32)
    graph = read(onnx_model)
    assert graph.reference == "onnxruntime"
    (got,), (want,) = run(graph, {"x": x}).outputs(), runtime(onnx_model, {"x": x})
    assert (got == want).all()


def test_batch_norm_is_computed_as_onnx_runtime_computes_it(rng):
    """In float32, to the bit: with a slope and an offset of each channel."""
    given = {"g": floats(rng, 16), "b": floats(rng, 16), "m": floats(rng, 16), "v": rng.uniform(0.1, 3, 16)}
    given = {k: v.astype(np.float32) for k, v in given.items()}
    onnx_model = model([node("BatchNormalization", "x g b m v")], {"x": (1, 16, 9, 9)}, given, opset=17)
    x = rng.normal(size=(1, 16, 9, 9)).astype(np.float32)
    (got,), (want,) = run(read(onnx_model), {"x": x}).outputs(), runtime(onnx_model, {"x": x})
    assert (got == want).all()

"""Networks as tools write them, small: against ONNX's reference, or what their formats say."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator
from support.onnx_files import MICROSOFT, QONNX, model, node
from support.prequantized_networks import PATTERNS

from bitsynth.graph import read, run
from bitsynth.graph.types import Integers

U8, I8 = TensorProto.UINT8, TensorProto.INT8
IMAGE = {"x": (1, 4, 6, 6)}


def reference(result, x):
    with np.errstate(all="ignore"):
        outputs: Any = ReferenceEvaluator(result).run(None, {"x": x})
    return outputs[0]


def weights(*shape, seed=0, high=9):
    return np.random.default_rng(seed).integers(-high, high, shape).astype(np.int8)


# Patterns of networks that were quantized before: products of integers, then Mul once or twice.


@pytest.mark.parametrize("name", PATTERNS)
def test_prequantized_patterns_are_read(rng, name):
    onnx_model = PATTERNS[name]
    shape = tuple(d.dim_value for d in onnx_model.graph.input[0].type.tensor_type.shape.dim)
    x = rng.integers(0, 256, shape).astype(np.uint8)
    graph = read(onnx_model)
    assert graph.reference == "onnxruntime"
    assert isinstance(graph.edges["sums"].type, Integers)
    (got,) = run(graph, {"x": x}).outputs()
    off = abs(got.astype(int) - reference(onnx_model, x=x).astype(int)).max()
    assert off <= ("half" in name)  # functions are rounded once here, step by step there
    assert len(np.unique(got)) > 8


# Integerized networks.


def test_requant_shift_rounds_ties_up(rng):
    mul, add = rng.integers(1, 900, 4).astype(np.float32), rng.integers(-9999, 9999, 4).astype(np.float32)
    x = rng.integers(-500, 500, (1, 4, 6, 6)).astype(np.float32)
    for signed in (0, 1):
        shift = node("RequantShift", "x mul add", domain="far", div=1024, n_levels=16, signed=signed)
        graph = read(model([shift], IMAGE, {"mul": mul, "add": add}))
        low = -8 * signed
        want = np.clip(np.floor((x * mul.reshape(-1, 1, 1) + add.reshape(-1, 1, 1)) / 1024 + 0.5), low, low + 15)
        assert (run(graph, {"x": x}).outputs()[0] == want).all()
        kind = graph.edges["y"].integers
        assert (kind.least, kind.most) == (low, low + 15)


def test_sums_that_requantize_their_operands(rng):
    parts: dict[str, Any] = {
        f"in{k}_{n}": v for k in (1, 2) for n, v in {"rq": 1, "mul": 300 + k, "add": 512, "shift": 10}.items()
    }
    onnx_model = model([node("Add", "x x", in1_n_levels=256, in2_n_levels=256, out_rq=0, **parts)], IMAGE)
    x = rng.integers(0, 256, IMAGE["x"]).astype(np.float32)
    want = (x.astype(int) * 301 + 512 >> 10) + (x.astype(int) * 302 + 512 >> 10)
    assert (run(read(onnx_model, reference="exact"), {"x": x}).outputs()[0] == want).all()


def test_an_integerized_layer_stays_in_integers(rng):
    nodes = [
        node("Quant", "x one zero bits", "q", domain=QONNX, signed=0, narrow=0),
        node("Conv", "q w", "c"),
        node("Mul", "c mul", "m"),
        node("Add", "m add", "a"),
        node("Div", "a div", "d"),
        node("Floor", "d", "f"),
        node("Clip", "f", "y", min=0.0, max=255.0),
    ]
    given = {
        "one": np.float32(1),
        "zero": np.float32(0),
        "bits": np.float32(8),
        "div": np.float32(4096),
        "w": weights(3, 4, 3, 3).astype(np.float32),
        "mul": np.array([[[17]], [[33]], [[101]]], np.float32),
        "add": np.array([[[19526]], [[-274]], [[735734]]], np.float32),
    }
    graph = read(model(nodes, IMAGE, given, opset=10))
    assert all(isinstance(graph.edges[n.outputs[0]].type, Integers) for n in graph.nodes)
    x = rng.integers(0, 256, IMAGE["x"]).astype(np.float32)
    values = run(graph, {"x": x})
    want = np.clip((values["c"] * given["mul"].astype(int) + given["add"].astype(int)) >> 12, 0, 255)
    assert (values["y"] == want).all()


# Forms of convolutions and pools.


@pytest.mark.parametrize(
    ("shape", "kernel", "options"),
    [
        ((2, 4, 9), (6, 4, 3), {"strides": [2], "pads": [1, 2]}),
        ((1, 4, 7, 6), (6, 2, 3, 2), {"group": 2, "dilations": [2, 1], "pads": [0, 1, 2, 0]}),
        ((1, 4, 7, 6), (4, 1, 3, 3), {"group": 4, "auto_pad": "SAME_LOWER", "strides": [2, 2]}),
        ((1, 4, 5, 5, 5), (2, 4, 2, 2, 2), {"auto_pad": "VALID"}),
    ],
)
def test_convolutions_of_codes(rng, shape, kernel, options):
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("DequantizeLinear", "w t", "v", axis=0),
        node("Conv", "d v", **options),
    ]
    scales = rng.uniform(0.1, 1, kernel[0]).astype(np.float32)
    given = {"s": np.float32(0.1), "z": np.uint8(7), "w": weights(*kernel), "t": scales}
    onnx_model = model(nodes, {"x": shape}, given)
    x = rng.normal(size=shape).astype(np.float32) * 4
    graph = read(onnx_model)
    kind, values = graph.edges["y"].integers, run(graph, {"x": x})
    assert (values["y"] <= kind.high).all()
    assert (values["y"] >= kind.low).all()
    np.testing.assert_allclose(values.floats("y"), reference(onnx_model, x=x), rtol=1e-4, atol=1e-3)


def test_channels_last_gives_the_same_results(rng):
    """Transposes around a convolution move no grid."""
    nodes = [
        node("Quant", "x s z b", "q", domain=QONNX, signed=1, narrow=0),
        node("Transpose", "q", "t", perm=[0, 3, 1, 2]),
        node("Conv", "t w", "c"),
        node("Transpose", "c", "y", perm=[0, 2, 3, 1]),
    ]
    given = {"s": np.float32(0.5), "z": np.float32(0), "b": np.float32(4), "w": weights(3, 4, 2, 2).astype(np.float32)}
    graph = read(model(nodes, {"x": (1, 5, 6, 4)}, given))
    kind = graph.edges["y"].integers
    assert (graph.edges["y"].shape, kind.low.shape, float(kind.scale)) == ((1, 4, 5, 3), (1, 1, 1, 3), 0.5)
    x = rng.integers(-20, 20, (1, 5, 6, 4)).astype(np.float32) / 4
    values = run(graph, {"x": x})
    assert (values["y"] == values["c"].transpose(0, 2, 3, 1)).all()


def test_scales_move_with_their_elements(rng):
    """Codes of two grids, one after the other, have a scale a channel."""
    nodes = [
        *(node("QuantizeLinear", f"x s{k}", f"q{k}") for k in "ab"),
        *(node("DequantizeLinear", f"q{k} s{k}", f"d{k}") for k in "ab"),
        node("Concat", "da db", "c", axis=1),
        node("Reshape", "c to", "y"),
    ]
    given = {"sa": np.float32(0.5), "sb": np.float32(0.25), "to": np.array([1, 8, 36])}
    graph = read(model(nodes, IMAGE, given))
    assert graph.edges["y"].integers.scale.reshape(-1).tolist() == [0.5] * 4 + [0.25] * 4
    x = rng.uniform(0, 60, IMAGE["x"]).astype(np.float32)
    got = run(graph, {"x": x}).outputs()[0]
    want = np.concatenate([np.rint(x / s) * s for s in (0.5, 0.25)], 1).reshape(1, 8, 36)
    assert (got == want).all()


def test_pools_of_codes(rng):
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("MaxPool", "d", "m", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1),
        node("AveragePool", "m", "a", kernel_shape=[2, 2], pads=[1, 0, 0, 1]),
        node("GlobalAveragePool", "a", "y"),
    ]
    onnx_model = model(nodes, IMAGE, {"s": np.float32(0.25), "z": np.uint8(9)})
    graph = read(onnx_model)
    assert isinstance(graph.edges["m"].type, Integers)
    x = rng.normal(size=IMAGE["x"]).astype(np.float32) * 9
    np.testing.assert_allclose(run(graph, {"x": x}).outputs()[0], reference(onnx_model, x=x), rtol=1e-5)


# Operators of com.microsoft.


def test_qgemm_equals_onnxruntime(rng):
    given = {
        "as": np.float32(0.5),
        "az": np.uint8(3),
        "bs": np.full(6, 0.25, np.float32),
        "bz": np.zeros(6, np.int8),
        "b": weights(6, 8),
        "c": np.arange(6, dtype=np.int32),
        "ys": np.float32(2),
        "yz": np.uint8(10),
    }
    x = rng.integers(0, 40, (4, 8)).astype(np.uint8)
    sums = (x.astype(int) - 3) @ given["b"].T.astype(int) + np.arange(6)
    for end, want in (("ys yz", np.clip(np.rint(sums / 16) + 10, 0, 255)), ("", sums / 8)):
        onnx_model = model(
            [node("QGemm", f"x as az b bs bz c {end}", domain=MICROSOFT, transB=1)], {"x": (4, 8)}, given, dtype=U8
        )
        assert (run(read(onnx_model), {"x": x}).outputs()[0] == want).all()


@pytest.mark.parametrize(
    ("op", "function", "options"),
    [
        ("QLinearSigmoid", lambda v: 1 / (1 + np.exp(-v)), {}),
        ("QLinearLeakyRelu", lambda v: np.where(v < 0, v * 0.125, v), {"alpha": 0.125}),
        ("QLinearSoftmax", lambda v: np.exp(v) / np.exp(v).sum(), {"axis": 1, "opset": 13}),
    ],
)
def test_functions_of_codes_are_read_as_tables(op, function, options):
    given = {"s": np.float32(0.0625), "z": np.int8(-7), "t": np.float32(1 / 256), "u": np.int8(-128)}
    x = np.arange(-128, 128, dtype=np.int8)[None]
    onnx_model = model([node(op, "x s z t u", domain=MICROSOFT, **options)], {"x": x.shape}, given, dtype=I8)
    want = np.clip(np.rint(function((x + 7.0) / 16) * 256) - 128, -128, 127)
    assert (run(read(onnx_model), {"x": x}).outputs()[0] == want).all()


def test_concatenated_codes_and_their_mean(rng):
    given = {"s": np.float32(0.5), "z": np.uint8(2), "t": np.float32(0.25), "u": np.uint8(4)}
    nodes = [
        node("QLinearConcat", "t u x s z x t u", "c", domain=MICROSOFT, axis=1),
        node("QLinearGlobalAveragePool", "c t u s z", "y", domain=MICROSOFT),
    ]
    x = rng.integers(0, 256, IMAGE["x"]).astype(np.uint8)
    values = run(read(model(nodes, IMAGE, given, dtype=U8)), {"x": x})
    codes = np.concatenate([np.clip((x.astype(int) - 2) * 2 + 4, 0, 255), x], 1)
    assert (values["c"] == codes).all()
    want = np.clip(np.rint((codes - 4.0).mean((2, 3), keepdims=True) / 2) + 2, 0, 255)
    assert (values["y"] == want).all()


def test_means_of_codes_channels_last(rng):
    given = {"s": np.float32(0.5), "z": np.uint8(2), "t": np.float32(0.25), "u": np.uint8(4)}
    nodes = [node("QLinearGlobalAveragePool", "x t u s z", domain=MICROSOFT, channels_last=1)]
    x = rng.integers(0, 256, (2, 3, 5, 4)).astype(np.uint8)
    got = run(read(model(nodes, {"x": x.shape}, given, dtype=U8)), {"x": x})["y"]
    assert (got == np.clip(np.rint((x - 4.0).mean((1, 2), keepdims=True) / 2) + 2, 0, 255)).all()


def test_windows_channels_last_are_those_of_channels_first(rng):
    given = {"s": np.float32(0.5), "z": np.uint8(2)}
    x = rng.integers(0, 256, IMAGE["x"]).astype(np.uint8)

    def means(x, last):
        one = node("QLinearAveragePool", "x s z s z", domain=MICROSOFT, channels_last=last, kernel_shape=[2, 2])
        return run(read(model([one], {"x": x.shape}, given, dtype=U8)), {"x": x}).outputs()[0]

    assert (means(x.transpose(0, 2, 3, 1), 1) == means(x, 0).transpose(0, 2, 3, 1)).all()


def test_dynamic_quantization_is_read(rng):
    x = rng.normal(size=(4, 16)).astype(np.float32)
    nodes = [
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("MatMulInteger", "q w z", "i"),
        node("Cast", "i", "f", to=TensorProto.FLOAT),
        node("Mul", "f s", "y"),
    ]
    onnx_model = model(nodes, {"x": x.shape}, {"w": weights(16, 8)})
    graph = read(onnx_model)
    assert isinstance(graph.edges["i"].type, Integers)
    np.testing.assert_allclose(run(graph, {"x": x}).outputs()[0], reference(onnx_model, x=x), rtol=1e-6)
    silent = run(graph, {"x": np.zeros_like(x)})
    assert (silent["s"], silent["z"]) == (1, 0)
    assert not silent.outputs()[0].any()

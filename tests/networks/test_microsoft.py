"""Quantized operators of com.microsoft: what ONNX Runtime gives itself, on ties, at both ends and for all codes."""

from typing import Any

import numpy as np
import pytest
from onnx import helper
from support.onnx_files import MICROSOFT, model, node

from bitsynth.graph import read, run
from bitsynth.graph.read.nodes import microsoft

ALL = {np.uint8: np.arange(256).astype(np.uint8), np.int8: np.arange(-128, 128).astype(np.int8)}
"""All codes of a type."""
KINDS = (np.uint8, np.int8)
OF_CODES = {"DynamicQuantizeMatMul", "MatMulIntegerToFloat", "MatMulNBits", "NhwcMaxPool", "QLinearConv"}
"""What ONNX Runtime's optimizer makes of products and pools of codes."""
CASES: dict[str, tuple[Any, Any, dict[str, Any], int]] = {}
"""By name: the node, the values of x, its constants, and by how many codes a result may differ."""


def case(name, op, inputs, x, given, *, off=0, **attributes):
    """Add a case of one node; scales and zero points are numbers of `given`."""
    assert f"{op}: {name}" not in CASES
    CASES[f"{op}: {name}"] = node(op, inputs, domain=MICROSOFT, **attributes), x, given, off


def grids(kind, **scales):
    """Scales by letter, each with a zero point of a type: `a=(0.5, 3)` is `a` and `az`."""
    found: dict[str, Any] = {}
    for letter, (scale, zero) in scales.items():
        found |= {letter: np.float32(scale), f"{letter}z": kind(zero)}
    return found


def codes(kind, *shape, seed=0):
    """Random codes of all of a type."""
    return np.random.default_rng(seed).choice(ALL[kind], shape)


STEPS = (np.arange(2048, dtype=np.float32) - 1024).reshape(1, 4, 512) * np.float32(0.125)
for kind, zero in ((np.uint8, 7), (np.int8, -3), (np.uint16, 100), (np.int16, -5)):
    case(kind.__name__, "QuantizeLinear", "x a az", STEPS, grids(kind, a=(0.25, zero)))
    x = np.arange(np.iinfo(kind).min, np.iinfo(kind).max + 1, 97 if kind(0).itemsize > 1 else 1).astype(kind)
    case(kind.__name__, "DequantizeLinear", "x a az", x, grids(kind, a=(0.25, zero)))
per_axis = {"a": np.array([0.25, 0.5, 1, 3], np.float32), "az": np.array([0, 1, -7, 100], np.int8)}
case("an axis", "QuantizeLinear", "x a az", STEPS, per_axis, axis=1)
case("an axis", "DequantizeLinear", "x a az", ALL[np.int8].reshape(1, 4, 64), per_axis, axis=1)

for kind in KINDS:
    low = int(ALL[kind][0])
    square = np.repeat(ALL[kind][:, None], 256, 1)
    for what, scales in {
        "powers of 2": {"a": (0.5, low + 3), "b": (0.25, low + 200), "c": (0.5, low + 100)},
        "other scales": {"a": (0.037, low + 3), "b": (0.0211, low + 200), "c": (0.0414, low + 100)},
    }.items():
        given = {"y": ALL[kind]} | grids(kind, **scales)
        for op in ("QLinearAdd", "QLinearMul"):
            inner = {"w": given["y"]} | {k: v for k, v in given.items() if k != "y"}
            if op == "QLinearMul":
                inner["c"] = np.float32(inner["c"] * 8)
            case(f"{what}, {kind.__name__}", op, "x a az w b bz c cz", square, inner)
    for what, scale in (("powers of 2", 0.25), ("other scales", 0.031)):
        given = grids(kind, a=(0.0625, low + 128), c=(scale, low + 20))
        case(f"{what}, {kind.__name__}", "QLinearSigmoid", "x a az c cz", ALL[kind], given | {"c": np.float32(1 / 256)})
        case(f"{what}, {kind.__name__}", "QLinearLeakyRelu", "x a az c cz", ALL[kind], given, alpha=0.125)
        image = codes(kind, 1, 3, 8, 8)
        for count in (0, 1):
            about = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2], "count_include_pad": count}
            more = f"{what}, {kind.__name__}, pads counted {count}"
            case(more, "QLinearAveragePool", "x a az c cz", image, given, **about)
            last = np.ascontiguousarray(image.transpose(0, 2, 3, 1))
            case(f"{more}, last", "QLinearAveragePool", "x a az c cz", last, given, channels_last=1, **about)
        for channels_last, x in ((0, image), (1, np.ascontiguousarray(image.transpose(0, 2, 3, 1)))):
            more = f"{what}, {kind.__name__}, channels last {channels_last}"
            case(more, "QLinearGlobalAveragePool", "x a az c cz", x, given, channels_last=channels_last)
    given = grids(kind, a=(0.0625, low + 128), c=(1 / 256, low))
    rows = np.stack([ALL[kind][:128], ALL[kind][128:], ALL[kind][::2]])
    case(kind.__name__, "QLinearSoftmax", "x a az c cz", rows, given, off=1, axis=1, opset=13)
    given = grids(kind, a=(0.5, low + 3), b=(0.25, low + 200), c=(0.5, low + 100)) | {"w": codes(kind, 4, 3)}
    case(kind.__name__, "QLinearConcat", "c cz x a az w b bz", codes(kind, 4, 5, seed=1), given, axis=1)

for signed in (0, 1):
    kind = KINDS[signed]
    low = int(ALL[kind][0])
    given = grids(kind, a=(0.5, low + 100), b=(0.25, low + 128), c=(16, low + 100)) | {"w": codes(kind, 12, 5, seed=2)}
    given["k"] = np.arange(-300, 200, 100, dtype=np.int32)
    x = codes(kind, 6, 12, seed=3)
    how = kind.__name__
    case(how, "QGemm", "x a az w b bz k c cz", x, given)
    case(f"{how}, floats", "QGemm", "x a az w b bz k", x, given)
    case(f"{how}, alpha, no bias", "QGemm", "x a az w b bz - c cz", x, given, alpha=0.5)
    turned = given | {"w": np.ascontiguousarray(given["w"].T)}
    case(f"{how}, turned", "QGemm", "x a az w b bz k c cz", np.ascontiguousarray(x.T), turned, transA=1, transB=1)
    whole = given | {"b": np.array([0.25, 0.5, 1, 0.125, 2], np.float32), "bz": np.full(5, low + 128).astype(kind)}
    case(f"{how}, a column", "QGemm", "x a az w b bz k c cz", x, whole)
    case(f"{how}, a column", "MatMulIntegerToFloat", "x w a b az bz", x, whole)
    case(how, "MatMulIntegerToFloat", "x w a b az bz f", x, given | {"f": np.arange(5, dtype=np.float32)})
    about = {"kernel_shape": [3, 3], "pads": [1, 0, 1, 1], "strides": [2, 1]}
    case(how, "NhwcMaxPool", "x", codes(kind, 1, 7, 6, 3, seed=4), {}, **about)
    weights = grids(np.int8, e=(0.25, 0)) | {"w": codes(np.int8, 4, 3, 3, 3, seed=5)}
    last = codes(kind, 1, 7, 6, 3, seed=4)
    case(how, "QLinearConv", "x a az w e ez c cz", last, given | weights, channels_last=1, **about)
    case(f"{how}, first", "QLinearConv", "x a az w e ez c cz", codes(kind, 1, 3, 7, 6), given | weights, **about)
floats = np.random.default_rng(6).normal(size=(6, 12)).astype(np.float32)
given = grids(np.int8, b=(0.25, 0)) | {"w": codes(np.int8, 12, 5, seed=7)}
case("int8", "DynamicQuantizeMatMul", "x w b bz", floats, given)

for bits, depth, block in ((2, 96, 32), (4, 80, 32), (8, 40, 16)):
    rng, blocks = np.random.default_rng(bits), -(-depth // block)
    given = {"w": rng.integers(0, 256, (24, blocks, block * bits // 8)).astype(np.uint8)}
    given |= {"s": rng.uniform(0.01, 0.1, (24, blocks)).astype(np.float32), "f": np.arange(24, dtype=np.float32)}
    given |= {"z": rng.integers(0, 256, (24, -(-blocks * bits // 8))).astype(np.uint8)}
    given |= {"r": rng.integers(0, 256, (24, blocks)).astype(np.float32) / 16}
    x, about = rng.normal(size=(5, depth)).astype(np.float32), {"K": depth, "N": 24, "bits": bits, "block_size": block}
    for what, inputs in {"scales": "x w s", "zero points": "x w s z", "float zero points": "x w s r"}.items():
        if (bits, what) == (8, "float zero points"):
            continue  # which ONNX Runtime refuses
        case(f"{bits} bits, {what}", "MatMulNBits", inputs, x, given, **about)
    case(f"{bits} bits, a bias", "MatMulNBits", "x w s z - f", x, given, **about)
    given["g"] = rng.permutation(np.arange(depth) // block).astype(np.int32)
    if bits == 4:
        case("4 bits, blocks of rows", "MatMulNBits", "x w s - g", x, given, **about)


@pytest.mark.parametrize("name", CASES)
def test_an_operator_means_what_onnx_runtime_computes(name):
    onnxruntime = pytest.importorskip("onnxruntime")
    one, x, given, off = CASES[name]
    dtype = helper.np_dtype_to_tensor_dtype(x.dtype)
    onnx_model = model([one], {"x": x.shape}, {k: v for k, v in given.items() if k in one.input}, opset=17, dtype=dtype)
    onnx_model.graph.output[0].ClearField("type")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    (want,) = onnxruntime.InferenceSession(onnx_model.SerializeToString(), options).run(None, {"x": x})
    (got,) = run(read(onnx_model), {"x": x}).outputs()
    assert got.dtype == want.dtype
    if want.dtype == np.float32:
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6 * max(1, abs(want).max()))
    else:
        apart = abs(got.astype(int) - want.astype(int))
        assert apart.max() <= off, f"{(apart > off).sum()} of {apart.size}"


def test_every_operator_of_codes_has_a_case():
    """`test_fused.py` has the operators of floats."""
    cases = {one.op_type for one, *_ in CASES.values()}
    assert cases - microsoft.FUSED_READERS.keys() == microsoft.QUANTIZED_READERS.keys()
    assert cases & microsoft.FUSED_READERS.keys() == OF_CODES

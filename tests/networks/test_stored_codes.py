"""Constant factors of products are stored as codes with their scales, and give the sums that their numbers give."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.onnx_files import model, node

import bitsynth.network.lower as lowering
from bitsynth.graph import read
from bitsynth.network.def_use import NetworkTarget
from bitsynth.network.plain import coded
from bitsynth.network.run import Network

TYPES = {
    ("int", 2): TensorProto.INT2,
    ("int", 4): TensorProto.INT4,
    ("int", 8): TensorProto.INT8,
    ("uint", 2): TensorProto.UINT2,
    ("uint", 4): TensorProto.UINT4,
}


def dequantized(nodes, x, shape, *, kind="int", bits=4, axis=0, block=0, zeros=True, scale=np.float32):  # noqa: PLR0913
    """A model of nodes that read x and the constant w (shape), which is dequantized from codes; an input of it.

    There is a scale for each place of `axis`, or for each `block` of it at each place of the other axes.
    """
    rng = np.random.default_rng(0)
    low = 0 if kind == "uint" else -(1 << (bits - 1))
    code = lambda size: rng.integers(low, low + (1 << bits), size).astype(np.int16)  # noqa: E731
    grid = [-(-n // block) if k == axis else n for k, n in enumerate(shape)] if block else [shape[axis]]
    tensors = {"c": code(shape), "z": code(grid)}
    given = [
        helper.make_tensor(name, TYPES[kind, bits], value.shape, value.reshape(-1).tolist())
        for name, value in tensors.items()
    ]
    scales = rng.uniform(0.01, 0.2, grid).astype(np.float32).astype(scale)
    given.append(numpy_helper.from_array(scales, "s"))
    first = node("DequantizeLinear", "c s z" if zeros else "c s", "w", axis=axis, block_size=block)
    onnx_model = model([first, *nodes], {"x": x}, {}, opset=25, dtype=helper.np_dtype_to_tensor_dtype(np.dtype(scale)))
    onnx_model.graph.initializer.extend(given)
    return onnx_model, rng.normal(size=x).astype(scale)


def lowered(monkeypatch, result, reference, *, as_codes=True):
    """The network in plain C, with constants as codes or as numbers; and the bytes of its constants."""
    monkeypatch.setattr(lowering, "PATTERNS", ())
    monkeypatch.setattr(coded, "MIN_ELEMENTS", 1024 if as_codes else 1 << 40)
    program = lowering.lower(read(result, reference=reference), NetworkTarget("avx2"))
    return Network(program), sum(array.nbytes for step in program.steps for array in getattr(step, "constants", ()))


MATMUL = [node("MatMul", "x w")]
CONV = [node("Conv", "x w", pads=[1, 1, 1, 1])]
CASES: dict[str, tuple[Any, Any, Any, dict[str, Any], float]] = {
    "int4 blocks": (MATMUL, (1, 96), (96, 200), {"block": 32}, 1.15),
    "int4 blocks of many rows": (MATMUL, (11, 96), (96, 200), {"block": 32, "zeros": False}, 1.15),
    "uint4 blocks, a last one": (MATMUL, (3, 90), (90, 65), {"kind": "uint", "block": 32}, 1.45),
    "int2 blocks": (MATMUL, (1, 128), (128, 64), {"bits": 2, "block": 32}, 1.25),
    "uint2 of a column": (MATMUL, (2, 101), (101, 40), {"kind": "uint", "bits": 2, "axis": 1}, 1.35),
    "int8 of a column": (MATMUL, (4, 50), (50, 33), {"bits": 8, "axis": 1}, 1.3),
    "int8 of a row": (MATMUL, (4, 64), (64, 33), {"bits": 8}, 1.15),
    "uint2 of a row": (MATMUL, (2, 101), (101, 40), {"kind": "uint", "bits": 2}, 1.3),
    "odd blocks": (MATMUL, (2, 99), (99, 32), {"block": 33, "bits": 4}, 2.2),
    "weights on the left": ([node("MatMul", "w x")], (96, 30), (41, 96), {"axis": 1, "block": 16}, 1.2),
    "weights on the left, few columns": ([node("MatMul", "w x")], (96, 3), (41, 96), {"axis": 1, "block": 16}, 1.5),
    "few columns": (MATMUL, (20, 300), (300, 5), {"block": 20}, 1.3),
    "several matrices": (MATMUL, (3, 2, 40), (3, 40, 24), {"axis": 1, "block": 8}, 1.2),
    "conv": (CONV, (1, 10, 9, 9), (18, 10, 3, 3), {}, 1.3),
    "conv of few pixels": (CONV, (1, 40, 2, 2), (30, 40, 3, 3), {}, 1.2),
    "conv of groups": ([node("Conv", "x w", group=2)], (2, 20, 9, 9), (22, 10, 3, 3), {"axis": 0}, 1.3),
    "blocks of channels": ([node("Conv", "x w")], (1, 64, 9, 9), (19, 64, 1, 1), {"axis": 1, "block": 16}, 1.3),
    "transposed Gemm": ([node("Gemm", "x w", transB=1)], (1, 64), (100, 64), {"axis": 1, "block": 16}, 1.15),
    "float16": (MATMUL, (1, 64), (64, 64), {"block": 16, "scale": np.float16}, 1.25),
}  # fmt: skip
"""Nodes, the shapes of x and w, how w is quantized, and the most bytes stored for one of the file."""


@pytest.mark.parametrize("reference", ["onnxruntime", "exact"])
@pytest.mark.parametrize("name", CASES)
def test_codes_give_the_sums_of_their_numbers(monkeypatch, name, reference):
    nodes, x, w, about, most = CASES[name]
    onnx_model, values = dequantized(nodes, x, w, **about)
    net, size = lowered(monkeypatch, onnx_model, reference)
    numbers, whole = lowered(monkeypatch, onnx_model, reference, as_codes=False)
    np.testing.assert_array_equal(net(values), numbers(values))
    bits, scale = about.get("bits", 4), np.dtype(about.get("scale", np.float32)).itemsize
    grids = onnx_model.graph.initializer[2].dims
    file = (np.prod(w) * bits + np.prod(grids) * (8 * scale + bits * about.get("zeros", True))) / 8
    assert size <= most * file
    assert whole > 2 * size


def test_integers_are_stored_as_codes(monkeypatch, rng):
    w, z = rng.integers(-128, 128, (96, 40)).astype(np.int8), rng.integers(-128, 128, 40).astype(np.int8)
    nodes = [
        node("DynamicQuantizeLinear", "x", "q s p"),
        node("MatMulInteger", "q w p z", "i"),
        node("Cast", "i", to=1),
    ]
    onnx_model = model(nodes, {"x": (9, 96)}, {"w": w, "z": z})
    values = rng.normal(size=(9, 96)).astype(np.float32)
    net, size = lowered(monkeypatch, onnx_model, "onnxruntime")
    numbers, whole = lowered(monkeypatch, onnx_model, "onnxruntime", as_codes=False)
    np.testing.assert_array_equal(net(values), numbers(values))
    assert size < 1.1 * w.size + 400 < whole / 2


def test_numbers_on_no_grid_of_few_integers_stay_numbers(monkeypatch, rng):
    w = rng.normal(size=(64, 32)).astype(np.float32)
    _, size = lowered(monkeypatch, model(MATMUL, {"x": (1, 64)}, {"w": w}), "onnxruntime")
    assert size >= w.nbytes

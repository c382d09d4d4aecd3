"""Small ONNX models for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

QONNX = "qonnx.custom_op.general"
MICROSOFT = "com.microsoft"


def node(op: str, inputs: str, outputs: str = "y", *, domain: str = "", name: str = "", **attributes: Any) -> Any:
    """A node; inputs and outputs with blanks between them, `-` for what is left out."""
    given, results = ([x if x != "-" else "" for x in side.split()] for side in (inputs, outputs))
    return helper.make_node(op, given, results, name or f"the_{op}", None, domain, **attributes)


def tensor(value: Any, name: str) -> Any:
    """An initializer."""
    return numpy_helper.from_array(np.asarray(value), name)


def model(
    nodes: Sequence[Any],
    inputs: Mapping[str, tuple[Any, ...]],
    constants: Mapping[str, Any] | None = None,
    *,
    outputs: str = "y",
    opset: int = 21,
    domains: Mapping[str, int] | None = None,
    dtype: int = TensorProto.FLOAT,
) -> Any:
    """A model of `nodes`; inputs by name and shape, float32 unless `dtype` says otherwise."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(n, dtype, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs.split()],
        [tensor(v, n) for n, v in (constants or {}).items()],
    )
    used = {"": opset, QONNX: 1, MICROSOFT: 1} | dict(domains or {})
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(d, v) for d, v in used.items()], ir_version=10)


def float_network(
    nodes: Sequence[Any], inputs: Mapping[str, tuple[Any, ...]], constants: Mapping[str, Any], *, outputs: str = "y"
) -> Any:
    """A model of opset 17 whose nodes are called n0, n1, ...; its constants are float32, those that are read."""
    for number, each in enumerate(nodes):
        each.name = f"n{number}"
    read = {name for each in nodes for name in each.input}
    values = {name: np.asarray(value, np.float32) for name, value in constants.items() if name in read}
    return model(nodes, inputs, values, outputs=outputs, opset=17)


def quant(bits: float, scale: Any = 1.0, zero: Any = 0.0, **attributes: Any) -> Any:
    """A model of one Quant node of an input (4, 64)."""
    given = {"signed": 1, "narrow": 0} | attributes
    return model(
        [node("Quant", "x s z b", domain=QONNX, **given)],
        {"x": (4, 64)},
        {"s": np.float32(scale), "z": np.float32(zero), "b": np.float32(bits)},
    )


def parsed(onnx_model: Any) -> Any:
    """The model as a file would have it."""
    return onnx.load_model_from_string(onnx_model.SerializeToString())


def small(shape: tuple[Any, ...] = (1, 3, 6, 6)) -> Any:
    """Codes, a convolution to codes, a pool, a dense layer with floats behind, and a second output."""
    nodes = [
        node("Quant", "x s z b", "q", domain=QONNX, signed=0, narrow=0),
        node("BipolarQuant", "w one", "v", domain=QONNX),
        node("Conv", "q v", "c", pads=[1, 1, 1, 1]),
        node("Relu", "c", "r"),
        node("Quant", "r s z b", "p", domain=QONNX, signed=0, narrow=0),
        node("MaxPool", "p", "m", kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", "m", "f"),
        node("BipolarQuant", "d one", "e", domain=QONNX),
        node("MatMul", "f e", "l"),
        node("Add", "l a", "y"),
    ]
    rng = np.random.default_rng(0)
    given = {
        "s": np.float32(0.25),
        "z": np.float32(0),
        "b": np.float32(2),
        "one": np.float32(1),
        "w": rng.normal(size=(8, 3, 3, 3)).astype(np.float32),
        "d": rng.normal(size=(72, 5)).astype(np.float32),
        "a": rng.normal(size=5).astype(np.float32),
    }
    return model(nodes, {"x": shape}, given, outputs="y m")

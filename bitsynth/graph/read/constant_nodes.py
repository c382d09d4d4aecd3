"""Constant, Shape, Range, and operators that are read on constants alone, such as CumSum: all become constants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bitsynth.graph.infer import MAX_ELEMENTS
from bitsynth.graph.read.file import require_onnx
from bitsynth.graph.read.file_node import FileNode, Reader
from bitsynth.graph.types import Tensor, cast


def _read_shape(node: FileNode) -> tuple[str, ...]:
    shape = node.shape()
    cut = slice(node.get("start", 0), node.get("end", len(shape)))
    return (node.constant(np.array(shape[cut], np.int64)),)


def _read_size(node: FileNode) -> tuple[str, ...]:
    return (node.constant(np.array(math.prod(node.shape()), np.int64)),)


def _read_constant(node: FileNode) -> tuple[str, ...]:
    for name, dtype in (("value", None), ("value_float", np.float32), ("value_int", np.int64)):
        if name in node.attributes:
            return (node.constant(np.asarray(node.get(name), dtype)),)
    for name, kind in (("value_floats", np.float32), ("value_ints", np.int64)):
        if name in node.attributes:
            return (node.constant(np.array(node.get(name), kind)),)
    raise node.fail("has no value that is read: tensors, floats and ints are")


def _read_constant_of_shape(node: FileNode) -> tuple[str, ...]:
    shape = tuple(node.numbers("shape", 0) or ())
    value: Any = node.get("value", np.zeros(1, np.float32))
    if min(shape, default=0) < 0 or math.prod(shape) > MAX_ELEMENTS:
        raise node.fail(f"a tensor of shape {shape}")
    return (node.constant(np.full(shape, np.asarray(value).reshape(-1)[0])),)


def _read_range(node: FileNode) -> tuple[str, ...]:
    start, stop, step = (node.value(k, "the range").reshape(-1)[0] for k in range(3))
    if not step or abs((stop - start) / step) > MAX_ELEMENTS:
        raise node.fail(f"a range from {start} to {stop} by {step}")
    numbers: Tensor = np.arange(start, stop, step).astype(node.input(0).dtype)
    return (node.constant(numbers),)


_MAX_FOLDED_ELEMENTS = 1 << 24
"""The most elements that operands, and results, of a folded operator may have."""


def _fold(node: FileNode) -> tuple[str, ...]:
    """Read an operator on constants by the reference evaluator of onnx; SpecError if an input is not constant."""
    onnx = require_onnx()
    from onnx.reference import ReferenceEvaluator

    names = [f"x{k}" if node.has(k) else "" for k in range(len(node.inputs))]
    constants = {name: cast(node.value(k, "an input"), node.input(k).dtype) for k, name in enumerate(names) if name}
    if (
        sum(value.size for value in constants.values()) > _MAX_FOLDED_ELEMENTS
        or _count_results(node) > _MAX_FOLDED_ELEMENTS
    ):
        raise node.fail(f"has more than {_MAX_FOLDED_ELEMENTS:,} elements")
    outputs = [f"y{k}" if name else "" for k, name in enumerate(node.outputs)]
    folded = onnx.helper.make_node(node.op, names, outputs, **node.attributes)
    wanted = [onnx.helper.make_empty_tensor_value_info(name) for name in outputs if name]
    inputs = [
        onnx.helper.make_tensor_value_info(k, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for k, v in constants.items()
    ]
    graph = onnx.helper.make_graph([folded], "constants", inputs, wanted)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", max(node.version, 13))])
    results = iter(ReferenceEvaluator(model).run(None, constants))
    return tuple(node.constant(np.asarray(next(results))) if name else "" for name in outputs)


def _count_results(node: FileNode) -> float:
    """Return the number of elements of the results, where inputs of few elements may make many; else 0."""
    return math.prod(node.shape()) * float(abs(node.value(1, "depth").reshape(-1)[0])) if node.op == "OneHot" else 0.0


FOLDED_READERS: dict[str, Reader] = dict.fromkeys(
    (
        *("BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Compress", "Cos", "CumSum", "EyeLike"),
        *("IsInf", "IsNaN", "Mod", "NonZero", "OneHot", "ReduceProd", "Sin", "Trilu", "Unique", "Xor"),
    ),
    _fold,
)


READERS: dict[str, Reader] = {
    **FOLDED_READERS,
    "Constant": _read_constant,
    "ConstantOfShape": _read_constant_of_shape,
    "Range": _read_range,
    "Shape": _read_shape,
    "Size": _read_size,
}

"""Nodes that networks have of constants alone, such as those that compute shapes and masks: as ONNX defines them."""

from __future__ import annotations

import math

import numpy as np

from bitsynth.graph.read.file import require_onnx
from bitsynth.graph.read.float_nodes import Reader
from bitsynth.graph.read.source import FileNode
from bitsynth.graph.types import cast

_MOST = 1 << 24
"""Elements of operands, and of what is made of them."""


def _folded(node: FileNode) -> tuple[str, ...]:
    """The results by the package's own definition; SpecError if an input is no constant."""
    onnx = require_onnx()
    from onnx.reference import ReferenceEvaluator

    names = [f"x{k}" if node.has(k) else "" for k in range(len(node.inputs))]
    given = {name: cast(node.value(k, "an input"), node.of(k).dtype) for k, name in enumerate(names) if name}
    if sum(value.size for value in given.values()) > _MOST or _made(node) > _MOST:
        raise node.fail(f"has more than {_MOST:,} elements")
    outputs = [f"y{k}" if name else "" for k, name in enumerate(node.outputs)]
    made = onnx.helper.make_node(node.op, names, outputs, **node.attributes)
    wanted = [onnx.helper.make_empty_tensor_value_info(name) for name in outputs if name]
    inputs = [
        onnx.helper.make_tensor_value_info(k, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for k, v in given.items()
    ]
    graph = onnx.helper.make_graph([made], "constants", inputs, wanted)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", max(node.version, 13))])
    found = iter(ReferenceEvaluator(model).run(None, given))
    return tuple(node.constant(np.asarray(next(found))) if name else "" for name in outputs)


def _made(node: FileNode) -> float:
    """How many elements the results have where that is not bounded by those of the operands."""
    return math.prod(node.shape()) * float(abs(node.value(1, "depth").reshape(-1)[0])) if node.op == "OneHot" else 0.0


READERS: dict[str, Reader] = dict.fromkeys(
    (
        *("BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Compress", "Cos", "CumSum", "EyeLike"),
        *("IsInf", "IsNaN", "Mod", "NonZero", "OneHot", "ReduceProd", "Sin", "Trilu", "Unique", "Xor"),
    ),
    _folded,
)

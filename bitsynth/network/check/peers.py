"""Other runtimes: each computes all edges of a file, by their names in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bitsynth.graph.read import tflite
from bitsynth.graph.read.file import require_onnx
from bitsynth.graph.types import Tensor
from bitsynth.network.check.data import Feed

Executor = Callable[[Feed], Mapping[str, Tensor]]
"""Numbers of edges by name, for inputs by name."""
_NEWEST_IR = 13
"""The newest form of files that ONNX Runtime 1.31 and qonnx 1.0 read."""
_SMALL = ("INT4", "UINT4", "INT2", "UINT2")
"""Types whose arrays ONNX Runtime does not give to Python."""


def _add_outputs(model: Any, *, without: frozenset[str] = frozenset()) -> Any:
    """Return a copy of the model in which all edges but some are outputs."""
    onnx = require_onnx()
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    opened.ir_version = min(opened.ir_version, _NEWEST_IR)
    names = {name for node in opened.graph.node for name in node.output if name}
    names -= {*without, *(o.name for o in opened.graph.output)}
    opened.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(names))
    return opened


def _small(model: Any) -> frozenset[str]:
    """Return the edges of integers of 2 and 4 bits."""
    onnx = require_onnx()
    types = {getattr(onnx.TensorProto, name) for name in _SMALL if hasattr(onnx.TensorProto, name)}
    value_infos = onnx.shape_inference.infer_shapes(model).graph.value_info
    return frozenset(v.name for v in value_infos if v.type.tensor_type.elem_type in types)


def onnxruntime(model: Any) -> Executor:
    """Return an executor of ONNX Runtime without optimization: every node as it is written."""
    import onnxruntime as package

    options = package.SessionOptions()
    options.graph_optimization_level = package.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    opened = _add_outputs(model, without=_small(model)).SerializeToString()
    session = package.InferenceSession(opened, options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    wanted = {i.name for i in session.get_inputs()}
    return lambda inputs: dict(zip(names, session.run(names, _only(inputs, wanted)), strict=True))


def onnx_reference(model: Any) -> Executor:
    """Return an executor of the reference evaluator of the package onnx."""
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(_add_outputs(model))
    names, wanted = list(evaluator.output_names), set(evaluator.input_names)
    return lambda inputs: dict(zip(names, evaluator.run(names, _only(inputs, wanted)), strict=True))


def qonnx(model: Any) -> Executor:
    """Return an executor of the package qonnx."""
    from qonnx.core.modelwrapper import ModelWrapper
    from qonnx.core.onnx_exec import execute_onnx
    from qonnx.transformation.infer_shapes import InferShapes

    copied = type(model)()
    copied.CopyFrom(model)
    copied.ir_version = min(copied.ir_version, _NEWEST_IR)
    wrapped = ModelWrapper(copied).transform(InferShapes())
    wanted = {i.name for i in model.graph.input}

    def run(inputs: Feed) -> Mapping[str, Tensor]:
        results = execute_onnx(wrapped, _only(inputs, wanted), return_full_exec_context=True)
        return {name: value for name, value in results.items() if value is not None}

    return run


def litert(data: bytes) -> Executor:
    """Return an executor of LiteRT's reference kernels, of the bytes of a TensorFlow Lite file.

    Images have a second name, with channels first, as the graph has them.
    """
    from ai_edge_litert import interpreter as package

    running = package.Interpreter(
        model_content=data,
        experimental_op_resolver_type=package.OpResolverType.BUILTIN_REF,
        experimental_preserve_all_tensors=True,
    )
    names = tflite.tensor_names(data)

    def run(inputs: Feed) -> Mapping[str, Tensor]:
        for given in running.get_input_details():
            array = inputs[names[given["index"]]]
            if tuple(given["shape"]) != array.shape:
                running.resize_tensor_input(given["index"], array.shape)
        running.allocate_tensors()
        for given in running.get_input_details():
            running.set_tensor(given["index"], inputs[names[given["index"]]].astype(given["dtype"]))
        running.invoke()
        results = {}
        for tensor in running.get_tensor_details():
            if tensor["index"] >= len(names) or not tensor["shape"].size:
                continue
            value = running.get_tensor(tensor["index"])
            results[names[tensor["index"]]] = value
            if value.ndim > 2:
                results[f"{names[tensor['index']]}{tflite.CHANNELS_FIRST}"] = np.moveaxis(value, -1, 1)
        return results

    return run


def _only(inputs: Feed, wanted: set[str]) -> dict[str, Tensor]:
    return {name: value for name, value in inputs.items() if name in wanted}


PEERS: Mapping[str, Callable[[Any], Executor]] = {
    "onnxruntime": onnxruntime,
    "onnx": onnx_reference,
    "qonnx": qonnx,
}
"""By name: of an ONNX model what runs it."""
TFLITE_PEERS: Mapping[str, Callable[[bytes], Executor]] = {"litert": litert}
"""By name: of the bytes of a TensorFlow Lite file what runs it."""

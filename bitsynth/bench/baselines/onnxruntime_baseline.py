"""ONNX Runtime: a model of one convolution, input and output bound, so that nothing is copied.

Measured are the standard fp32 Conv, and the two operators that ONNX Runtime itself makes of networks: fp32 with
channels in blocks, and int8 with channels last. A standard operator that is alone reorders its input and its output
in every call.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from bitsynth.bench.baselines.convolution import ConvOperands, Prepared
from bitsynth.errors import Refuted, ToolError

VARIANTS = {"fp32": "fp32", "fp32_blocked": "fp32", "int8": "int8"}
_OPSETS = {"": 17, "com.microsoft": 1, "com.microsoft.nchwc": 1}
_BLOCKS = (16, 8)
_IR_VERSION = 9
_FATAL = 4


def start(threads: int) -> Mapping[str, str]:
    """Return facts about the package, by name."""
    onnxruntime.set_default_logger_severity(_FATAL)
    return {"version": onnxruntime.__version__, "instructions": "it does not say"}


def prepare(variant: str, operands: ConvOperands, threads: int) -> Prepared:
    """Return one layer of one of VARIANTS, ready to be run."""
    make = {"fp32": _fp32, "fp32_blocked": _fp32_blocked, "int8": _int8}[variant]
    return make(operands, threads)


def _fp32(operands: ConvOperands, threads: int) -> Prepared:
    node = helper.make_node("Conv", ["x", "w"], ["y"], **_attributes(operands))
    call, y = _bind(node, {"w": operands.w}, operands.x, operands.y, threads)
    return Prepared(call, y.numpy)


def _fp32_blocked(operands: ConvOperands, threads: int) -> Prepared:
    """Return the layer with channels in ONNX Runtime's blocks, of the size that gives the right result."""
    for block in _BLOCKS:
        prepared = _make_blocked(operands, threads, block)
        with suppress(Refuted):
            prepared.check(operands)
            return prepared
    raise ToolError(f"it blocks channels by none of the sizes {_BLOCKS}")


def _make_blocked(operands: ConvOperands, threads: int, block: int) -> Prepared:
    node = helper.make_node("Conv", ["x", "w"], ["y"], domain="com.microsoft.nchwc", **_attributes(operands))
    out, into, height, width = operands.w.shape
    w = operands.w.reshape(out // block, block, into // block, block, height, width).transpose(0, 2, 4, 5, 3, 1)
    x, (_, _, *size) = operands.x, operands.y.shape
    blocked = x.reshape(into // block, block, *x.shape[2:]).transpose(0, 2, 3, 1)
    call, y = _bind(node, {"w": w.reshape(operands.w.shape)}, blocked.reshape(x.shape), operands.y, threads)
    return Prepared(call, lambda: y.numpy().reshape(-1, *size, block).transpose(0, 3, 1, 2).reshape(operands.y.shape))


def _int8(operands: ConvOperands, threads: int) -> Prepared:
    step, middle = operands.step, operands.middle
    names = ["x", "x_scale", "x_zero", "w", "w_scale", "w_zero", "y_scale", "y_zero"]
    one, zero = np.float32(1), np.uint8(0)
    values = [one, zero, operands.w.astype(np.int8), one, np.int8(0), np.float32(step), np.uint8(middle)]
    node = helper.make_node(
        "QLinearConv", names, ["y"], domain="com.microsoft", channels_last=1, **_attributes(operands)
    )
    x, y = (np.ascontiguousarray(t.transpose(0, 2, 3, 1).astype(np.uint8)) for t in (operands.x, operands.y))
    call, out = _bind(node, dict(zip(names[1:], values, strict=True)), x, y, threads)
    return Prepared(call, lambda: step * (out.numpy().transpose(0, 3, 1, 2).astype(np.float32) - middle), step / 2)


def _attributes(operands: ConvOperands) -> dict[str, Any]:
    layer = operands.layer
    return {"kernel_shape": [layer.kernel] * 2, "strides": [layer.stride] * 2, "pads": [layer.padding] * 4}


def _bind(node: Any, constants: Mapping[str, Any], x: NDArray[Any], y: NDArray[Any], threads: int) -> tuple[Any, Any]:
    """Return a call of a model of one node on `x`, and the value it writes to, of the shape and type of `y`."""
    ends = [helper.make_tensor_value_info(n, _kind(t), t.shape) for n, t in (("x", x), ("y", y))]
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph([node], "convolution", ends[:1], ends[1:], weights)
    opsets = [helper.make_opsetid(*pair) for pair in _OPSETS.items()]
    running = session(helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION), threads)
    binding = running.io_binding()
    source, target = (onnxruntime.OrtValue.ortvalue_from_shape_and_type(t.shape, t.dtype) for t in (x, y))
    source.update_inplace(x)
    binding.bind_ortvalue_input("x", source)
    binding.bind_ortvalue_output("y", target)
    return lambda: running.run_with_iobinding(binding), target


def session(model: Any, threads: int) -> Any:
    """Return a session of a model on `threads` threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _kind(values: NDArray[Any]) -> int:
    return int(TensorProto.UINT8 if values.dtype == np.uint8 else TensorProto.FLOAT)

"""TensorFlow Lite files for tests, written with the schema package: tensors and operators become bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
import tflite

from bitsynth.graph.read.tflite.file import OPTIONS

_TYPES = {
    "float32": tflite.TensorType.FLOAT32,
    "float16": tflite.TensorType.FLOAT16,
    "int32": tflite.TensorType.INT32,
    "uint8": tflite.TensorType.UINT8,
    "int64": tflite.TensorType.INT64,
    "bool": tflite.TensorType.BOOL,
    "int16": tflite.TensorType.INT16,
    "int8": tflite.TensorType.INT8,
    "int4": tflite.TensorType.INT4,
}


@dataclass
class Tensor:
    """A tensor of the file: a constant if it has data; quantized if it has scales."""

    name: str
    shape: Sequence[int]
    dtype: str = "int8"
    data: Any = None
    scale: Sequence[float] = ()
    zero: Sequence[int] = ()
    axis: int = 0
    signature: Sequence[int] = ()
    is_variable: bool = False


@dataclass
class Op:
    """An operator of the file, its tensors by name; options are those of `OPTIONS`, the others keep their defaults."""

    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    options: Mapping[str, Any] = field(default_factory=dict)
    custom: str = ""


def constant(name: str, value: Any, dtype: str = "int32", **more: Any) -> Tensor:
    """Return a constant tensor."""
    array = np.asarray(value, dtype if dtype != "int4" else np.int8)
    return Tensor(name, array.shape, dtype, array, **more)


def build(
    tensors: Sequence[Tensor],
    operators: Sequence[Op],
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    version: int = 3,
) -> bytes:
    """Return the bytes of a file."""
    b = flatbuffers.Builder(1024)
    places = {x.name: k for k, x in enumerate(tensors)}
    buffers, result = [_buffer(b, None)], []
    for tensor in tensors:
        if tensor.data is not None:
            buffers.append(_buffer(b, _bytes(tensor)))
        result.append(_tensor(b, tensor, len(buffers) - 1 if tensor.data is not None else 0))
    codes = [*dict.fromkeys((op.name, op.custom) for op in operators)]
    written = [_operator(b, op, codes.index((op.name, op.custom)), places) for op in operators]
    parts = _offsets(b, result), _offsets(b, written)
    given, results = (_ints(b, [places[n] for n in names]) for names in (inputs, outputs))
    tflite.SubGraphStart(b)
    tflite.SubGraphAddTensors(b, parts[0])
    tflite.SubGraphAddInputs(b, given)
    tflite.SubGraphAddOutputs(b, results)
    tflite.SubGraphAddOperators(b, parts[1])
    graph = _offsets(b, [tflite.SubGraphEnd(b)])
    kinds = _offsets(b, [_code(b, *code) for code in codes])
    held = _offsets(b, buffers)
    tflite.ModelStart(b)
    tflite.ModelAddVersion(b, version)
    tflite.ModelAddOperatorCodes(b, kinds)
    tflite.ModelAddSubgraphs(b, graph)
    tflite.ModelAddBuffers(b, held)
    b.Finish(tflite.ModelEnd(b), b"TFL3")
    return bytes(b.Output())


def _bytes(tensor: Tensor) -> bytes:
    if tensor.dtype != "int4":
        return np.ascontiguousarray(tensor.data).tobytes()
    flat = np.asarray(tensor.data).reshape(-1).astype(np.uint8) & 15
    flat = np.concatenate([flat, np.zeros(flat.size % 2, np.uint8)])
    return bytes(flat[0::2] | flat[1::2] << 4)


def _buffer(b: Any, data: bytes | None) -> int:
    held = b.CreateByteVector(data) if data is not None else 0
    tflite.BufferStart(b)
    if data is not None:
        tflite.BufferAddData(b, held)
    return int(tflite.BufferEnd(b))


def _tensor(b: Any, tensor: Tensor, buffer: int) -> int:
    name, shape = b.CreateString(tensor.name), _ints(b, tensor.shape)
    signature = _ints(b, tensor.signature) if tensor.signature else 0
    grid = 0
    if len(tensor.scale):
        scale = b.CreateNumpyVector(np.asarray(tensor.scale, np.float32))
        zero = b.CreateNumpyVector(np.asarray(tensor.zero if len(tensor.zero) else [0] * len(tensor.scale), np.int64))
        tflite.QuantizationParametersStart(b)
        tflite.QuantizationParametersAddScale(b, scale)
        tflite.QuantizationParametersAddZeroPoint(b, zero)
        tflite.QuantizationParametersAddQuantizedDimension(b, tensor.axis)
        grid = tflite.QuantizationParametersEnd(b)
    tflite.TensorStart(b)
    tflite.TensorAddShape(b, shape)
    tflite.TensorAddType(b, _TYPES[tensor.dtype])
    tflite.TensorAddBuffer(b, buffer)
    tflite.TensorAddName(b, name)
    if grid:
        tflite.TensorAddQuantization(b, grid)
    if signature:
        tflite.TensorAddShapeSignature(b, signature)
    tflite.TensorAddIsVariable(b, tensor.is_variable)
    return int(tflite.TensorEnd(b))


def _operator(b: Any, op: Op, code: int, places: Mapping[str, int]) -> int:
    inputs, outputs = (_ints(b, [places.get(n, -1) for n in names]) for names in (op.inputs, op.outputs))
    options = _options(b, op) if op.name in OPTIONS else 0
    tflite.OperatorStart(b)
    tflite.OperatorAddOpcodeIndex(b, code)
    tflite.OperatorAddInputs(b, inputs)
    tflite.OperatorAddOutputs(b, outputs)
    if options:
        tflite.OperatorAddBuiltinOptionsType(b, getattr(tflite.BuiltinOptions, OPTIONS[op.name][0]))
        tflite.OperatorAddBuiltinOptions(b, options)
    return int(tflite.OperatorEnd(b))


def _options(b: Any, op: Op) -> int:
    kind, _ = OPTIONS[op.name]
    values = {k: _ints(b, v) if isinstance(v, (list, tuple)) else v for k, v in op.options.items()}
    getattr(tflite, f"{kind}Start")(b)
    for name, value in values.items():
        getattr(tflite, f"{kind}Add{name}")(b, value)
    return int(getattr(tflite, f"{kind}End")(b))


def _code(b: Any, name: str, custom: str) -> int:
    number, text = getattr(tflite.BuiltinOperator, name), b.CreateString(custom) if custom else 0
    tflite.OperatorCodeStart(b)
    tflite.OperatorCodeAddBuiltinCode(b, number)
    tflite.OperatorCodeAddDeprecatedBuiltinCode(b, min(number, 127))
    tflite.OperatorCodeAddVersion(b, _VERSIONS.get(name, 1))
    if custom:
        tflite.OperatorCodeAddCustomCode(b, text)
    return int(tflite.OperatorCodeEnd(b))


_VERSIONS = {"CONV_2D": 3, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 4, "SOFTMAX": 2, "ADD": 2, "MUL": 2, "SUB": 3}
"""The versions of operators for int8, where TensorFlow Lite looks at them."""


def _ints(b: Any, values: Sequence[int]) -> int:
    return int(b.CreateNumpyVector(np.asarray(values, np.int32)))


def _offsets(b: Any, tables: Sequence[int]) -> int:
    b.StartVector(4, len(tables), 4)
    for table in reversed(tables):
        b.PrependUOffsetTRelative(table)
    return int(b.EndVector())

"""TensorFlow Lite files as raw nodes: flatbuffers are checked before they are trusted, and nothing is executed.

A raw node has the operator's name, its options as attributes, and the quantization of its tensors as attributes
`in0.scale`, `in0.zero`, `in0.axis`, `out0.scale` ...; the file's shape of an output is `out0.shape`.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from bitsynth.errors import SpecError, ToolError
from bitsynth.graph.infer import MAX_AXES, MAX_ELEMENTS
from bitsynth.printable import show

_WINDOW = ("Padding", "StrideW", "StrideH", "FusedActivationFunction")
_DILATIONS = ("DilationWFactor", "DilationHFactor")
_POOL = ("Pool2DOptions", (*_WINDOW, "FilterWidth", "FilterHeight"))
_RESIZE = ("AlignCorners", "HalfPixelCenters")

OPTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ADD": ("AddOptions", ("FusedActivationFunction",)),
    "AVERAGE_POOL_2D": _POOL,
    "CONCATENATION": ("ConcatenationOptions", ("Axis", "FusedActivationFunction")),
    "CONV_2D": ("Conv2DOptions", (*_WINDOW, *_DILATIONS)),
    "DEPTHWISE_CONV_2D": ("DepthwiseConv2DOptions", (*_WINDOW, *_DILATIONS)),
    "DIV": ("DivOptions", ("FusedActivationFunction",)),
    "FULLY_CONNECTED": ("FullyConnectedOptions", ("FusedActivationFunction", "WeightsFormat", "KeepNumDims")),
    "GATHER": ("GatherOptions", ("Axis", "BatchDims")),
    "LEAKY_RELU": ("LeakyReluOptions", ("Alpha",)),
    "MAX_POOL_2D": _POOL,
    "MEAN": ("ReducerOptions", ("KeepDims",)),
    "MUL": ("MulOptions", ("FusedActivationFunction",)),
    "PACK": ("PackOptions", ("ValuesCount", "Axis")),
    "RESHAPE": ("ReshapeOptions", ("NewShape",)),
    "RESIZE_BILINEAR": ("ResizeBilinearOptions", _RESIZE),
    "RESIZE_NEAREST_NEIGHBOR": ("ResizeNearestNeighborOptions", _RESIZE),
    "SOFTMAX": ("SoftmaxOptions", ("Beta",)),
    "SPLIT": ("SplitOptions", ("NumSplits",)),
    "SPLIT_V": ("SplitVOptions", ("NumSplits",)),
    "SQUEEZE": ("SqueezeOptions", ("SqueezeDims",)),
    "STRIDED_SLICE": (
        "StridedSliceOptions",
        ("BeginMask", "EndMask", "EllipsisMask", "NewAxisMask", "ShrinkAxisMask", "Offset"),
    ),
    "SUB": ("SubOptions", ("FusedActivationFunction",)),
    "TRANSPOSE_CONV": ("TransposeConvOptions", _WINDOW),
    "UNPACK": ("UnpackOptions", ("Num", "Axis")),
}
"""By operator."""


DOMAIN = "org.tensorflow.lite"
"""The domain of the raw nodes."""
CHANNELS_FIRST = ".nchw"
"""The end of the name of an image of the file with channels first."""
INSTALL_TFLITE = "pip install 'tflite>=2.18,<3'"
"""The command that installs the package with the schema of the files."""
_IDENTIFIER = b"TFL3"
_VERSION = 3
_MAX_OPERATORS = 100_000
_MAX_TENSORS = 1_000_000
_DAMAGE = (struct.error, IndexError, ValueError, TypeError, OverflowError, AttributeError, MemoryError, KeyError)
"""Errors that the accessors of flatbuffers raise for offsets outside the file."""


@dataclass(frozen=True)
class _Type:
    """A type of tensors: its name in ONNX, its name in the graph, and its bits."""

    onnx: str
    name: str
    bits: int


_TYPES = {
    0: _Type("FLOAT", "float32", 32),
    1: _Type("FLOAT16", "float16", 16),
    2: _Type("INT32", "int32", 32),
    3: _Type("UINT8", "uint8", 8),
    4: _Type("INT64", "int64", 64),
    6: _Type("BOOL", "bool", 8),
    7: _Type("INT16", "int16", 16),
    9: _Type("INT8", "int8", 8),
    10: _Type("DOUBLE", "float64", 64),
    12: _Type("UINT64", "uint64", 64),
    15: _Type("UINT32", "uint32", 32),
    16: _Type("UINT16", "uint16", 16),
    17: _Type("INT4", "int4", 4),
    18: _Type("BFLOAT16", "bfloat16", 16),
}
"""The types of tensors that are read, by their number in the schema."""


def is_tflite(data: bytes) -> bool:
    """Return whether the bytes of a file begin as TensorFlow Lite files do."""
    return data[4:8] == _IDENTIFIER


def require_tflite() -> Any:
    """Import and return the package tflite; ToolError if it is not installed."""
    try:
        import tflite
    except ImportError as error:
        raise ToolError(
            f"TensorFlow Lite files are read with the package tflite: {error}; install it with {INSTALL_TFLITE}"
        ) from None
    return tflite


def parse(data: bytes) -> Any:
    """Return the model of raw nodes of a file's bytes; SpecError if the file is damaged or not understood."""
    package = require_tflite()
    if not is_tflite(data):
        raise SpecError("not a TensorFlow Lite model: it does not have TFL3 at byte 4")
    try:
        return _File(package, data).model()
    except SpecError:
        raise
    except _DAMAGE as error:
        raise SpecError(f"not a TensorFlow Lite model, or cut short: {error}") from None


def tensor_names(data: bytes) -> list[str]:
    """Return the name of each tensor of a file's bytes, by index; SpecError if the file is damaged."""
    return _File(require_tflite(), data).names


@dataclass(frozen=True)
class _Tensor:
    """A tensor of a file.

    Args:
        name: A unique name.
        type: Its type; None for types that are not read.
        shape: Its sizes; -1 where the file leaves one open.
        data: The bytes of a constant; None of other tensors.
        scale: The scales of its codes, empty if it is not quantized.
        zero: The zero points, as many.
        axis: The axis along which there are several.
        trouble: Why nodes cannot read it; "" if they can.
    """

    name: str
    type: _Type | None
    shape: tuple[int, ...]
    data: bytes | None
    scale: tuple[float, ...]
    zero: tuple[int, ...]
    axis: int
    trouble: str

    @property
    def known_type(self) -> _Type:
        """The type; SpecError for tensors that nodes cannot read."""
        if self.trouble or self.type is None:
            raise SpecError(f"tensor {show(self.name)} {self.trouble}")
        return self.type


@dataclass
class _File:
    """A file that is read."""

    package: Any
    data: bytes
    used: dict[int, None] = field(default_factory=dict)
    """Constants that nodes read, by index."""
    tensors: dict[int, _Tensor] = field(default_factory=dict)
    """Tensors that were read, by index."""

    def model(self) -> Any:
        """Return the model of raw nodes."""
        import onnx

        graph = onnx.GraphProto(name="network")
        operators = [self._operator(k) for k in range(_length(self.graph.OperatorsLength(), _MAX_OPERATORS))]
        graph.node.extend(operators)
        for given, to in ((self.graph.InputsAsNumpy(), graph.input), (self.graph.OutputsAsNumpy(), graph.output)):
            for index in _indices(given):
                to.append(self._value(self.tensor(index)))
        for index in self.used:
            tensor = self.tensor(index)
            kind = getattr(onnx.TensorProto, tensor.known_type.onnx)
            graph.initializer.append(
                onnx.TensorProto(name=tensor.name, data_type=kind, dims=tensor.shape, raw_data=tensor.data)
            )
        constants = {tensor.name for tensor in graph.initializer}
        if any(given.name in constants for given in graph.input):
            raise SpecError("an input of the network is a constant; the file is damaged")
        model = onnx.ModelProto(graph=graph)
        model.opset_import.append(onnx.OperatorSetIdProto(domain=DOMAIN, version=1))
        return model

    @cached_property
    def root(self) -> Any:
        """The table of the whole file."""
        root = self.package.Model.GetRootAs(self.data, 0)
        if root.Version() != _VERSION:
            raise SpecError(f"schema version {root.Version()} is not read; known: {_VERSION}")
        return root

    @cached_property
    def graph(self) -> Any:
        """The table of the only subgraph."""
        count = self.root.SubgraphsLength()
        if count != 1:
            raise SpecError(f"{count} subgraphs; one is read: control flow is not compiled")
        return self.root.Subgraphs(0)

    @cached_property
    def names(self) -> list[str]:
        """A name for each tensor: its own, with the index where several have it or none."""
        count = _length(self.graph.TensorsLength(), _MAX_TENSORS)
        own = [_text(self.graph.Tensors(k).Name()) for k in range(count)]
        tensors_of_name = Counter(own)
        names = [
            name if name and tensors_of_name[name] == 1 else f"{name or 'tensor'}_{k}" for k, name in enumerate(own)
        ]
        if len({*names}) != count:
            names = [f"{name}_{k}" for k, name in enumerate(own)]
        return names

    def tensor(self, index: int) -> _Tensor:
        """Return a tensor; SpecError if there is no such."""
        if not 0 <= index < len(self.names):
            raise SpecError(f"tensor {index} of {len(self.names)}; the file is damaged")
        if index not in self.tensors:
            self.tensors[index] = self._read_tensor(index)
        return self.tensors[index]

    def _read_tensor(self, index: int) -> _Tensor:
        table, name = self.graph.Tensors(index), self.names[index]
        shape, signature = (_indices(x) for x in (table.ShapeAsNumpy(), table.ShapeSignatureAsNumpy()))
        open_sizes = [k for k, n in enumerate(signature) if n == -1] if len(signature) == len(shape) else []
        if len(shape) > MAX_AXES or any(n < 0 for n in shape) or math.prod(shape) > MAX_ELEMENTS:
            raise SpecError(f"tensor {show(name)} has shape {tuple(shape)}: too many axes or elements")
        kind, trouble = _TYPES.get(table.Type()), ""
        if kind is None:
            trouble = f"has type {table.Type()}, which is not compiled"
        elif table.IsVariable():
            trouble = "keeps state between calls, which is not compiled"
        elif table.Sparsity() is not None:
            trouble = "is sparse; store it dense"
        data = self._buffer(table.Buffer(), name)
        if data is not None and kind is not None and not trouble:
            _require_size(name, kind, shape, len(data))
        sizes = tuple(-1 if k in open_sizes and data is None else n for k, n in enumerate(shape))
        scale, zero, axis = _quantization(table, name, shape)
        return _Tensor(name, kind, sizes, data, scale, zero, axis, trouble)

    def _buffer(self, index: int, name: str) -> bytes | None:
        """Return the bytes of a constant; None of tensors that are computed."""
        if index == 0:
            return None
        if not 0 < index < self.root.BuffersLength():
            raise SpecError(f"tensor {show(name)}: buffer {index} of {self.root.BuffersLength()}; the file is damaged")
        buffer = self.root.Buffers(index)
        if offset := buffer.Offset():
            if offset + buffer.Size() > len(self.data):
                raise SpecError(f"tensor {show(name)}: its data end after the file does; it is cut short")
            return self.data[offset : offset + buffer.Size()] or None
        content = buffer.DataAsNumpy()
        return None if isinstance(content, int) or not content.size else bytes(content)

    def _operator(self, number: int) -> Any:
        """Return the raw node of an operator."""
        import onnx

        table = self.graph.Operators(number)
        op = self._name(table.OpcodeIndex())
        inputs, outputs = _indices(table.InputsAsNumpy()), _indices(table.OutputsAsNumpy())
        tensors = [None if k == -1 else self.tensor(k) for k in inputs]
        results = [self.tensor(k) for k in outputs]
        named = show(f"{op} {results[0].name if results else 'without a name'}")
        try:
            if not results:
                raise SpecError("has no output")
            attributes = {**self._options(op, table), **_describe(tensors, results)}
            node = onnx.helper.make_node(
                op,
                [x.name if x else "" for x in tensors],
                [x.name for x in results],
                name=results[0].name,
                domain=DOMAIN,
                **attributes,
            )
        except SpecError as error:
            raise SpecError(f"{named}: {error}") from None
        except _DAMAGE as error:
            raise SpecError(f"{named}: its options or tensors are damaged: {error}") from None
        self.used |= dict.fromkeys(
            k for k, x in zip(inputs, tensors, strict=True) if x is not None and x.data is not None
        )
        return node

    def _name(self, index: int) -> str:
        """Return the name of an operator; SpecError for custom ones."""
        if not 0 <= index < self.root.OperatorCodesLength():
            raise SpecError(f"operator code {index} of {self.root.OperatorCodesLength()}; the file is damaged")
        table = self.root.OperatorCodes(index)
        code = max(table.BuiltinCode(), table.DeprecatedBuiltinCode())
        if code == self.package.BuiltinOperator.CUSTOM:
            custom = show(_text(table.CustomCode()))
            raise SpecError(f"the custom operator {custom} is not compiled; cut the network before it")
        return self._operator_names.get(code, f"operator {code}")

    @cached_property
    def _operator_names(self) -> dict[int, str]:
        """The names of the schema's operators by number."""
        return {code: name for name, code in vars(self.package.BuiltinOperator).items() if isinstance(code, int)}

    def _options(self, op: str, table: Any) -> dict[str, Any]:
        """Return the options of an operator by name; defaults of the schema if it has none."""
        if op not in OPTIONS:
            return {}
        kind, names = OPTIONS[op]
        options = table.BuiltinOptions()
        given = getattr(self.package.BuiltinOptions, kind)
        if options is None or table.BuiltinOptionsType() == 0:
            return {}
        if table.BuiltinOptionsType() != given:
            raise SpecError(f"its options are not {kind}; the file is damaged")
        view = getattr(self.package, kind)()
        view.Init(options.Bytes, options.Pos)
        read: dict[str, Any] = {}
        for name in names:
            value = getattr(view, f"{name}AsNumpy")() if hasattr(view, f"{name}AsNumpy") else getattr(view, name)()
            read[name] = value.tolist() if isinstance(value, np.ndarray) else value
        return {k: int(v) if isinstance(v, bool) else v for k, v in read.items()}

    def _value(self, tensor: _Tensor) -> Any:
        """Return an input or output of the network."""
        import onnx

        kind = getattr(onnx.TensorProto, tensor.known_type.onnx)
        shape = ["batch" if n == -1 and k == 0 else f"size{k}" if n == -1 else n for k, n in enumerate(tensor.shape)]
        return onnx.helper.make_tensor_value_info(tensor.name, kind, shape)


def _describe(inputs: list[_Tensor | None], outputs: list[_Tensor]) -> dict[str, Any]:
    """Return the attributes with the grids of a node's tensors; SpecError for tensors that are not read."""
    attributes: dict[str, Any] = {}
    for where, tensors in (("in", inputs), ("out", outputs)):
        for k, tensor in enumerate(tensors):
            if tensor is None:
                continue
            kind = tensor.known_type
            if tensor.scale:
                attributes[f"{where}{k}.scale"] = list(tensor.scale)
                attributes[f"{where}{k}.zero"] = list(tensor.zero)
                attributes[f"{where}{k}.axis"] = tensor.axis
            if where == "out":
                attributes[f"out{k}.type"] = kind.name
                attributes[f"out{k}.rank"] = len(tensor.shape)
                if tensor.shape:
                    attributes[f"out{k}.shape"] = list(tensor.shape)
    return attributes


def _quantization(table: Any, name: str, shape: list[int]) -> tuple[tuple[float, ...], tuple[int, ...], int]:
    """Return the scales, zero points and axis of a tensor's codes; no scales if it is not quantized."""
    quantization = table.Quantization()
    if quantization is None or quantization.ScaleLength() == 0:
        return (), (), 0
    if quantization.DetailsType() != 0:
        raise SpecError(f"tensor {show(name)}: its quantization is not by scale and zero point")
    axis = quantization.QuantizedDimension()
    most = shape[axis] if 0 <= axis < len(shape) else 1
    count, zeros = quantization.ScaleLength(), quantization.ZeroPointLength()
    if count not in (1, most) or zeros not in (0, 1, count):
        raise SpecError(f"tensor {show(name)}: {count} scales and {zeros} zero points do not fit shape {tuple(shape)}")
    scale = np.asarray(quantization.ScaleAsNumpy(), np.float32)
    zero = np.broadcast_to(quantization.ZeroPointAsNumpy() if zeros else 0, count)
    if not np.isfinite(scale).all() or (scale <= 0).any():
        raise SpecError(f"tensor {show(name)}: a scale is not a number above 0")
    return tuple(map(float, scale)), tuple(map(int, zero)), axis


def _require_size(name: str, kind: _Type, shape: list[int], size: int) -> None:
    """Raise SpecError if the bytes of a constant do not fit its type and shape."""
    wanted = -(-math.prod(shape) * kind.bits // 8)
    if wanted != size:
        raise SpecError(f"tensor {show(name)}: {size:,} bytes, where its type and shape need {wanted:,}")


def _text(name: bytes | None) -> str:
    """Return a name of the file; SpecError if it is not UTF-8."""
    try:
        return (name or b"").decode()
    except UnicodeDecodeError:
        raise SpecError(f"the name {name!r} is not UTF-8; the file is damaged") from None


def _length(count: int, most: int) -> int:
    """Return a number of tables; SpecError if it is larger than a file of networks has."""
    if count > most:
        raise SpecError(f"{count:,} tables, more than the {most:,} that are read")
    return count


def _indices(indices: Any) -> list[int]:
    """Return a vector of the file, which is 0 where it is left out."""
    return [] if isinstance(indices, int) else [int(k) for k in indices]

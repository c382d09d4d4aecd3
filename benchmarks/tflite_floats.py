"""Float TensorFlow Lite files of plain convolutional networks as ONNX models, for quantizers that read ONNX alone.

Images have channels first. Weights that the file holds as int8 codes become the floats that they stand for.

Given:  CONV_2D with weights (O, H, W, I), padding SAME and a fused RELU; RESHAPE; FULLY_CONNECTED; SOFTMAX
Result: Conv with weights (O, I, H, W) and pads, Relu; Flatten; Gemm, an output without the Softmax
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tflite
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from bitsynth.errors import SpecError

OPSET = 17
_NAMES = {value: name for name, value in vars(tflite.BuiltinOperator).items() if isinstance(value, int)}
_TYPES = {tflite.TensorType.FLOAT32: np.float32, tflite.TensorType.INT8: np.int8, tflite.TensorType.INT32: np.int32}
_VALID = 1
_RELU, _RELU6 = 1, 3


def onnx_of(path: Path) -> Any:
    """Return a float network of TensorFlow Lite as an ONNX model, without a Softmax at its end."""
    return _Writer(tflite.Model.GetRootAsModel(path.read_bytes(), 0), path.stem).model()


def end_grids(path: Path) -> tuple[tuple[float, int], tuple[float, int]]:
    """Return scale and zero point of the codes that a quantized TensorFlow Lite file takes, and of those it returns."""
    graph = tflite.Model.GetRootAsModel(path.read_bytes(), 0).Subgraphs(0)
    grids = [graph.Tensors(end).Quantization() for end in (graph.Inputs(0), graph.Outputs(0))]
    given, result = ((float(grid.Scale(0)), int(grid.ZeroPoint(0))) for grid in grids)
    return given, result


class _Writer:
    """A model that is being written; edges are named by the numbers of the file's tensors."""

    def __init__(self, file: Any, name: str) -> None:
        self.file, self.name, self.graph = file, name, file.Subgraphs(0)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.same: dict[str, str] = {}

    def model(self) -> Any:
        """Return the model."""
        first, last = self.graph.Inputs(0), self.graph.Outputs(0)
        for k in range(self.graph.OperatorsLength()):
            operator = self.graph.Operators(k)
            code = self.file.OperatorCodes(operator.OpcodeIndex())
            name = _NAMES[max(code.BuiltinCode(), code.DeprecatedBuiltinCode())]
            if name not in _WRITERS:
                raise SpecError(f"{self.name}: {name} is not converted to ONNX")
            _WRITERS[name](self, operator)
        ends = [(f"t{first}", _first(self.shape(first))), (self.edge(last), self.shape(last))]
        x, y = (helper.make_tensor_value_info(edge, TensorProto.FLOAT, shape) for edge, shape in ends)
        graph = helper.make_graph(self.nodes, self.name, [x], [y], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)

    def shape(self, tensor: int) -> list[int]:
        """Return the shape of a tensor of the file."""
        return [int(n) for n in self.graph.Tensors(tensor).ShapeAsNumpy()]

    def edge(self, tensor: int) -> str:
        """Return the edge of a tensor."""
        return self.same.get(f"t{tensor}", f"t{tensor}")

    def numbers(self, tensor: int) -> NDArray[np.float32]:
        """Return the values of a constant, dequantized if it holds codes."""
        info = self.graph.Tensors(tensor)
        data = self.file.Buffers(info.Buffer()).DataAsNumpy()
        values = np.frombuffer(data.tobytes(), _TYPES[info.Type()]).reshape(self.shape(tensor)).astype(np.float32)
        grid = info.Quantization()
        if not grid or not grid.ScaleLength():
            return values
        sides = [1] * values.ndim
        sides[grid.QuantizedDimension() if grid.ScaleLength() > 1 else 0] = -1
        zero = grid.ZeroPointAsNumpy().astype(np.float32).reshape(sides)
        return np.asarray((values - zero) * grid.ScaleAsNumpy().astype(np.float32).reshape(sides), np.float32)

    def constant(self, value: Any) -> str:
        """Add a constant; return its name."""
        name = f"w{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def add(self, op: str, inputs: list[str], tensor: int, activation: int = 0, **attributes: Any) -> None:
        """Add the node of a tensor, and of the activation that is fused to it."""
        out = f"t{tensor}"
        raw = f"{out}.raw" if activation else out
        self.nodes.append(helper.make_node(op, inputs, [raw], name=f"{op}_{tensor}", **attributes))
        if activation == _RELU:
            self.nodes.append(helper.make_node("Relu", [raw], [out], name=f"Relu_{tensor}"))
        elif activation == _RELU6:
            ends = [self.constant(np.float32(end)) for end in (0, 6)]
            self.nodes.append(helper.make_node("Clip", [raw, *ends], [out], name=f"Clip_{tensor}"))
        elif activation:
            raise SpecError(f"{self.name}: activation {activation} is not converted to ONNX")

    def pads(self, tensor: int, window: Any, kernel: list[int]) -> list[int]:
        """Return the pads of a window, as TensorFlow Lite chooses them."""
        if window.Padding() == _VALID:
            return [0] * 4
        sides = self.shape(tensor)[1:3]
        strides = [window.StrideH(), window.StrideW()]
        whole = [max(0, (-(-n // s) - 1) * s + k - n) for n, s, k in zip(sides, strides, kernel, strict=True)]
        return [*(n // 2 for n in whole), *(n - n // 2 for n in whole)]


def _first(shape: list[int]) -> list[int]:
    """Return the shape of an image with channels first."""
    return [shape[0], shape[3], *shape[1:3]] if len(shape) == 4 else shape


def _options(operator: Any, kind: Any) -> Any:
    options = kind()
    options.Init(operator.BuiltinOptions().Bytes, operator.BuiltinOptions().Pos)
    return options


def _write_convolution(to: _Writer, operator: Any) -> None:
    options = _options(operator, tflite.Conv2DOptions)
    _convolve(to, operator, options, to.numbers(operator.Inputs(1)).transpose(0, 3, 1, 2), 1)


def _write_depthwise(to: _Writer, operator: Any) -> None:
    options = _options(operator, tflite.DepthwiseConv2DOptions)
    weights = to.numbers(operator.Inputs(1)).transpose(3, 0, 1, 2)
    _convolve(to, operator, options, weights, to.shape(operator.Inputs(0))[3])


def _convolve(to: _Writer, operator: Any, options: Any, weights: NDArray[np.float32], group: int) -> None:
    x, kernel = operator.Inputs(0), [int(n) for n in weights.shape[2:]]
    inputs = [to.edge(x), to.constant(weights), to.constant(to.numbers(operator.Inputs(2)))]
    to.add(
        *("Conv", inputs, operator.Outputs(0), options.FusedActivationFunction()),
        kernel_shape=kernel,
        strides=[options.StrideH(), options.StrideW()],
        dilations=[options.DilationHFactor(), options.DilationWFactor()],
        pads=to.pads(x, options, kernel),
        group=group,
    )


def _write_dense(to: _Writer, operator: Any) -> None:
    options = _options(operator, tflite.FullyConnectedOptions)
    constants = [to.constant(to.numbers(operator.Inputs(k))) for k in (1, 2)]
    inputs = [to.edge(operator.Inputs(0)), *constants]
    to.add("Gemm", inputs, operator.Outputs(0), options.FusedActivationFunction(), transB=1)


def _write_addition(to: _Writer, operator: Any) -> None:
    options = _options(operator, tflite.AddOptions)
    edges = [to.edge(operator.Inputs(k)) for k in (0, 1)]
    to.add("Add", edges, operator.Outputs(0), options.FusedActivationFunction())


def _write_mean(to: _Writer, operator: Any) -> None:
    options, x = _options(operator, tflite.Pool2DOptions), operator.Inputs(0)
    kernel = [options.FilterHeight(), options.FilterWidth()]
    if kernel != to.shape(x)[1:3]:
        raise SpecError(f"{to.name}: an average over a part of the image is not converted to ONNX")
    to.add("GlobalAveragePool", [to.edge(x)], operator.Outputs(0))


def _write_reshape(to: _Writer, operator: Any) -> None:
    x = operator.Inputs(0)
    if len(to.shape(x)) == 4 and to.shape(x)[1:3] != [1, 1]:
        raise SpecError(f"{to.name}: a reshape of an image is not converted to ONNX")
    to.add("Flatten", [to.edge(x)], operator.Outputs(0))


def _write_softmax(to: _Writer, operator: Any) -> None:
    to.same[f"t{operator.Outputs(0)}"] = to.edge(operator.Inputs(0))


_WRITERS = {
    "ADD": _write_addition,
    "AVERAGE_POOL_2D": _write_mean,
    "CONV_2D": _write_convolution,
    "DEPTHWISE_CONV_2D": _write_depthwise,
    "FULLY_CONNECTED": _write_dense,
    "RESHAPE": _write_reshape,
    "SOFTMAX": _write_softmax,
}

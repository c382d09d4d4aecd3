"""Twins of a quantized network for its peers: the same file without quantizers, and that in int8."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper, version_converter

from bitsynth.errors import SpecError
from bitsynth.graph.read.inputs import drop_constant_inputs

_QUANTIZERS = {"Quant", "IntQuant", "BipolarQuant", "Trunc", "MultiThreshold", "QuantizeLinear"}
_CARRIERS = {"Clip", "DequantizeLinear"}
"""Operators that change nothing after a quantizer."""
_INTEGER = ("QLinear", "ConvInteger", "MatMulInteger", "DynamicQuantizeLinear", "QGemm", "RequantShift")
_OPSET = 17
"""The operator set of `quantize_static`; older files are converted, as before 13 there are no scales by channel."""
_SAMPLES = 8
"""Random inputs that int8 is calibrated with."""


def float_twin(model: Any) -> Any:
    """Return the network in floats: quantizers return their input; SpecError for a node without such a twin.

    It is what a peer runs whose user never quantized the network, for its speed alone.
    """
    if integer_node := next((n for n in model.graph.node if n.op_type.startswith(_INTEGER)), None):
        raise SpecError(f"{integer_node.op_type} {integer_node.name} has no twin in floats")
    result = onnx.ModelProto()
    result.CopyFrom(model)
    twin = _Twin(dict(_constants(model)))
    nodes = [node for old in model.graph.node for node in twin.nodes(old)]
    nodes += [helper.make_node("Identity", [twin.same[o.name]], [o.name]) for o in _rename_edges(model, twin.same)]
    del result.graph.node[:], result.graph.value_info[:]
    result.graph.node.extend(nodes)
    used = {name for node in nodes for name in node.input}
    initializers = [x for x in result.graph.initializer if x.name in used]
    del result.graph.initializer[:]
    result.graph.initializer.extend(initializers)
    result.graph.initializer.extend(numpy_helper.from_array(v, name) for name, v in twin.values.items())
    drop_constant_inputs(result)
    return _of_today(result)


def _of_today(model: Any) -> Any:
    """Return the model in an opset that all of ONNX Runtime reads, without domains that it does not use."""
    if any(node.domain not in ("", "ai.onnx") for node in model.graph.node):
        return model
    version = next((x.version for x in model.opset_import if x.domain in ("", "ai.onnx")), 1)
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("", version))
    return model if version >= _OPSET else version_converter.convert_version(model, _OPSET)


def _constants(model: Any) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield initializers and the values of Constant nodes."""
    for x in model.graph.initializer:
        yield x.name, numpy_helper.to_array(x)
    for node in model.graph.node:
        for value in node.attribute if node.op_type == "Constant" else ():
            if value.name == "value":
                yield node.output[0], numpy_helper.to_array(value.t)


def _rename_edges(model: Any, same: Mapping[str, str]) -> list[Any]:
    return [o for o in model.graph.output if o.name in same]


class _Twin:
    """Names that are another's, as no quantizer lies between, and weights whose values are known."""

    def __init__(self, constants: Mapping[str, NDArray[Any]]) -> None:
        self._constants = constants
        self.same: dict[str, str] = {}
        self.values: dict[str, NDArray[Any]] = {}

    def nodes(self, node: Any) -> Iterator[Any]:
        """Yield the node with renamed edges, or nothing if it is removed."""
        first = node.input[0] if node.input else ""
        codes = self._constants.get(self.same.get(first, first))
        if node.op_type == "DequantizeLinear" and codes is not None:
            self.values[node.output[0]] = self._weights(node, codes)
        elif node.op_type in _QUANTIZERS or (node.op_type in _CARRIERS and first in self.same):
            self.same[node.output[0]] = self.same.get(first, first)
        elif node.op_type == "Clip" and codes is not None and codes.dtype.kind in "iu":
            self.same[node.output[0]] = first
        else:
            copied = onnx.NodeProto()
            copied.CopyFrom(node)
            del copied.input[:]
            copied.input.extend(self.same.get(name, name) for name in node.input)
            yield copied

    def _weights(self, node: Any, codes: NDArray[Any]) -> NDArray[Any]:
        """Return the values of dequantized weights."""
        scale, *zero = (self._constants[n] for n in node.input[1:] if n)
        axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
        shape = [-1 if k == axis % codes.ndim else 1 for k in range(codes.ndim)] if np.ndim(scale) else []
        grid = [np.asarray(x, np.float32).reshape(shape) for x in (scale, *zero)]
        plain = codes.astype(np.float32) - (grid[1] if zero else np.float32(0))
        return np.asarray(plain * grid[0], np.float32)


def int8_twin(twin: Any, inputs: Mapping[str, NDArray[Any]]) -> Any:
    """Return the float twin as ONNX Runtime quantizes it, calibrated with inputs like those given."""
    rng = np.random.default_rng(0)
    samples = [{k: rng.permuted(v).reshape(v.shape) for k, v in inputs.items()} for _ in range(_SAMPLES)]
    return quantize_by_onnxruntime(twin, samples)


def quantize_by_onnxruntime(model: Any, samples: Iterable[Mapping[str, NDArray[Any]]]) -> Any:
    """Return a float network as ONNX Runtime's `quantize_static` makes it, in QDQ form.

    Weights are int8 by channel, activations uint8 whose ranges are the least and the greatest numbers of the samples.
    """
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class SampleReader(CalibrationDataReader):  # type: ignore[misc]
        """Samples as ONNX Runtime's calibration reads them."""

        def __init__(self) -> None:
            self._left = iter(samples)

        def get_next(self) -> dict[str, NDArray[Any]] | None:
            sample = next(self._left, None)
            return None if sample is None else dict(sample)

    with tempfile.TemporaryDirectory() as folder:
        plain, folded, quantized = (Path(folder) / f"{name}.onnx" for name in ("plain", "folded", "int8"))
        onnx.save(model, plain)
        quant_pre_process(plain, folded, skip_symbolic_shape=True)
        onnx.save(_of_today(onnx.load(folded)), folded)
        options = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8, "per_channel": True}
        quantize_static(folded, quantized, SampleReader(), **options)
        return onnx.load(quantized)

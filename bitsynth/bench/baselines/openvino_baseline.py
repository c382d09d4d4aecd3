"""OpenVINO: a model of one convolution, channels last, whose input and output are bound before it is timed.

The int8 variant quantizes input and output with FakeQuantize; OpenVINO's low-precision passes turn it into an int8
convolution, from codes to codes. Its scales are not 1, as the passes remove quantizers whose scale is 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import openvino
from numpy.typing import NDArray
from openvino import opset13 as op

from bitsynth.bench.baselines.convolution import ConvOperands, Prepared

VARIANTS = {"fp32": "fp32", "int8": "int8"}
_SCALE = np.float32(0.5)
"""What codes of activations and of weights stand for."""
_MAX_CODE = np.float32(255)
"""The greatest code of activations and of results, which have 8 bits."""


def start(threads: int) -> Mapping[str, str]:
    """Return facts about the package, by name."""
    return {"version": openvino.__version__.partition("-")[0], "instructions": "it does not say"}


def prepare(variant: str, operands: ConvOperands, threads: int) -> Prepared:
    """Return one layer of one of VARIANTS, ready to be run."""
    return (_fp32 if variant == "fp32" else _int8)(operands, threads)


def _fp32(operands: ConvOperands, threads: int) -> Prepared:
    x = _input(operands, openvino.Type.f32)
    call, out = _bind(operands, x, _convolve(operands, _to_channels_first(x), op.constant(operands.w)), threads)
    return Prepared(call, lambda: out().transpose(0, 3, 1, 2))


def _int8(operands: ConvOperands, threads: int) -> Prepared:
    step, middle, unit = operands.step, operands.middle, _SCALE * _SCALE
    x = _input(operands, openvino.Type.u8)
    codes = op.convert(_to_channels_first(x), openvino.Type.f32)
    values = _quantize(codes, (0, _MAX_CODE), (0, _MAX_CODE * _SCALE))
    plain = op.convert(op.constant(operands.w.astype(np.int8)), openvino.Type.f32)
    weights = op.multiply(plain, op.constant(np.full((len(operands.w), 1, 1, 1), _SCALE)))
    range_ = -middle * step * unit, (_MAX_CODE - middle) * step * unit
    quantized = _quantize(_convolve(operands, values, weights), range_, (0, _MAX_CODE))
    call, out = _bind(operands, x, op.convert(quantized, openvino.Type.u8), threads)
    return Prepared(call, lambda: step * (out().transpose(0, 3, 1, 2).astype(np.float32) - middle), step / 2)


def _input(operands: ConvOperands, kind: Any) -> Any:
    _, channels, height, width = operands.x.shape
    return op.parameter([1, height, width, channels], kind)


def _to_channels_first(x: Any) -> Any:
    """Return a transposed view, channels first, as operators take it; the input's memory stays channels last."""
    return op.transpose(x, op.constant(np.array([0, 3, 1, 2])))


def _convolve(operands: ConvOperands, x: Any, w: Any) -> Any:
    stride, padding = [operands.layer.stride] * 2, [operands.layer.padding] * 2
    return op.convolution(x, w, stride, padding, padding, [1, 1])


def _quantize(x: Any, into: tuple[Any, Any], out: tuple[Any, Any]) -> Any:
    return op.fake_quantize(x, *(op.constant(np.float32(end)) for end in (*into, *out)), 256)


def _bind(operands: ConvOperands, x: Any, y: Any, threads: int) -> tuple[Any, Any]:
    """Return a call of the model, and a function that gives its output, (1, H, W, C)."""
    model = openvino.Model([op.transpose(y, op.constant(np.array([0, 2, 3, 1])))], [x], "convolution")
    settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    kind = x.get_element_type().to_dtype()
    given: NDArray[Any] = np.ascontiguousarray(operands.x.transpose(0, 2, 3, 1).astype(kind))
    request.set_input_tensor(openvino.Tensor(given))
    return request.infer, lambda: request.get_output_tensor().data

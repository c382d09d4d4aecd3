"""PyTorch: convolutions of oneDNN and FBGEMM, weights packed before, activations channels last.

The operators are called as compiled code calls them: packed weights in channels-last layout were faster
than `conv2d` of either layout on every layer tried. int8 takes and gives quantized activations.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch

from bitsynth.bench.baselines.convolution import ConvOperands, Prepared

VARIANTS = {"fp32": "fp32", "int8_onednn": "int8", "int8_fbgemm": "int8"}
_LAST = torch.channels_last
_ONE = [1, 1]


def start(threads: int) -> Mapping[str, str]:
    """Set the number of threads; facts about the package, by name."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    torch.inference_mode(True).__enter__()
    return {"version": str(torch.__version__), "instructions": torch.backends.cpu.get_cpu_capability()}


def prepare(variant: str, operands: ConvOperands, threads: int) -> Prepared:
    """Return one layer of one of VARIANTS, ready to be run."""
    return _fp32(operands) if variant == "fp32" else _int8(operands, variant.removeprefix("int8_"))


def _fp32(operands: ConvOperands) -> Prepared:
    layer = operands.layer
    stride, padding = [layer.stride] * 2, [layer.padding] * 2
    x = torch.from_numpy(operands.x).contiguous(memory_format=_LAST)
    plain = torch.from_numpy(operands.w).to_mkldnn()
    w = torch._C._nn.mkldnn_reorder_conv2d_weight(plain, padding, stride, _ONE, 1, list(x.shape))
    convolve = torch.ops.mkldnn._convolution_pointwise.default

    def call() -> Any:
        return convolve(x, w, None, padding, stride, _ONE, 1, "none", [], "")

    return Prepared(call, lambda: call().numpy())


def _int8(operands: ConvOperands, engine: str) -> Prepared:
    layer, step, middle = operands.layer, operands.step, operands.middle
    stride, padding = [layer.stride] * 2, [layer.padding] * 2
    torch.backends.quantized.engine = engine
    x = torch.quantize_per_tensor(torch.from_numpy(operands.x), 1.0, 0, torch.quint8).contiguous(memory_format=_LAST)
    w = torch.quantize_per_tensor(torch.from_numpy(operands.w), 1.0, 0, torch.qint8)
    packed = torch.ops.quantized.conv2d_prepack(w, None, stride, padding, _ONE, 1)
    convolve = torch.ops.quantized.conv2d.new

    def call() -> Any:
        return convolve(x, packed, step, middle)

    return Prepared(call, lambda: call().dequantize().numpy(), step / 2)

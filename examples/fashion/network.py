"""A residual network of few bits in Brevitas, with 64 channels in every convolution, and its ONNX files.

All products but the first and the last are of few bits. They have 64 channels, since that fills whole words of packed
bits: low-bit kernels gain most where the depth of a product is a multiple of 64. Codes are quantized after the
residual addition, so that every edge between layers carries codes.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import ClassVar

import brevitas.nn as qnn
import torch
from brevitas.core.scaling import ScalingImplType
from brevitas.export import export_onnx_qcdq
from brevitas.export.onnx.qonnx.function import BrevitasQuantOp
from brevitas.export.onnx.qonnx.handler import BrevitasActQuantProxyHandler
from brevitas.export.onnx.qonnx.manager import QONNXManager
from brevitas.inject.enum import StatsOp
from brevitas.quant import (
    Int8WeightPerChannelFloat,
    Int8WeightPerTensorFloat,
    SignedBinaryWeightPerTensorConst,
    Uint8ActPerTensorFloat,
)
from torch import Tensor, nn

CHANNELS, CLASSES = 64, 10
"""Of every convolution, and of the last dense layer."""


class Bipolar(SignedBinaryWeightPerTensorConst):
    """Weights -1 and 1 with a fixed scale, which batch normalization corrects."""

    scaling_const = 0.1


class Ternary(Int8WeightPerChannelFloat):
    """Weights -1, 0 and 1 of two bits: 1 is a channel's mean magnitude, as its greatest would leave most of them 0."""

    scaling_stats_op = StatsOp.AVE


class Convolution(nn.Module):
    """A convolution to `CHANNELS` channels and its batch normalization; a window of 3 keeps the picture's size."""

    def __init__(self, ins: int, kernel: int, stride: int, bits: int) -> None:
        super().__init__()
        options = {"weight_quant": {1: Bipolar, 2: Ternary}.get(bits, Int8WeightPerChannelFloat)}
        if bits > 1:
            options["weight_bit_width"] = bits
        self.conv = qnn.QuantConv2d(ins, CHANNELS, kernel, stride, kernel // 2, bias=False, **options)
        self.norm = nn.BatchNorm2d(CHANNELS)

    def forward(self, x: Tensor) -> Tensor:
        """Sums, normalized."""
        return self.norm(self.conv(x))


def codes(bits: int) -> nn.Module:
    """Relu and the quantizer behind it, to codes 0 to 2^bits - 1, with a scale that is learned."""
    scale = ScalingImplType.PARAMETER
    return qnn.QuantReLU(act_quant=Uint8ActPerTensorFloat, bit_width=bits, scaling_impl_type=scale, scaling_init=2.0)


class Block(nn.Module):
    """Two convolutions and a shortcut; with a stride the shortcut is a convolution of one pixel."""

    def __init__(self, stride: int, act_bits: int, w_bits: int) -> None:
        super().__init__()
        self.first = Convolution(CHANNELS, 3, stride, w_bits)
        self.first_codes = codes(act_bits)
        self.second = Convolution(CHANNELS, 3, 1, w_bits)
        self.shortcut = nn.Identity() if stride == 1 else Convolution(CHANNELS, 1, stride, w_bits)
        self.codes = codes(act_bits)

    def forward(self, x: Tensor) -> Tensor:
        """Codes of the sum."""
        return self.codes(self.second(self.first_codes(self.first(x))) + self.shortcut(x))


class Network(nn.Sequential):
    """From pictures (N, 1, 28, 28) of floats 0 to 1 to logits (N, 10); the first and the last layer have 8 bits."""

    def __init__(self, act_bits: int, w_bits: int) -> None:
        pixels = {"bit_width": 8, "scaling_impl_type": ScalingImplType.CONST, "scaling_init": 255 / 256}
        layers = {
            "pixels": qnn.QuantIdentity(act_quant=Uint8ActPerTensorFloat, **pixels),
            "stem": Convolution(1, 3, 2, 8),
            "stem_codes": codes(act_bits),
            "large": Block(1, act_bits, w_bits),
            "small": Block(2, act_bits, w_bits),
            "mean": nn.AdaptiveAvgPool2d(1),
            "flat": nn.Flatten(),
            "dense": qnn.QuantLinear(CHANNELS, CLASSES, bias=True, weight_quant=Int8WeightPerTensorFloat),
        }
        super().__init__(OrderedDict(layers))
        self.act_bits, self.w_bits = act_bits, w_bits


class _CodesOfOneBit(BrevitasActQuantProxyHandler):
    """Codes behind a Relu are 0 and 1 of one bit too, where Brevitas would write a quantizer to -1 and 1."""

    def prepare_for_export(self, module: nn.Module) -> None:
        super().prepare_for_export(module)
        self.quant_op = BrevitasQuantOp


class _Qonnx(QONNXManager):
    handlers: ClassVar = [_CodesOfOneBit, *(h for h in QONNXManager.handlers if h is not BrevitasActQuantProxyHandler)]


def export(network: Network, stem: Path) -> list[Path]:
    """Write `network`, for one picture a call, as STEM_qonnx.onnx and STEM_qcdq.onnx, which cannot hold one bit."""
    network.eval().to(memory_format=torch.contiguous_format)
    writers = {"qonnx": _Qonnx.export, "qcdq": export_onnx_qcdq}
    if 1 in (network.act_bits, network.w_bits):
        del writers["qcdq"]
    paths = {kind: stem.with_name(f"{stem.name}_{kind}.onnx") for kind in writers}
    names = {"input_names": ["picture"], "output_names": ["logits"], "keep_initializers_as_inputs": False}
    for kind, path in paths.items():
        example = torch.zeros(1, 1, 28, 28)
        writers[kind](network, args=example, export_path=str(path), opset_version=17, dynamo=False, **names)
    return list(paths.values())

"""Networks of random weights whose convolutions have codes of few bits on both sides, in QONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mobilenets
import numpy as np
from onnx import helper, numpy_helper

DOMAIN = "qonnx.custom_op.general"
CHAIN = ((64, 1),) * 5 + ((128, 2),) + ((128, 1),) * 4 + ((256, 2),) + ((256, 1),) * 4 + ((512, 2),) + ((512, 1),) * 4
SMALL_VGG = (128, 128), (256, 256), (512, 512)
"""Channels of the convolutions before each pool of a small VGG for CIFAR-10."""


class FewBits(mobilenets.Floats):
    """A network whose convolutions have codes on both sides: 8 bits at its input and in its dense layer."""

    def __init__(self, act_bits: int, w_bits: int) -> None:
        super().__init__()
        self.act_bits, self.w_bits = act_bits, w_bits

    def quantized(self, x: str, scale: Any, bits: int, *, signed: bool, narrow: bool = False) -> str:
        """Add a quantizer of an edge or of weights, and return the edge of its codes."""
        inputs = [x, *(self.constant(value) for value in (scale, 0, bits))]
        about = {"signed": int(signed), "narrow": int(narrow), "rounding_mode": "ROUND", "domain": DOMAIN}
        return super().add("Quant", inputs, self.channels.get(x, 0), **about)

    def add(self, op: str, inputs: list[str], channels: int, **attributes: Any) -> str:
        """Add a node, with the weights of a product quantized to codes with a scale for each channel."""
        if op in ("Conv", "Gemm"):
            bits = self.w_bits if op == "Conv" and inputs[0] != "x" else 8
            weights = numpy_helper.to_array(next(w for w in self.constants if w.name == inputs[1]))
            sizes = np.abs(weights).reshape(len(weights), -1)
            scale = 1.3 * sizes.mean(1) if bits < 8 else sizes.max(1) / 127
            scale = scale.reshape(-1, *[1] * (weights.ndim - 1))
            inputs = [inputs[0], self.quantized(inputs[1], scale, bits, signed=True, narrow=True), *inputs[2:]]
            if inputs[0] == "x":
                inputs[0] = self.quantized("x", 1 / 127, 8, signed=True)
        return super().add(op, inputs, channels, **attributes)

    def relu(self, x: str) -> str:
        """Add max(x, 0) and a quantizer, and return the edge of its codes."""
        return self.quantized(super().relu(x), 2.1 / ((1 << self.act_bits) - 1), self.act_bits, signed=False)

    def relu6(self, x: str) -> str:
        """Add x between 0 and 6 and a quantizer, and return the edge of its codes."""
        return self.quantized(super().relu6(x), 3 / ((1 << self.act_bits) - 1), self.act_bits, signed=False)

    def linear(self, x: str) -> str:
        """Add a quantizer of 8 bits, and return the edge of its codes."""
        return self.quantized(x, 4 / 127, 8, signed=True)

    def model(self, name: str, last: str, size: int) -> Any:
        """Return the model, with the quantizers' domain."""
        model = super().model(name, last, size)
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
        return model


def chain(net: mobilenets.Floats) -> str:
    """Add convolutions 3 x 3 one after another, and return the edge of the classes."""
    x = "x"
    for to, stride in CHAIN:
        x = net.relu(net.conv(x, to, 3, stride))
    return net.classified(x)


def small_vgg(net: mobilenets.Floats) -> str:
    """Add convolutions 3 x 3 with a pool after each two, and return the edge of the classes."""
    x = "x"
    for widths in SMALL_VGG:
        for to in widths:
            x = net.relu(net.conv(x, to, 3))
        x = net.add("MaxPool", [x], net.channels[x], kernel_shape=[2, 2], strides=[2, 2])
    return net.classified(x)


def resnet18_of_floats(net: mobilenets.Floats) -> str:
    """Add the blocks of ResNet-18 with a shortcut in floats, as HWGQ, DoReFa and Bi-Real Net have it.

    Each block begins with the quantizer of what its convolutions read; what is added is not quantized.
    """
    x = mobilenets.Floats.relu(net, net.conv("x", 64, 7, 2))  # Without the quantizer that `net.relu` adds.
    x = net.add("MaxPool", [x], 64, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for to, stride in mobilenets.RESNET18:
        codes = net.relu(x)
        same = x if stride == 1 else net.conv(codes, to, 1, stride)
        x = net.sum(net.conv(net.relu(net.conv(codes, to, 3, stride)), to, 3), same)
    return net.classified(net.relu(x))


NETWORKS: dict[str, tuple[Callable[[mobilenets.Floats], str], int]] = {
    "resnet18": (mobilenets.resnet18, 224),
    "resnet18_of_floats": (resnet18_of_floats, 224),
    "resnet50": (mobilenets.resnet50, 224),
    "mobilenet_v1": (mobilenets.mobilenet_v1, 224),
    "mobilenet_v2": (mobilenets.mobilenet_v2, 224),
    "small_vgg": (small_vgg, 32),
    "chain": (chain, 32),
}
"""Networks by name, and the pixels of the sides of their images."""


def built(name: str, act_bits: int, w_bits: int, size: int | None = None) -> Any:
    """Return a network of these bits for images of `size` pixels a side, by default its own."""
    make, usual = NETWORKS[name]
    net = FewBits(act_bits, w_bits)
    return net.model(name, make(net), size or usual)

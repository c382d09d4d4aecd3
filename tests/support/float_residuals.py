"""Small ResNets whose shortcuts stay real numbers, as in DoReFa, HWGQ and Bi-Real."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bitsynth.graph.types import Tensor
from support.onnx_files import QONNX, model, node


@dataclass
class FloatResiduals:
    """A network that is being written: blocks of batch norm, ReLU and quantizer before each convolution.

    Args:
        rng: Draws weights and batch norms.
        bits: Of activations.
        dyadic: Whether batch norms and scales are powers of two and multiples of 1/16, so that values are on ties.
    """

    rng: np.random.Generator
    bits: int = 2
    dyadic: bool = False
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, Tensor] = field(default_factory=dict)

    def add(self, op: str, inputs: str, **attributes: Any) -> str:
        """Add a node, and return its result."""
        name = f"e{len(self.nodes)}"
        self.nodes.append(node(op, inputs, name, name=f"n{len(self.nodes)}", **attributes))
        return name

    def constant(self, value: Any) -> str:
        """Add a constant of float32."""
        name = f"k{len(self.constants)}"
        self.constants[name] = np.asarray(value, np.float32)
        return name

    def quantized(self, x: str, scale: Any, bits: int, *, signed: int = 0, rounding: str = "ROUND") -> str:
        """Add a quantizer."""
        settings = " ".join(map(self.constant, (scale, 0, bits)))
        about = {"signed": signed, "narrow": signed, "rounding_mode": rounding, "domain": QONNX}
        return self.add("Quant", f"{x} {settings}", **about)

    def conv(self, x: str, given: int, to: int, kernel: int, stride: int = 1) -> str:
        """Add a convolution with ternary weights."""
        weights = self.rng.choice([-1, 0, 1], (to, given, kernel, kernel))
        scale = np.full((to, 1, 1, 1), 0.25) if self.dyadic else self.rng.uniform(0.1, 0.3, (to, 1, 1, 1))
        scale = scale.astype(np.float32)
        coded = self.quantized(self.constant(weights * scale), scale, 2, signed=1)
        window = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        return self.add("Conv", f"{x} {coded}", **window)

    def batch_norm(self, x: str, channels: int) -> str:
        """Add a batch norm; some gains are negative."""
        gain = self.rng.choice([-0.5, 0.5, 1.0], channels) if self.dyadic else self.rng.uniform(-0.3, 1, channels)
        shifts = (np.rint(16 * self.rng.normal(0, 0.5, channels)) / 16 for _ in range(2))
        bias, mean = shifts if self.dyadic else self.rng.normal(0, 0.3, (2, channels))
        variance = np.ones(channels) if self.dyadic else self.rng.uniform(0.5, 2, channels)
        given = " ".join(map(self.constant, (gain, bias, mean, variance)))
        return self.add("BatchNormalization", f"{x} {given}", epsilon=0.0 if self.dyadic else 1e-5)

    def codes(self, x: str) -> str:
        """Add a ReLU and a quantizer."""
        scale = 0.5 if self.dyadic else 0.77 / ((1 << self.bits) - 1)
        return self.quantized(self.add("Relu", x), scale, self.bits)

    def block(self, x: str, given: int, to: int, stride: int = 1) -> str:
        """Add a block of two convolutions and a shortcut."""
        first = self.codes(self.batch_norm(x, given))
        inner = self.codes(self.batch_norm(self.conv(first, given, to, 3, stride), to))
        branch = self.batch_norm(self.conv(inner, to, to, 3), to)
        short = x if stride == 1 and given == to else self.batch_norm(self.conv(first, given, to, 1, stride), to)
        return self.add("Add", f"{branch} {short}")


def resnet_of_reals(rng: np.random.Generator, size: int = 12, bits: int = 2, *, dyadic: bool = False) -> Any:
    """Return a ResNet of three blocks on images of `size` pixels a side, with a pool of real numbers."""
    net = FloatResiduals(rng, bits, dyadic)
    x = net.conv(net.quantized("x", 0.125, 8, signed=1), 3, 16, 3, 2)
    x = net.add("Relu", net.batch_norm(x, 16))
    x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for given, to, stride in ((16, 16, 1), (16, 24, 2), (24, 24, 1)):
        x = net.block(x, given, to, stride)
    x = net.add("Flatten", net.add("GlobalAveragePool", net.add("Relu", net.batch_norm(x, 24))))
    net.nodes.append(node("MatMul", f"{x} {net.constant(rng.normal(size=(24, 10)))}", "y", name="last"))
    return model(net.nodes, {"x": (1, 3, size, size)}, net.constants)

"""MobileNets, ResNets and Inception V3 of random weights as ONNX Runtime quantizes them, for `bitsynth bench network`.

    python benchmarks/mobilenets.py FOLDER [--only mobilenet_v2] [--size 96]

Writes NAME_fp32.onnx and NAME_int8.onnx: QDQ by `quantize_static`, uint8 activations, int8 weights by channel. Batch
norm is folded, as exporters do, so each convolution has a bias. Needs `pip install '.[peers]'`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import report
from onnx import TensorProto, helper, numpy_helper

from bitsynth.bench.twins import int8_twin
from bitsynth.errors import SpecError

OPSET = 17
CLASSES = 1000
V1 = (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *(((512, 1),) * 5), (1024, 2), (1024, 1)
"""Channels and stride of each depthwise and pointwise pair (Howard et al. 2017, table 1)."""
V2 = (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)
"""Expansion, channels, blocks and first stride of each stage (Sandler et al. 2018, table 2)."""
RESNET50 = (64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)
"""Inner channels, blocks and first stride of each stage (He et al. 2016, table 1)."""
RESNET18 = (64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)


class Floats:
    """A network in floats that is being written, its input the edge `x`."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.channels = {"x": 3}

    def add(self, op: str, inputs: list[str], channels: int, **attributes: Any) -> str:
        """A node of one result, whose name it gives."""
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        self.channels[name] = channels
        return name

    def constant(self, value: Any) -> str:
        """An initializer of float32."""
        name = f"w_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name

    def conv(
        self,
        x: str,
        to: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        *,
        depthwise: bool = False,
        padded: bool = True,
    ) -> str:
        """A convolution of odd sides with a bias; weights keep the variance of what they sum."""
        groups = self.channels[x] if depthwise else 1
        sides = [kernel] * 2 if isinstance(kernel, int) else list(kernel)
        shape = to, self.channels[x] // groups, *sides
        weights = self.rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
        pads = [side // 2 for side in sides] * 2 if padded else [0] * 4
        more: dict[str, Any] = {"kernel_shape": sides, "strides": [stride] * 2, "pads": pads}
        named = [x, self.constant(weights), self.constant(self.rng.normal(0, 0.1, to))]
        return self.add("Conv", named, to, group=groups, **more)

    def relu(self, x: str) -> str:
        """max(x, 0)."""
        return self.add("Relu", [x], self.channels[x])

    def relu6(self, x: str) -> str:
        """x between 0 and 6."""
        return self.add("Clip", [x, self.constant(0), self.constant(6)], self.channels[x])

    def linear(self, x: str) -> str:
        """x, whose quantizer is here if the network has any."""
        return x

    def sum(self, x: str, y: str) -> str:
        """x + y."""
        return self.add("Add", [x, y], self.channels[x])

    def convs(self, x: str, *layers: tuple[int, int | tuple[int, int]]) -> str:
        """Add convolutions with Relu, of these channels and sides."""
        for to, kernel in layers:
            x = self.relu(self.conv(x, to, kernel))
        return x

    def halved(self, x: str, to: int) -> str:
        """Add a convolution 3 x 3 with Relu of stride 2, without padding."""
        return self.relu(self.conv(x, to, 3, 2, padded=False))

    def pooled(self, x: str) -> str:
        """Add the maximum of 3 x 3 pixels, stride 2, without padding."""
        return self.add("MaxPool", [x], self.channels[x], kernel_shape=[3, 3], strides=[2, 2])

    def averaged(self, x: str) -> str:
        """Add the mean of 3 x 3 pixels, of padding too, stride 1."""
        more = {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1}
        return self.add("AveragePool", [x], self.channels[x], **more)

    def joined(self, *parts: str) -> str:
        """Join the channels of several edges."""
        return self.add("Concat", list(parts), sum(self.channels[part] for part in parts), axis=1)

    def classified(self, x: str) -> str:
        """The mean over pixels and a dense layer."""
        flat = self.add("Flatten", [self.add("GlobalAveragePool", [x], self.channels[x])], self.channels[x])
        weights = self.rng.standard_normal((CLASSES, self.channels[x])) / np.sqrt(self.channels[x])
        named = [flat, self.constant(weights), self.constant(np.zeros(CLASSES))]
        return self.add("Gemm", named, CLASSES, transB=1)

    def model(self, name: str, last: str, size: int) -> Any:
        """The model with the result `last`, of images of `size` pixels a side."""
        shapes = (("x", [1, 3, size, size]), (last, [1, CLASSES]))
        x, y = (helper.make_tensor_value_info(end, TensorProto.FLOAT, shape) for end, shape in shapes)
        graph = helper.make_graph(self.nodes, name, [x], [y], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


def mobilenet_v1(net: Floats) -> str:
    """Depthwise and pointwise convolutions in turn."""
    x = net.relu(net.conv("x", 32, 3, 2))
    for to, stride in V1:
        x = net.relu(net.conv(x, net.channels[x], 3, stride, depthwise=True))
        x = net.relu(net.conv(x, to, 1))
    return net.classified(x)


def mobilenet_v2(net: Floats) -> str:
    """Inverted residuals with linear bottlenecks."""
    x = net.relu6(net.conv("x", 32, 3, 2))
    for expansion, to, blocks, first in V2:
        for k in range(blocks):
            given, stride = x, 1 if k else first
            wide = net.relu6(net.conv(x, expansion * net.channels[x], 1)) if expansion > 1 else x
            wide = net.relu6(net.conv(wide, net.channels[wide], 3, stride, depthwise=True))
            x = net.linear(net.conv(wide, to, 1))
            x = net.linear(net.sum(given, x)) if k else x
    return net.classified(net.relu6(net.conv(x, 1280, 1)))


def resnet18(net: Floats) -> str:
    """Basic blocks of two convolutions 3 x 3."""
    x = net.relu(net.conv("x", 64, 7, 2))
    x = net.add("MaxPool", [x], 64, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for to, stride in RESNET18:
        same = x if stride == 1 else net.conv(x, to, 1, stride)
        x = net.relu(net.sum(net.conv(net.relu(net.conv(x, to, 3, stride)), to, 3), same))
    return net.classified(x)


def resnet50(net: Floats) -> str:
    """Bottleneck blocks: 1 x 1, 3 x 3, 1 x 1."""
    x = net.relu(net.conv("x", 64, 7, 2))
    x = net.add("MaxPool", [x], 64, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for inner, blocks, first in RESNET50:
        for k in range(blocks):
            stride = 1 if k else first
            same = x if k else net.conv(x, 4 * inner, 1, stride)
            wide = net.relu(net.conv(net.relu(net.conv(x, inner, 1)), inner, 3, stride))
            x = net.relu(net.sum(net.conv(wide, 4 * inner, 1), same))
    return net.classified(x)


def inception_v3(net: Floats) -> str:
    """Write branches of convolutions whose channels are joined (Szegedy et al. 2016), without the side output."""
    x = net.relu(net.conv(net.halved("x", 32), 32, 3, padded=False))
    x = net.convs(net.pooled(net.convs(x, (64, 3))), (80, 1))
    x = net.pooled(net.relu(net.conv(x, 192, 3, padded=False)))
    for to in (32, 64, 64):
        small, large = net.convs(x, (64, 1), (96, 3), (96, 3)), net.convs(x, (48, 1), (64, 5))
        x = net.joined(net.convs(x, (64, 1)), large, small, net.convs(net.averaged(x), (to, 1)))
    x = net.joined(net.halved(x, 384), net.halved(net.convs(x, (64, 1), (96, 3)), 96), net.pooled(x))
    wide, high = (1, 7), (7, 1)
    for inner in (128, 160, 160, 192):
        once = net.convs(x, (inner, 1), (inner, wide), (192, high))
        twice = net.convs(x, (inner, 1), (inner, high), (inner, wide), (inner, high), (192, wide))
        x = net.joined(net.convs(x, (192, 1)), once, twice, net.convs(net.averaged(x), (192, 1)))
    after = net.halved(net.convs(x, (192, 1), (192, wide), (192, high)), 192)
    x = net.joined(net.halved(net.convs(x, (192, 1)), 320), after, net.pooled(x))
    for _ in range(2):
        ends = net.convs(x, (384, 1)), net.convs(x, (448, 1), (384, 3))
        split = [net.convs(end, (384, kernel)) for end in ends for kernel in ((1, 3), (3, 1))]
        x = net.joined(net.convs(x, (320, 1)), *split, net.convs(net.averaged(x), (192, 1)))
    return net.classified(x)


NETWORKS: dict[str, Callable[[Floats], str]] = {
    "mobilenet_v1": mobilenet_v1,
    "mobilenet_v2": mobilenet_v2,
    "resnet18": resnet18,
    "resnet50": resnet50,
    "inception_v3": inception_v3,
}
SIZES = dict.fromkeys(NETWORKS, 224) | {"inception_v3": 299}
"""Pixels of the sides of images."""


def built(name: str, size: int | None = None) -> tuple[Any, Any]:
    """Return a network in floats, and as ONNX Runtime quantizes that; SpecError for a name that there is not."""
    if name not in NETWORKS:
        raise SpecError(f"--only: unknown {name!r}; known: {', '.join(NETWORKS)}")
    net, size = Floats(), size or SIZES[name]
    model = net.model(name, NETWORKS[name](net), size)
    image = np.random.default_rng(1).random((1, 3, size, size), np.float32)
    return model, int8_twin(model, {"x": image})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help=f"one of {', '.join(NETWORKS)}")
    parser.add_argument("--size", type=int, help="pixels a side; usually 299 for Inception V3, else 224")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for name in [given.only] if given.only else NETWORKS:
        for kind, model in zip(("fp32", "int8"), built(name, given.size), strict=True):
            path = given.folder / f"{name}_{kind}.onnx"
            onnx.save(model, path)
            print(path)
    return 0


if __name__ == "__main__":
    report.run(main)

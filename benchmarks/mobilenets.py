"""MobileNets and ResNets of random weights as ONNX Runtime quantizes them, for `bitsynth bench network`.

    python benchmarks/mobilenets.py FOLDER [--only mobilenet_v2] [--size 224]

Writes NAME_fp32.onnx and NAME_int8.onnx: QDQ by `quantize_static`, uint8 activations, int8 weights by channel. Batch
norm is folded, as exporters do, so each convolution has a bias. Needs `pip install 'bitsynth[peers]'`.
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

    def conv(self, x: str, to: int, kernel: int, stride: int = 1, *, depthwise: bool = False) -> str:
        """A convolution of odd side with a bias; weights keep the variance of what they sum."""
        groups = self.channels[x] if depthwise else 1
        shape = to, self.channels[x] // groups, kernel, kernel
        weights = self.rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
        more: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        named = [x, self.constant(weights), self.constant(self.rng.normal(0, 0.1, to))]
        return self.add("Conv", named, to, group=groups, **more)

    def relu(self, x: str) -> str:
        """max(x, 0)."""
        return self.add("Relu", [x], self.channels[x])

    def relu6(self, x: str) -> str:
        """x between 0 and 6."""
        return self.add("Clip", [x, self.constant(0), self.constant(6)], self.channels[x])

    def sum(self, x: str, y: str) -> str:
        """x + y."""
        return self.add("Add", [x, y], self.channels[x])

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
            x = net.conv(wide, to, 1)
            x = net.sum(given, x) if k else x
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


NETWORKS: dict[str, Callable[[Floats], str]] = {
    "mobilenet_v1": mobilenet_v1,
    "mobilenet_v2": mobilenet_v2,
    "resnet18": resnet18,
    "resnet50": resnet50,
}


def built(name: str, size: int) -> tuple[Any, Any]:
    """A network in floats, and as ONNX Runtime quantizes that; SpecError for a name that there is not."""
    if name not in NETWORKS:
        raise SpecError(f"--only: unknown {name!r}; known: {', '.join(NETWORKS)}")
    net = Floats()
    model = net.model(name, NETWORKS[name](net), size)
    image = np.random.default_rng(1).random((1, 3, size, size), np.float32)
    return model, int8_twin(model, {"x": image})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help=f"one of {', '.join(NETWORKS)}")
    parser.add_argument("--size", type=int, default=224, help="pixels a side")
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

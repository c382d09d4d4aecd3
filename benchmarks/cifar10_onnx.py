"""CNV on CIFAR-10 as QONNX files, from the weights and thresholds of `cifar10_cnv.py`.

    python benchmarks/cifar10_onnx.py [--models DIR] -o DIR

The input is an image (1, 3, 32, 32) of float32 numbers from -1 to 1, which a quantizer of 8 bits rounds to integers
over 128. Weights are BipolarQuant; the scales of training are folded into MultiThreshold, whose inputs are sums with
the weights' signs.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from cifar10_cnv import CLASSES, LAYERS, NETWORKS, POOLED, Array, levels
from models import checksums, default_models
from onnx import TensorProto, helper, numpy_helper

QONNX = "qonnx.custom_op.general"
UNIT = 1 / 128
"""What an integer of the image stands for."""


def network(arrays: dict[str, Array], bits: int) -> Any:
    """The file of a network of activations of `bits` bits."""
    nodes: list[Any] = []
    numbers = {"unit": UNIT, "zero": 0.0, "eight": 8.0, "one": 1.0}
    given: dict[str, Any] = {name: np.asarray(number, np.float32) for name, number in numbers.items()}

    def add(op: str, inputs: str, output: str, domain: str = "", **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs.split(), [output], output, None, domain, **attributes))
        return output

    x = add("Quant", "image unit zero eight", "pixels", QONNX, signed=1, narrow=0, rounding_mode="FLOOR")
    for i in range(LAYERS):
        w = arrays[f"w{i}"][: CLASSES if i == LAYERS - 1 else None].astype(np.float32)
        given[f"raw{i}"] = w.transpose(0, 3, 1, 2) if w.ndim == 4 else w.T
        add("BipolarQuant", f"raw{i} one", f"weight{i}", QONNX)
        if w.ndim == 2 and arrays[f"w{i - 1}"].ndim == 4:
            x = add("Flatten", x, "flat", axis=1)
        x = add("Conv" if w.ndim == 4 else "MatMul", f"{x} weight{i}", f"sums{i}")
        if i < LAYERS - 1:
            first = levels(arrays[f"t{i}"], i, bits, w[0].size) + 1
            given[f"thresholds{i}"] = (first * (1.0 if i else UNIT)).astype(np.float32)
            how = {"out_scale": 2.0 if bits == 1 else 1.0, "out_bias": -1.0}
            x = add("MultiThreshold", f"{x} thresholds{i}", f"codes{i}", QONNX, **how)
        if i in POOLED:
            x = add("MaxPool", x, f"pool{i}", kernel_shape=[2, 2], strides=[2, 2])
    graph = helper.make_graph(
        nodes,
        f"cnv_w1a{bits}",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, (1, 3, 32, 32))],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, (1, CLASSES))],
        [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in given.items()],
    )
    versions = [helper.make_opsetid("", 13), helper.make_opsetid(QONNX, 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=8)


def image_of(pixels: Array) -> Array:
    """An image (1, 3, 32, 32) of signed 8-bit pixels (32, 32, 3)."""
    image: Array = (pixels.transpose(2, 0, 1)[None] * UNIT).astype(np.float32)
    return image


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=default_models())
    parser.add_argument("-o", dest="to", type=Path, required=True)
    args = parser.parse_args()
    checksums(args.models, [f"{name}.npz" for name in NETWORKS])
    args.to.mkdir(parents=True, exist_ok=True)
    for name, (bits, _) in NETWORKS.items():
        with np.load(args.models / f"{name}.npz") as file:
            onnx.save(network(dict(file), bits), args.to / f"{name}.onnx")


if __name__ == "__main__":
    main()

"""Nodes that QONNX and FINN make of others on the way to hardware: patches, bits that are alike, means of integers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bitsynth.graph.read.float_nodes import Reader
from bitsynth.graph.read.layouts import channels_last
from bitsynth.graph.read.patches import patches
from bitsynth.graph.read.quantizer import Quantizer
from bitsynth.graph.read.source import FileNode
from bitsynth.graph.read.window_nodes import max_pool, summed, window
from bitsynth.graph.types import Integers, cast


def _im2col(node: FileNode) -> tuple[str, ...]:
    """The pixels of each window, those of all channels beside each other, as channels of one pixel."""
    kernel, pads = node.get("kernel_size"), [int(n) for n in node.get("pad_amount") or [0] * 4]
    if kernel is None or len(kernel) != 2 or len(pads) != 4 or min(kernel) < 1:
        raise node.fail(f"kernel_size {kernel} and pad_amount {pads} want 2 and 4 numbers")
    if node.get("pad_value", 0):
        raise node.fail(f"pads with {node.get('pad_value')}; only 0 is compiled")
    sizes = {"strides": node.get("stride"), "pads": pads, "dilations": node.get("dilations")}
    return (patches(node, window(replace(node, attributes=sizes), tuple(kernel))),)


def _quantized_mean(node: FileNode) -> tuple[str, ...]:
    """Sums of windows of integers, shifted right until they have `obits`."""
    kernel, stride, bits = (int(node.get(name, 1)) for name in ("kernel", "stride", "ibits"))
    most = ((1 << bits) - 1) * kernel * kernel
    shift = max(0, most.bit_length() - int(node.get("obits", bits)))
    sums = summed(replace(node, attributes={"kernel_shape": [kernel] * 2, "strides": [stride] * 2}))
    kind = node.graph.edges[sums].type
    if not isinstance(kind, Integers) or not kind.is_plain:
        raise node.fail("averages what is not known to be integers; it wants the codes of a quantizer")
    return (Quantizer("FLOOR", (kind.least >> shift, kind.most >> shift), 2.0**shift, 0.0).add(node, sums),)


def _quantized_mean_of_layout(node: FileNode) -> tuple[str, ...]:
    last = node.get("data_layout", "NCHW") == "NHWC"
    return (channels_last(_quantized_mean) if last else _quantized_mean)(node)


def _equal_bits(node: FileNode) -> tuple[str, ...]:
    """How many bits of a row and a column are alike: a * (2 * w - 1) + (1 - w), summed over all bits."""
    bits, dtype = node.value(1, "the second input"), node.of(0).dtype
    if bits.ndim != 2 or not np.isin(bits, (0, 1)).all():
        raise node.fail("its weights are not a matrix of bits, 0 and 1")
    sums = node.add("matmul", node.edge(0), node.constant(cast(2 * bits - 1, dtype)))
    return (node.add("add", sums, node.constant(cast((1 - bits).sum(0), dtype))),)


READERS: dict[str, Reader] = {
    "Im2Col": channels_last(_im2col),
    "MaxPoolNHWC": channels_last(max_pool),
    "QuantAvgPool2d": _quantized_mean_of_layout,
    "XnorPopcountMatMul": _equal_bits,
}
"""Of the domains of QONNX's quantizers."""

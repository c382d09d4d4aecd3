"""Nodes of QONNX that are those of standard ONNX on images with channels last."""

from __future__ import annotations

from bitsynth.graph.read.float_nodes import Reader, batch_norm
from bitsynth.graph.read.layouts import channels_last
from bitsynth.graph.read.window_nodes import conv, max_pool

DOMAIN = "qonnx.custom_op.channels_last"
READERS: dict[str, Reader] = {
    "BatchNormalization": channels_last(batch_norm),
    "Conv": channels_last(conv, 1),
    "MaxPool": channels_last(max_pool),
}
"""Weights of convolutions have channels last too."""

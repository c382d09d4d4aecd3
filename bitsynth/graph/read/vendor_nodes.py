"""Quantizers of other tools: OpenVINO's FakeQuantize, QuantizeLinear by the names of Vitis AI and Quark."""

from __future__ import annotations

import numpy as np

from bitsynth.graph.read.float_nodes import Reader
from bitsynth.graph.read.linear_nodes import dequantize, quantize
from bitsynth.graph.read.quantizer import Quantizer
from bitsynth.graph.read.source import FEW_ROUNDINGS, FileNode, fitting, positive
from bitsynth.graph.types import Tensor

_MOST_LEVELS = 1 << 16


def _fake_quantize(node: FileNode) -> tuple[str, ...]:
    """Numbers from one low limit to a high one on so many levels, then from another low limit to another high one."""
    levels = int(node.get("levels", 256))
    if not 2 <= levels <= _MOST_LEVELS:
        raise node.fail(f"levels is {levels}; it must be 2 to {_MOST_LEVELS}")
    names = "input_low", "input_high", "output_low", "output_high"
    ends = [fitting(node, node.value(k, name), name).astype(np.float64) for k, name in enumerate(names, 1)]
    scales = [positive(node, (ends[k + 1] - ends[k]) / (levels - 1), names[k + 1]) for k in (0, 2)]
    zeros = [_whole(-ends[k] / scale, levels) for k, scale in zip((0, 2), scales, strict=True)]
    low = _centre(zeros, levels)
    rounding = "HALF_ODD" if low % 2 else "ROUND"  # of two levels the even one, counted from the lowest
    made = Quantizer(rounding, (low, low + levels - 1), scales[0], zeros[0] + low, zero_first=True)
    return (made.add(node, node.edge(0), grid=(scales[1], zeros[1] + low)),)


def _whole(zero: Tensor, levels: int) -> Tensor:
    """Zero points, as whole numbers if they are such but for roundings of the limits."""
    nearest = np.rint(zero)
    return nearest if (abs(zero - nearest) <= FEW_ROUNDINGS * levels).all() else zero


def _centre(zeros: list[Tensor], levels: int) -> int:
    """The least code: codes that stand for themselves where their bits with a sign hold all, else from 0."""
    bits = (levels - 1).bit_length()
    first = zeros[0].reshape(-1)[0]
    alike = all((zero == first).all() for zero in zeros) and first == np.rint(first)
    fits = alike and 0 < first <= 1 << (bits - 1) and levels - 1 - first < 1 << (bits - 1)
    return -int(first) if fits else 0


QUANTIZE_LINEAR: dict[str, Reader] = {
    **dict.fromkeys(("ExtendedQuantizeLinear", "VitisQuantizeLinear", "QuantizeLinear"), quantize),
    **dict.fromkeys(("ExtendedDequantizeLinear", "VitisDequantizeLinear", "DequantizeLinear"), dequantize),
}
DOMAINS: dict[str, dict[str, Reader]] = {
    "org.openvinotoolkit": {"FakeQuantize": _fake_quantize},
    "com.vai.quantize": QUANTIZE_LINEAR,
    "com.amd.quark": QUANTIZE_LINEAR,
}
"""Readers by domain and operator."""

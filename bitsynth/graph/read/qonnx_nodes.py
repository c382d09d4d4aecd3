"""Nodes of QONNX: quantizers of any width and rounding, thresholds."""

from __future__ import annotations

import numpy as np

from bitsynth.graph.operators.rounding import QONNX_ROUNDINGS
from bitsynth.graph.read.float_nodes import Reader
from bitsynth.graph.read.quantizer import Quantizer
from bitsynth.graph.read.source import FileNode, fitting, positive
from bitsynth.graph.types import Tensor

DOMAINS = ("qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general", "finn")
_MOST_BITS = 32
_MOST_ZERO = 1 << _MOST_BITS
_SEQUENCE = 3
"""Axes of a sequence, its batch and its channels."""


def quantized(
    node: FileNode, scale: Tensor, zero: Tensor, rounding: str, limits: tuple[int, int], *, first: bool
) -> str:
    """A quantizer of the node's first input, its result on the same grid in the file's float type."""
    scale, zero = positive(node, scale).astype(np.float64), zero.astype(np.float64)
    if not (abs(zero) <= _MOST_ZERO).all():
        raise node.fail(f"zero point {zero.reshape(-1)[0]:g} is not a number of at most 32 bits")
    return Quantizer(rounding, limits, scale, zero, first).add(node, node.edge(0), grid=(scale, zero))


def _bits(node: FileNode, index: int, what: str) -> int:
    value = node.value(index, what).reshape(-1)
    if value.size != 1 or value[0] != np.rint(value[0]) or not 1 <= value[0] <= _MOST_BITS:
        raise node.fail(f"{what} is {value[:3]}; it must be one whole number from 1 to {_MOST_BITS}")
    return int(value[0])


def _limits(bits: int, *, signed: bool, narrow: bool) -> tuple[int, int]:
    if signed:
        return -(1 << (bits - 1)) + narrow, (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1 - narrow


def _rounding(node: FileNode, otherwise: str) -> str:
    """The mode in QONNX's words; Brevitas writes one in its own, as of weights whose sums it bounds."""
    name = str(node.get("rounding_mode", otherwise)).upper().replace("ROUND_TO_ZERO", "DOWN")
    if name not in QONNX_ROUNDINGS:
        raise node.fail(f"rounding_mode {name!r}; known: {', '.join(QONNX_ROUNDINGS)}")
    return name


def _quant(node: FileNode) -> tuple[str, ...]:
    if "signed" not in node.attributes or "narrow" not in node.attributes:
        raise node.fail("has no signed and narrow; write both attributes")
    scale, zero = (fitting(node, node.value(k, w), w) for k, w in ((1, "scale"), (2, "zero point")))
    bits = _bits(node, 3, "bit_width")
    signed, narrow = bool(node.get("signed")), bool(node.get("narrow"))
    rounding, limits = _rounding(node, "ROUND"), _limits(bits, signed=signed, narrow=narrow)
    if bits == 1 and signed:
        rounding, limits = "BIPOLAR", (-1, 1)
    return (quantized(node, scale, zero, rounding, limits, first=True),)


def _bipolar(node: FileNode) -> tuple[str, ...]:
    scale = fitting(node, node.value(1, "scale"), "scale")
    return (quantized(node, scale, np.zeros(()), "BIPOLAR", (-1, 1), first=True),)


def _trunc(node: FileNode) -> tuple[str, ...]:
    """Codes with their low bits dropped: version 2 says the scale that comes out and limits the codes."""
    second = node.version >= 2 and len(node.inputs) > 5
    scale = positive(node, fitting(node, node.value(1, "scale"), "scale")).astype(np.float64)
    zero = fitting(node, node.value(2, "zero point"), "zero point").astype(np.float64)
    in_bits, out_bits = _bits(node, 3, "in_bits"), _bits(node, 5 if second else 4, "out_bits")
    rounding = _rounding(node, "FLOOR")
    if second:
        out_scale = positive(node, fitting(node, node.value(4, "out_scale"), "out_scale")).astype(np.float64)
        divisor = 2.0 ** np.rint(np.log2(out_scale / scale))
        limits = _limits(out_bits, signed=bool(node.get("signed", 1)), narrow=bool(node.get("narrow", 0)))
        grid = out_scale, zero / divisor
    else:
        divisor, limits, grid = np.asarray(2.0 ** (in_bits - out_bits)), (-(1 << 31), (1 << 31) - 1), (scale, zero)
    made = node.add(
        "trunc",
        node.edge(0),
        scale=scale,
        zero=zero,
        divisor=divisor,
        rounding=rounding,
        low=limits[0],
        high=limits[1],
        real=node.of(0).dtype,
        out_scale=grid[0],
        out_zero=grid[1],
    )
    return (made,)


def _axis_of_thresholds(node: FileNode, rows: int) -> int:
    """Return the axis of channels: where `data_layout` has its C, or else what qonnx takes for it.

    That is the second axis, but of sequences the last one. Where rows of thresholds fit the second one alone, it is
    that of sequences too, as of qonnx before 1.0.
    """
    shape, layout = node.shape(), node.get("data_layout")
    if layout:
        return node.axis(layout.index("C") if "C" in layout else 1)
    if len(shape) == _SEQUENCE and (rows in (1, shape[2]) or rows != shape[1]):
        return 2
    return min(1, len(shape) - 1)


def _multi_threshold(node: FileNode) -> tuple[str, ...]:
    """How many thresholds of its channel a number reaches, times `out_scale`, plus `out_bias`."""
    thresholds, shape = node.value(1, "thresholds").astype(np.float64), node.shape()
    axis = _axis_of_thresholds(node, len(thresholds))
    if thresholds.ndim != 2 or thresholds.shape[0] not in (1, shape[axis]):
        raise node.fail(f"thresholds {thresholds.shape} want a row a channel, of {shape[axis]}, or one row")
    scale, bias = float(node.get("out_scale", 1.0)), float(node.get("out_bias", 0.0))
    if not np.isfinite(bias) or not np.isfinite(scale) or scale <= 0:
        raise node.fail(f"out_scale {scale} and out_bias {bias} want a finite number above 0, and a finite one")
    step, unit = (1, scale) if bias / scale == np.rint(bias / scale) else (2, scale / 2)
    grid = step == 1 or 2 * bias / scale == np.rint(2 * bias / scale)
    if (scale, bias) == (2.0, -1.0) or (step == 2 and grid):
        step, unit = 2, scale / 2
    made = node.add(
        "multi_threshold",
        node.edge(0),
        thresholds=np.sort(thresholds, 1),
        axis=axis,
        step=step if grid else 1,
        least=int(np.rint(bias / unit)) if grid else 0,
        out_scale=unit if grid else scale,
    )
    return (made if grid else node.add("add", made, node.like(bias)),)


QONNX: dict[str, Reader] = {
    "BipolarQuant": _bipolar,
    "IntQuant": _quant,
    "MultiThreshold": _multi_threshold,
    "Quant": _quant,
    "Trunc": _trunc,
}
"""Of any of `DOMAINS`, and of the empty one."""

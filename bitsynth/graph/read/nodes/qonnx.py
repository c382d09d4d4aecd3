"""Nodes of QONNX and FINN: quantizers of any width and rounding, thresholds, im2col, channels last."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bitsynth.graph.operators.rounding import QONNX_ROUNDINGS
from bitsynth.graph.read.file_node import (
    FileNode,
    Quantizer,
    Reader,
    align_parameter,
    require_positive,
    transpose,
    with_channels_last,
)
from bitsynth.graph.read.nodes.constants_and_moves import concatenate
from bitsynth.graph.read.nodes.products_and_pools import (
    add_patches,
    add_window_sums,
    read_conv,
    read_max_pool,
    window_of,
)
from bitsynth.graph.read.nodes.recurrent import MAX_STEPS
from bitsynth.graph.read.nodes.reductions_and_norms import read_batch_norm
from bitsynth.graph.types import Integers, Tensor, cast

CHANNELS_LAST_DOMAIN = "qonnx.custom_op.channels_last"
DOMAINS = ("qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general", "finn")
_MAX_BITS = 32
_MAX_ZERO_POINT = 1 << _MAX_BITS
_SEQUENCE_RANK = 3
"""Axes of (N, S, C)."""


def _add_quantizer(
    node: FileNode, scale: Tensor, zero: Tensor, rounding: str, limits: tuple[int, int], *, first: bool
) -> str:
    """Return the edge of a quantizer of the first input, dequantized to the same grid in the file's float type."""
    scale, zero = require_positive(node, scale).astype(np.float64), zero.astype(np.float64)
    if not (abs(zero) <= _MAX_ZERO_POINT).all():
        raise node.fail(f"zero point {zero.reshape(-1)[0]:g} is not a number of at most 32 bits")
    return Quantizer(rounding, limits, scale, zero, first).add(node, node.edge(0), grid=(scale, zero))


def _bit_width(node: FileNode, index: int, what: str) -> int:
    """Return a bit width; SpecError unless it is one whole number from 1 to 32."""
    value = node.value(index, what).reshape(-1)
    if value.size != 1 or value[0] != np.rint(value[0]) or not 1 <= value[0] <= _MAX_BITS:
        raise node.fail(f"{what} is {value[:3]}; it must be one whole number from 1 to {_MAX_BITS}")
    return int(value[0])


def _limits(bits: int, *, signed: bool, narrow: bool) -> tuple[int, int]:
    """Return the least and the greatest code; `narrow` leaves out one end, so that signed codes are symmetric."""
    if signed:
        return -(1 << (bits - 1)) + narrow, (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1 - narrow


def _rounding_mode(node: FileNode, otherwise: str) -> str:
    """Return the rounding mode by its name in QONNX; Brevitas also writes ROUND_TO_ZERO, which is DOWN."""
    name = str(node.get("rounding_mode", otherwise)).upper().replace("ROUND_TO_ZERO", "DOWN")
    if name not in QONNX_ROUNDINGS:
        raise node.fail(f"rounding_mode {name!r}; known: {', '.join(QONNX_ROUNDINGS)}")
    return name


def _read_quant(node: FileNode) -> tuple[str, ...]:
    if "signed" not in node.attributes or "narrow" not in node.attributes:
        raise node.fail("has no signed and narrow; write both attributes")
    scale, zero = (align_parameter(node, node.value(k, w), w) for k, w in ((1, "scale"), (2, "zero point")))
    bits = _bit_width(node, 3, "bit_width")
    signed, narrow = bool(node.get("signed")), bool(node.get("narrow"))
    rounding, limits = _rounding_mode(node, "ROUND"), _limits(bits, signed=signed, narrow=narrow)
    if bits == 1 and signed:
        rounding, limits = "BIPOLAR", (-1, 1)
    return (_add_quantizer(node, scale, zero, rounding, limits, first=True),)


def _read_bipolar_quant(node: FileNode) -> tuple[str, ...]:
    scale = align_parameter(node, node.value(1, "scale"), "scale")
    return (_add_quantizer(node, scale, np.zeros(()), "BIPOLAR", (-1, 1), first=True),)


_LSTM_QUANTIZERS = (
    *("output", "cell_state", "input_acc", "forget_acc", "cell_acc", "output_acc"),
    *("input_sigmoid", "forget_sigmoid", "cell_tanh", "output_sigmoid", "hidden_state_tanh"),
)
"""The quantizers of QuantLSTMCell in the order of their inputs: scale, zero point and bit width of each."""
_LSTM_GATES = {"input": "sigmoid", "forget": "sigmoid", "cell": "tanh", "output": "sigmoid"}
"""The gates of QuantLSTMCell in the order of their weights, and their activations."""
_LSTM_CONSTANTS = 15
"""Inputs of QuantLSTMCell before its quantizers: the sequence, two states, 8 weights and 4 biases."""


def _quantize_in_lstm(node: FileNode, edge: str, name: str) -> str:
    """Return the edge of a number after one of the quantizers of QuantLSTMCell."""
    first = _LSTM_CONSTANTS + 3 * _LSTM_QUANTIZERS.index(name)
    narrow = node.get(f"{name}_narrow", node.get(f"{name}_narrow_range"))
    settings = {"signed": node.get(f"{name}_signed"), "narrow": narrow}
    if None in settings.values():
        raise node.fail(f"its quantizer {name} has no {name}_signed and {name}_narrow; write both attributes")
    settings["rounding_mode"] = node.get(f"{name}_rounding_mode", "ROUND")
    inputs = (edge, *(node.edge(first + k) for k in range(3)))
    return _read_quant(replace(node, inputs=inputs, attributes=settings))[0]


def _read_quant_lstm_cell(node: FileNode) -> tuple[str, ...]:
    """Read QuantLSTMCell of Brevitas: an LSTM over a sequence, each of whose results is quantized; it is unrolled.

    Outputs are the states of all steps (steps, batch, elements), and the last hidden and the last cell state.
    """
    if node.get("cifg"):
        raise node.fail("cifg, an input gate that is also the forget gate, is not compiled; export it without")
    sequence = transpose(node, node.edge(0), (1, 0, 2)) if node.get("batch_first") else node.edge(0)
    steps, batch, features = node.graph.edges[sequence].shape
    if steps > MAX_STEPS:
        raise node.fail(f"{steps:,} steps, more than the {MAX_STEPS:,} that are unrolled; split the sequence")
    rows = node.reshape(sequence, (steps * batch, features))
    of_inputs, of_state = ([transpose(node, node.edge(first + k), (1, 0)) for k in range(4)] for first in (3, 7))
    products = [node.add("matmul", rows, weights) for weights in of_inputs]
    hidden, cell, states = node.edge(1), node.edge(2), list[str]()
    elements = node.graph.edges[of_state[0]].shape[0]
    for step in reversed(range(steps)) if node.get("reverse_input") else range(steps):
        gates = []
        for k, (name, activation) in enumerate(_LSTM_GATES.items()):
            part = node.add("slice", products[k], slices=((step * batch, (step + 1) * batch, 1), (None, None, 1)))
            total = node.add("add", part, node.add("matmul", hidden, of_state[k]))
            total = node.add("add", total, node.edge(11 + k)) if node.has(11 + k) else total
            total = _quantize_in_lstm(node, total, f"{name}_acc")
            gates.append(_quantize_in_lstm(node, node.add(activation, total), f"{name}_{activation}"))
        taken, kept, new, shown = gates
        parts = [node.add("mul", kept, cell), node.add("mul", taken, new)]
        cell = node.add("add", *(_quantize_in_lstm(node, part, "cell_state") for part in parts))
        cell = _quantize_in_lstm(node, cell, "cell_state")
        look = _quantize_in_lstm(node, node.add("tanh", cell), "hidden_state_tanh")
        hidden = _quantize_in_lstm(node, node.add("mul", shown, look), "output")
        states.append(hidden)
    in_order = states[::-1] if node.get("reverse_input") else states
    axis = 1 if node.get("batch_first") else 0
    shape = (batch, 1, elements) if axis else (1, batch, elements)
    return concatenate(node, [node.reshape(state, shape) for state in in_order], axis), hidden, cell


def _read_trunc(node: FileNode) -> tuple[str, ...]:
    """Read Trunc: the low bits of codes are dropped. Version 2 has inputs and attributes for the result's grid."""
    second = node.version >= 2 and len(node.inputs) > 5
    scale = require_positive(node, align_parameter(node, node.value(1, "scale"), "scale")).astype(np.float64)
    zero = align_parameter(node, node.value(2, "zero point"), "zero point").astype(np.float64)
    in_bits, out_bits = _bit_width(node, 3, "in_bits"), _bit_width(node, 5 if second else 4, "out_bits")
    rounding = _rounding_mode(node, "FLOOR")
    if second:
        out_scale = require_positive(node, align_parameter(node, node.value(4, "out_scale"), "out_scale")).astype(
            np.float64
        )
        divisor = 2.0 ** np.rint(np.log2(out_scale / scale))
        limits = _limits(out_bits, signed=bool(node.get("signed", 1)), narrow=bool(node.get("narrow", 0)))
        grid = out_scale, zero / divisor
    else:
        divisor, limits, grid = np.asarray(2.0 ** (in_bits - out_bits)), (-(1 << 31), (1 << 31) - 1), (scale, zero)
    truncated = node.add(
        "trunc",
        node.edge(0),
        scale=scale,
        zero=zero,
        divisor=divisor,
        rounding=rounding,
        low=limits[0],
        high=limits[1],
        real=node.input(0).dtype,
        out_scale=grid[0],
        out_zero=grid[1],
    )
    return (truncated,)


def _axis_of_thresholds(node: FileNode, rows: int) -> int:
    """Return the axis of channels: C in `data_layout`, or else the one that qonnx assumes.

    qonnx assumes the second axis, but the last one of sequences. If the rows of thresholds fit the second axis of a
    sequence alone, it is that one, as in qonnx before 1.0.
    """
    shape, layout = node.shape(), node.get("data_layout")
    if layout:
        return node.axis(layout.index("C") if "C" in layout else 1)
    if len(shape) == _SEQUENCE_RANK and (rows in (1, shape[2]) or rows != shape[1]):
        return 2
    return min(1, len(shape) - 1)


def _read_multi_threshold(node: FileNode) -> tuple[str, ...]:
    """Read MultiThreshold: how many thresholds of its channel a number reaches, times `out_scale`, plus `out_bias`."""
    thresholds, shape = node.value(1, "thresholds").astype(np.float64), node.shape()
    axis = _axis_of_thresholds(node, len(thresholds))
    if thresholds.ndim != 2 or thresholds.shape[0] not in (1, shape[axis]):
        raise node.fail(f"thresholds {thresholds.shape} must have one row, or one for each of {shape[axis]} channels")
    scale, bias = float(node.get("out_scale", 1.0)), float(node.get("out_bias", 0.0))
    if not np.isfinite(bias) or not np.isfinite(scale) or scale <= 0:
        raise node.fail(f"out_scale {scale} and out_bias {bias} must be a finite number above 0, and a finite number")
    step, unit = (1, scale) if bias / scale == np.rint(bias / scale) else (2, scale / 2)
    grid = step == 1 or 2 * bias / scale == np.rint(2 * bias / scale)
    if (scale, bias) == (2.0, -1.0) or (step == 2 and grid):
        step, unit = 2, scale / 2
    levels = node.add(
        "multi_threshold",
        node.edge(0),
        thresholds=np.sort(thresholds, 1),
        axis=axis,
        step=step if grid else 1,
        least=int(np.rint(bias / unit)) if grid else 0,
        out_scale=unit if grid else scale,
    )
    return (levels if grid else node.add("add", levels, node.constant_like(bias)),)


def _read_im2col(node: FileNode) -> tuple[str, ...]:
    """Read Im2Col: the pixels of each window, with all their channels, become the channels of one pixel."""
    kernel, pads = node.get("kernel_size"), [int(n) for n in node.get("pad_amount") or [0] * 4]
    if kernel is None or len(kernel) != 2 or len(pads) != 4 or min(kernel) < 1:
        raise node.fail(f"kernel_size {kernel} and pad_amount {pads} must be 2 and 4 numbers")
    if node.get("pad_value", 0):
        raise node.fail(f"pads with {node.get('pad_value')}; only 0 is compiled")
    sizes = {"strides": node.get("stride"), "pads": pads, "dilations": node.get("dilations")}
    return (add_patches(node, window_of(replace(node, attributes=sizes), tuple(kernel))),)


def _read_quant_avg_pool(node: FileNode) -> tuple[str, ...]:
    """Read QuantAvgPool2d: sums of windows of integers, shifted right until they have `obits`."""
    kernel, stride, bits = (int(node.get(name, 1)) for name in ("kernel", "stride", "ibits"))
    most = ((1 << bits) - 1) * kernel * kernel
    shift = max(0, most.bit_length() - int(node.get("obits", bits)))
    sums = add_window_sums(replace(node, attributes={"kernel_shape": [kernel] * 2, "strides": [stride] * 2}))
    kind = node.graph.edges[sums].type
    if not isinstance(kind, Integers) or not kind.is_plain:
        raise node.fail("averages what is not known to be integers; it needs the codes of a quantizer")
    return (Quantizer("FLOOR", (kind.least >> shift, kind.most >> shift), 2.0**shift, 0.0).add(node, sums),)


def _read_quant_avg_pool_by_layout(node: FileNode) -> tuple[str, ...]:
    last = node.get("data_layout", "NCHW") == "NHWC"
    return (with_channels_last(_read_quant_avg_pool) if last else _read_quant_avg_pool)(node)


def _read_xnor_popcount_matmul(node: FileNode) -> tuple[str, ...]:
    """Read XnorPopcountMatMul: the sum of a * (2 * w - 1) + (1 - w), which counts equal bits of a row and a column."""
    bits, dtype = node.value(1, "the second input"), node.input(0).dtype
    if bits.ndim != 2 or not np.isin(bits, (0, 1)).all():
        raise node.fail("its weights are not a matrix of bits, 0 and 1")
    sums = node.add("matmul", node.edge(0), node.constant(cast(2 * bits - 1, dtype)))
    return (node.add("add", sums, node.constant(cast((1 - bits).sum(0), dtype))),)


READERS: dict[str, Reader] = {
    "BipolarQuant": _read_bipolar_quant,
    "Im2Col": with_channels_last(_read_im2col),
    "IntQuant": _read_quant,
    "MaxPoolNHWC": with_channels_last(read_max_pool),
    "MultiThreshold": _read_multi_threshold,
    "Quant": _read_quant,
    "QuantLSTMCell": _read_quant_lstm_cell,
    "QuantAvgPool2d": _read_quant_avg_pool_by_layout,
    "Trunc": _read_trunc,
    "XnorPopcountMatMul": _read_xnor_popcount_matmul,
}
"""Readers for each of `DOMAINS`, and for standard ONNX, where files have these operators without a domain."""
CHANNELS_LAST_READERS: dict[str, Reader] = {
    "BatchNormalization": with_channels_last(read_batch_norm),
    "Conv": with_channels_last(read_conv, 1),
    "MaxPool": with_channels_last(read_max_pool),
}
"""The weights of convolutions have channels last too."""

"""Nodes of OpenVINO, Vitis AI and Quark; requantization of Quantlab, Deeploy and DORY by multiply, add and shift."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitsynth.graph.read.file_node import (
    MAX_FOLDING_ERROR,
    FileNode,
    Quantizer,
    Reader,
    align_parameter,
    cast_to,
    require_positive,
)
from bitsynth.graph.read.quantized_nodes import read_dequantize_linear, read_quantize_linear
from bitsynth.graph.types import Integers, Tensor, cast, is_float
from bitsynth.graph.types import limits as limits_of

_MAX_FAKE_LEVELS = 1 << 16


def _read_fake_quantize(node: FileNode) -> tuple[str, ...]:
    """Read FakeQuantize: `levels` numbers from input_low to input_high become those from output_low to output_high."""
    levels = int(node.get("levels", 256))
    if not 2 <= levels <= _MAX_FAKE_LEVELS:
        raise node.fail(f"levels is {levels}; it must be 2 to {_MAX_FAKE_LEVELS}")
    names = "input_low", "input_high", "output_low", "output_high"
    ends = [align_parameter(node, node.value(k, name), name).astype(np.float64) for k, name in enumerate(names, 1)]
    scales = [require_positive(node, (ends[k + 1] - ends[k]) / (levels - 1), names[k + 1]) for k in (0, 2)]
    zeros = [_round_zero_points(-ends[k] / scale, levels) for k, scale in zip((0, 2), scales, strict=True)]
    low = _least_code(zeros, levels)
    rounding = "HALF_ODD" if low % 2 else "ROUND"  # of two levels the even one, counted from the lowest
    quantizer = Quantizer(rounding, (low, low + levels - 1), scales[0], zeros[0] + low, zero_first=True)
    return (quantizer.add(node, node.edge(0), grid=(scales[1], zeros[1] + low)),)


def _round_zero_points(zero: Tensor, levels: int) -> Tensor:
    """Return zero points as whole numbers, if roundings of the limits explain the difference; else as they are."""
    nearest = np.rint(zero)
    return nearest if (abs(zero - nearest) <= MAX_FOLDING_ERROR * levels).all() else zero


def _least_code(zeros: list[Tensor], levels: int) -> int:
    """Return the least code: below 0 if codes that stand for themselves fit a signed type of their bits, else 0."""
    bits = (levels - 1).bit_length()
    first = zeros[0].reshape(-1)[0]
    alike = all((zero == first).all() for zero in zeros) and first == np.rint(first)
    fits = alike and 0 < first <= 1 << (bits - 1) and levels - 1 - first < 1 << (bits - 1)
    return -int(first) if fits else 0


_QUANTIZE_LINEAR: dict[str, Reader] = {
    **dict.fromkeys(("ExtendedQuantizeLinear", "VitisQuantizeLinear", "QuantizeLinear"), read_quantize_linear),
    **dict.fromkeys(("ExtendedDequantizeLinear", "VitisDequantizeLinear", "DequantizeLinear"), read_dequantize_linear),
}
DOMAINS: dict[str, dict[str, Reader]] = {
    "org.openvinotoolkit": {"FakeQuantize": _read_fake_quantize},
    "com.vai.quantize": _QUANTIZE_LINEAR,
    "com.amd.quark": _QUANTIZE_LINEAR,
}
"""Readers by domain and operator."""
_MAX_LEVELS = 1 << 32


def _read_requant_shift(node: FileNode) -> tuple[str, ...]:
    """Read RequantShift: (x * mul + add) / div, rounded to nearest with ties up, clipped to `n_levels`.

    `RequantShift.forward` of quantlib, which exports the node, and `RequantShift_s32_s8_NCHW` of Deeploy, which runs
    it, both add half of `div` before they divide and round down.
    """
    divisor = _whole_attribute(node, node.get("div", 1), "div")
    levels = _whole_attribute(node, node.get("n_levels", node.get("n_levels_out", 256)), "n_levels")
    if divisor < 1 or divisor & (divisor - 1) or not 2 <= levels <= _MAX_LEVELS:
        raise node.fail(f"div is {divisor} and n_levels {levels}; they must be a power of two, and 2 to {_MAX_LEVELS}")
    signed = bool(_whole_attribute(node, node.get("signed", 0), "signed"))
    if signed and levels % 2:
        half = levels // 2
        raise node.fail(
            f"is signed with {levels} levels, which Quantlab cuts to {-half - 1} to {half} and Deeploy to {-half} to "
            f"{half - 1}; write an even number of levels"
        )
    low = -(levels // 2) if signed else 0
    mul, add = (_whole_parameter(node, k, what) for k, what in ((1, "mul"), (2, "add")))
    return (rescale(node, node.edge(0), mul, add, divisor, (low, low + levels - 1), half=True),)


def _whole_attribute(node: FileNode, value: Any, what: str) -> int:
    """Return an attribute, a number or an array of one number, as a whole number; SpecError if it is none."""
    numbers = np.asarray(value, np.float64).reshape(-1)
    if numbers.size != 1 or numbers[0] != np.rint(numbers[0]):
        raise node.fail(f"{what} is {value}; it needs one whole number")
    return int(numbers[0])


def _whole_parameter(node: FileNode, index: int, what: str) -> Tensor:
    """Return `mul` or `add`, whole numbers of any type: one, one a channel, or an array that broadcasts.

    Deeploy reads the elements of an array in order, one a channel: (C, 1, 1) is such an array for sequences too.
    """
    numbers, shape = node.value(index, what), node.shape()
    if (numbers != np.rint(numbers)).any():
        raise node.fail(f"{what} is {numbers.reshape(-1)[:3]}; it needs whole numbers")
    a_channel = len(shape) > 1 and numbers.size == shape[1] == max(numbers.shape, default=1)
    if a_channel and (numbers.ndim == 1 or numbers.ndim >= len(shape)):
        numbers = numbers.reshape(1, -1, *[1] * (len(shape) - 2))
    return align_parameter(node, numbers, what)


ANY_DOMAIN_READERS: dict[str, Reader] = {"RequantShift": _read_requant_shift}


def is_dory_add(node: FileNode) -> bool:
    """Return whether an Add has the attributes with which Quantlab marks sums for DORY."""
    return any(f"{part}_rq" in node.attributes for part in ("in1", "in2", "out"))


def read_dory_add(node: FileNode) -> tuple[str, ...]:
    """Read an Add of a DORY network, which requantizes its operands and its result.

    DORY's kernels clip each operand to its type, signed or not, and the sum to `out_n_levels`. The sum is signed if
    `out_signed` says so, or else if an operand is.
    """
    signed = [_is_signed(node, k) for k in range(2)]
    operands = [_requantize_operand(node, node.edge(k), f"in{k + 1}", signed[k]) for k in range(2)]
    total = node.add("add", *operands)
    has_sign = bool(node.get("out_signed", any(signed)))
    if node.get("out_rq"):
        return (_requantize_operand(node, total, "out", has_sign),)
    low, high = _level_limits(node, "out", has_sign)
    return (node.add("clip", total, low=low, high=high),)


def _is_signed(node: FileNode, index: int) -> bool:
    """Return whether an operand of DORY's sum is signed: its integers may be below 0, or else `out_signed` is set."""
    kind = node.input(index).type
    return kind.least < 0 if isinstance(kind, Integers) else bool(node.get("out_signed", 0))


def _level_limits(node: FileNode, part: str, signed: bool) -> tuple[int, int]:
    """Return the least and the greatest integer of an operand or the result of DORY's sum."""
    levels = int(node.get(f"{part}_n_levels", 256))
    low = -(levels // 2) if signed else 0
    return low, low + levels - 1


def _requantize_operand(node: FileNode, edge: str, part: str, signed: bool) -> str:
    """Return an operand or the result of DORY's sum: times `mul`, plus `add`, shifted right, clipped to `n_levels`.

    The shift rounds down: where it is to round to nearest, the exporter has added half a step to `add`.
    """
    if not node.get(f"{part}_rq"):
        return edge
    mul, add, shift = (int(node.get(f"{part}_{name}", value)) for name, value in (("mul", 1), ("add", 0), ("shift", 0)))
    return rescale(node, edge, np.asarray(mul), np.asarray(add), 1 << shift, _level_limits(node, part, signed))


def rescale(
    node: FileNode, edge: str, mul: Tensor, add: Tensor, divisor: int, limits: tuple[int, int], *, half: bool = False
) -> str:
    """Return the edge of floor((x * mul + add) / divisor + (1/2 if `half`)), clipped to limits.

    The result is the same under every reference for integers of at most 53 bits: floats are multiplied in float64.

    Args:
        node: The node of the file that is read.
        edge: The integers x, in a float or an integer type of the file.
        mul: Whole numbers that broadcast to the edge.
        add: Whole numbers that broadcast to the edge.
        divisor: A power of two.
        limits: The least and the greatest result.
        half: Whether to round to nearest, with ties up; else down.
    """
    dtype = node.graph.edges[edge].dtype
    wide = "float64" if is_float(dtype) else "int64"
    x = edge if is_float(dtype) else cast_to(node, edge, wide)
    product = node.add("mul", x, node.constant(cast(mul, wide)))
    total = node.add("add", product, node.constant(cast(add, wide)))
    holds = is_float(dtype) or (limits_of(dtype)[0] <= limits[0] and limits[1] <= limits_of(dtype)[1])
    return Quantizer("FLOOR", limits, float(divisor), 0.5 if half else 0.0, zero_first=True).add(
        node, total, real="float64", dtype=dtype if holds else "int32"
    )

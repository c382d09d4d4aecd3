"""Functions that readers of TensorFlow Lite nodes share: codes, padding, fused activations, layouts, and fixed point.

In fixed point, real factors become multipliers of 31 bits. They are computed from the scales of the file as TensorFlow
Lite's kernels compute them: in float64, or in float32 for operators whose kernels do so.

Example: scales 0.5, 0.01 and 0.04 give the real factor 0.5 * 0.01 / 0.04 = 0.125 = 0.5 * 2^-2: multiplier 2^30, a
shift of 31 and another one of 2 to the right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bitsynth.graph.read.file_node import FileNode, Reader
from bitsynth.graph.types import Shape, Tensor, limits

CODES = "int8"
"""The type of activations that are codes."""
_PADDINGS = {0: "SAME_UPPER", 1: "VALID"}
_ACTIVATIONS = {0: "NONE", 1: "RELU", 2: "RELU_N1_TO_1", 3: "RELU6", 4: "TANH", 5: "SIGN_BIT"}
ACTIVATION_LIMITS: dict[str, tuple[float | None, float | None]] = {
    "NONE": (None, None),
    "RELU": (0.0, None),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU6": (0.0, 6.0),
}
"""The least and the greatest number that a fused activation leaves."""


@dataclass(frozen=True)
class CodeGrid:
    """The real numbers of a tensor's integers n: scale * (n - zero), along `axis` if there are several scales."""

    scale: Tensor
    zero: Tensor
    axis: int

    @property
    def one_scale(self) -> np.float32:
        """The scale of all integers."""
        return np.float32(self.scale[0])

    @property
    def one_zero(self) -> int:
        """The zero point of all integers."""
        return int(self.zero[0])

    def is_same(self, other: CodeGrid) -> bool:
        """Return whether both have the same scales and zero points."""
        return np.array_equal(self.scale, other.scale) and np.array_equal(self.zero, other.zero)


def codes_of(node: FileNode, where: str, *, many_scales: bool = False) -> CodeGrid:
    """Return the grid of an input "in0" or an output "out0"; SpecError if the file gives no scale, or several."""
    if node.get(f"{where}.scale") is None:
        raise node.fail(f"{_describe(where)} is quantized, and the file does not give its scale")
    scale = np.asarray(node.get(f"{where}.scale"), np.float32)
    zero = np.asarray(node.get(f"{where}.zero"), np.int64)
    if scale.size > 1 and not many_scales:
        raise node.fail(f"{_describe(where)} has several scales, which only weights may have")
    return CodeGrid(scale, zero, int(node.get(f"{where}.axis")))


def _describe(where: str) -> str:
    return f"input {where[2:]}" if where.startswith("in") else f"output {where[3:]}"


def by_type(of_floats: Reader | None, of_codes: Reader | None, *, at: int = 0) -> Reader:
    """Return the reader of an operator that differs for floats and codes, by the type of input `at`."""

    def read(node: FileNode) -> tuple[str, ...]:
        dtype, result = node.input(at).dtype, node.get("out0.type")
        if dtype == "float32" and result == "float32" and of_floats:
            if any(node.input(k).dtype in (CODES, "int4", "uint8") for k in range(len(node.inputs)) if node.has(k)):
                raise node.fail(
                    "is hybrid: floats times weights of integers, whose kernels quantize activations at run time, "
                    "which is not compiled; convert the network to float32, or to int8 with representative data"
                )
            return of_floats(node)
        if dtype == CODES == result and of_codes:
            return of_codes(node)
        raise node.fail(
            f"activations of {dtype} to {result} are not compiled; known: {_list_known(of_floats, of_codes)}"
        )

    return read


def _list_known(of_floats: Reader | None, of_codes: Reader | None) -> str:
    return " and ".join(name for name, reader in (("float32", of_floats), (CODES, of_codes)) if reader)


def with_sizes(read: Reader) -> Reader:
    """Return a reader like `read` that refuses results of another shape than the file says."""

    def check(node: FileNode) -> tuple[str, ...]:
        edges = read(node)
        for k, edge in enumerate(edges[: len(node.outputs)]):
            shape_in_file = tuple(node.get(f"out{k}.shape", ()))
            shape = node.graph.edges[edge].shape
            fits = len(shape_in_file) == len(shape) and all(
                n in (-1, m) for n, m in zip(shape_in_file, shape, strict=True)
            )
            if not fits:
                raise node.fail(f"its result has shape {shape}; the file says {shape_in_file}")
        return edges

    return check


def activation_of(node: FileNode) -> str:
    """Return the name of the fused activation; SpecError if it is not compiled."""
    name = _ACTIVATIONS.get(int(node.get("FusedActivationFunction", 0)), "unknown")
    if name not in ACTIVATION_LIMITS and name != "TANH":
        raise node.fail(f"the fused activation {name} is not compiled; known: {', '.join(ACTIVATION_LIMITS)} and TANH")
    return name


def code_limits(node: FileNode, codes: CodeGrid) -> tuple[int, int]:
    """Return the least and the greatest code of the result of a node with a fused activation.

    As `CalculateActivationRangeQuantized` (kernels/kernel_util.cc): numbers over the scale, rounded half away from 0.
    """
    name = activation_of(node)
    if name == "TANH":
        raise node.fail("the fused activation TANH of codes is not compiled")
    low, high = limits(CODES)
    least, most = (None if x is None else code_of(x, codes) for x in ACTIVATION_LIMITS[name])
    return max(low, low if least is None else least), min(high, high if most is None else most)


def code_of(number: float, codes: CodeGrid) -> int:
    """Return the integer that a number is quantized to, not clipped."""
    quotient = np.float32(number) / codes.one_scale
    return int(codes.one_zero + np.sign(quotient) * np.floor(np.abs(np.float64(quotient)) + 0.5))


def with_window(node: FileNode, *, dilated: bool = True) -> FileNode:
    """Return the node with strides, dilations and padding as ONNX calls them."""
    padding = _PADDINGS.get(int(node.get("Padding", 0)))
    if padding is None:
        raise node.fail(f"padding {node.get('Padding')} is not known")
    more: dict[str, Any] = {"auto_pad": padding, "strides": [node.get("StrideH", 0), node.get("StrideW", 0)]}
    if dilated:
        more["dilations"] = [node.get("DilationHFactor", 1), node.get("DilationWFactor", 1)]
    return replace(node, attributes={**node.attributes, **more})


def weights_first(node: FileNode, index: int, order: tuple[int, ...]) -> str:
    """Return the edge of weights with their axes in another order."""
    if len(node.shape(index)) != len(order):
        raise node.fail(f"weights {node.shape(index)} do not have {len(order)} axes")
    return node.add("transpose", node.edge(index), order=order)


def require_rank(node: FileNode, rank: int, index: int = 0) -> None:
    """Raise SpecError unless an input has `rank` axes."""
    if len(node.shape(index)) != rank:
        raise node.fail(f"input {index} of shape {node.shape(index)} does not have {rank} axes")


def as_matrix(node: FileNode) -> tuple[str, Shape]:
    """Return the first input of FULLY_CONNECTED as rows, and the shape of its result."""
    if node.get("WeightsFormat", 0):
        raise node.fail("shuffled weights are not compiled")
    require_rank(node, 2, 1)
    (units, depth), shape = node.shape(1), node.shape()
    if not depth or math.prod(shape) % depth:
        raise node.fail(f"weights {node.shape(1)} do not fit an input {shape}")
    rows = math.prod(shape) // depth
    sizes = (*shape[:-1], units) if node.get("KeepNumDims", 0) else (rows, units)
    return node.reshape(node.edge(0), (rows, depth)), sizes


MULTIPLIER_BITS = 31
_MAX_SHIFT = 31
_MAX_EXPONENT = 14


def quantize_multipliers(factors: Any) -> tuple[Tensor, Tensor]:
    """Return real factors as multipliers of 31 bits, and exponents: factor = multiplier / 2^31 * 2^exponent.

    As `QuantizeMultiplier` (kernels/internal/quantization_util.cc).
    """
    part, exponent = np.frexp(np.asarray(factors, np.float64))
    multiplier = np.floor(part * 2.0**MULTIPLIER_BITS + 0.5).astype(np.int64)
    is_over = multiplier == 1 << MULTIPLIER_BITS
    multiplier, exponent = np.where(is_over, multiplier // 2, multiplier), exponent.astype(np.int64) + is_over
    is_none = exponent < -_MAX_SHIFT
    return np.where(is_none, 0, multiplier), np.where(is_none, 0, exponent)


def rescale(
    node: FileNode, edge: str, factors: Any, *, left: int = 0, zero: int = 0, within: tuple[int, int] | None = None
) -> str:
    """Return the edge of integers times real factors, in fixed point, plus a zero point; codes if `within` limits.

    Integers are first shifted left by `left` bits, so the shift to the right is `left` bits less. SpecError for factors
    of 2^14 or more.
    """
    return multiply(node, edge, *quantize_multipliers(factors), left=left, zero=zero, within=within)


def multiply(
    node: FileNode,
    edge: str,
    multiplier: Tensor,
    exponent: Tensor,
    *,
    left: int = 0,
    zero: int = 0,
    within: tuple[int, int] | None = None,
) -> str:
    """Return the edge of integers times multiplier / 2^31 * 2^exponent, as `rescale`."""
    if (exponent > _MAX_EXPONENT).any():
        raise node.fail(f"a scale is 2^{exponent.max()} times its result's scale, more than is compiled")
    low, high = within or (None, None)
    return node.add(
        "multiply_shift",
        edge,
        multiplier=multiplier,
        shift=MULTIPLIER_BITS - np.maximum(exponent, 0) - left,
        right=np.maximum(-exponent, 0),
        zero=zero,
        low=low,
        high=high,
        dtype=CODES if within else "int32",
    )


def centre(node: FileNode, index: int, codes: CodeGrid | None = None) -> str:
    """Return the edge of an input's integers minus their zero point."""
    codes = codes or codes_of(node, f"in{index}")
    return node.add("view", node.edge(index), scale=1.0, zero=np.float64(codes.one_zero), dtype="int32")


def along(values: Tensor, rank: int, axis: int) -> Tensor:
    """Return one number for all, or numbers along an axis of `rank` axes."""
    return values.reshape(()) if values.size == 1 else values.reshape([-1 if k == axis else 1 for k in range(rank)])


def shift_right(x: Tensor, bits: int) -> Tensor:
    """Return x / 2^bits to nearest, ties away from 0 (RoundingDivideByPOT)."""
    return np.asarray((x + (1 << (bits - 1)) - (x < 0)) >> bits)

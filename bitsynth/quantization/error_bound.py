"""A proved bound of a quantized network's error: for every input in a box, how far can its outputs be off?

The float and the quantized network are followed at once (Xiao and Liang, Zac, section 4.2). Of each element of an edge
three intervals are kept: the float network's numbers, the quantized network's, and their difference, the error:

* a product of x + e by W + D instead of x by W has the error (W + D) e + D x, of weights W and of a second edge alike;
* a quantizer adds at most half a step, and more where numbers lie outside its range;
* an increasing operator that grows no faster than its input, such as Relu, moves an error towards 0 only.

Intervals are computed in float64 and rounded outward. They also have room for the rounding of a float32 run of either
network, in any order of its sums. Dependencies between elements are not followed, so that the bound of a deep network
is far above its errors: it is a proof, no estimate.

Given:  Relu(x) with x in [-1, 3], and a quantizer of scale 0.1 and codes 0 to 20
Result: the quantized number is in [0, 2] and the error in [-1, 0.05]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from bitsynth.quantization.float_model import FloatModel
from bitsynth.quantization.grids import QuantizerGrid
from bitsynth.quantization.quantized_model import DOMAIN
from bitsynth.quantization.windows import windows_of

Floats64 = NDArray[np.float64]
_UNIT = 2.0**-52
"""Twice the relative rounding error of float64."""
_UNIT32 = 2.0**-23
"""Twice the relative rounding error of float32."""
_TINY32 = 2.0**-140
"""The absolute rounding error of float32 numbers near 0, and more."""
_HALF = 0.5 + 2.0**-12
"""Half a step, and the rounding of a float32 division before it: of codes of 8 bits 2**-15 of a step."""
_MOST32 = float(np.finfo(np.float32).max)
"""The largest float32 number: a run of either network may overflow above it."""
_MAX_INDEX = 1 << 62
"""The limit of indices. Indices near the ends of int64, which stand for the end of an axis, are no float64."""
_MAX_ELEMENTS = 1 << 24
"""The most elements of a convolution's windows at once."""


class NoBound(Exception):
    """An operator whose error is not followed; the message names it."""


@dataclass(frozen=True)
class Enclosure:
    """An interval for each element of an edge, as ends in float64."""

    low: Floats64
    high: Floats64

    @property
    def magnitude(self) -> Floats64:
        """The largest absolute number of each element."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def __add__(self, other: Enclosure) -> Enclosure:
        return outward(self.low + other.low, self.high + other.high)

    def __neg__(self) -> Enclosure:
        return Enclosure(-self.high, -self.low)

    def __sub__(self, other: Enclosure) -> Enclosure:
        return self + -other

    def __mul__(self, other: Enclosure) -> Enclosure:
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return outward(np.minimum.reduce(ends), np.maximum.reduce(ends))

    def meet(self, other: Enclosure) -> Enclosure:
        """Return the numbers of both."""
        low, high = np.maximum(self.low, other.low), np.minimum(self.high, other.high)
        return Enclosure(np.minimum(low, high), np.maximum(low, high))

    def widen(self, by: Any) -> Enclosure:
        """Return an interval with room of `by` at both ends."""
        return outward(self.low - by, self.high + by)

    def map(self, function: Callable[[Floats64], Floats64]) -> Enclosure:
        """Return the interval of an increasing function that rounds nothing."""
        return Enclosure(function(self.low), function(self.high))


def outward(low: Floats64, high: Floats64) -> Enclosure:
    """Return an interval whose ends are moved outward by a rounding error."""
    return Enclosure(np.nextafter(low, -np.inf), np.nextafter(high, np.inf))


@dataclass(frozen=True)
class Spread:
    """What is known of an edge: the numbers of the float and of the quantized network, and their difference."""

    exact: Enclosure
    quantized: Enclosure
    error: Enclosure

    @classmethod
    def of(cls, exact: Enclosure, quantized: Enclosure, error: Enclosure) -> Spread:
        """Return a spread where each interval is cut by what the others imply."""
        error = error.meet(quantized - exact)
        return cls(exact, quantized.meet(exact + error), error)

    @classmethod
    def constant(cls, exact: Any, quantized: Any) -> Spread:
        """Return the spread of numbers that are known."""
        a, b = np.asarray(exact, np.float64), np.asarray(quantized, np.float64)
        difference = b - a
        return cls(Enclosure(a, a), Enclosure(b, b), outward(difference, difference))

    def each(self, function: Callable[[Enclosure], Enclosure]) -> Spread:
        """Return the spread of a linear function, which errors go through as numbers do."""
        return Spread.of(function(self.exact), function(self.quantized), function(self.error))

    def rounded32(self, terms: int = 1) -> Spread:
        """Return the spread with room for float32 rounding, of results that are single operations or sums."""
        return self.with_room(*(terms * _UNIT32 * side.magnitude for side in (self.exact, self.quantized)))

    def with_room(self, exact: Floats64, quantized: Floats64) -> Spread:
        """Return the spread with room for rounding on each side."""
        ours, theirs = exact + _TINY32, quantized + _TINY32
        return Spread(self.exact.widen(ours), self.quantized.widen(theirs), self.error.widen(ours + theirs))


@dataclass(frozen=True)
class ErrorBound:
    """The greatest error of each output that is possible.

    Args:
        outputs: The greatest absolute error of an element, by output.
        no_bound: Why there is none; empty if there is.
    """

    outputs: Mapping[str, float]
    no_bound: str = ""


def bound_error(
    network: FloatModel,
    quantized: Any,
    inputs: Mapping[str, tuple[float, float]],
    ranges: Mapping[str, tuple[float, float]],
) -> ErrorBound:
    """Return how far outputs of a quantized model can be from the float network's outputs.

    Args:
        network: The float network.
        quantized: The model with quantizers of QONNX; its nodes and edges have the names of the float network.
        inputs: The least and the greatest number of each input.
        ranges: Edges of the float network whose numbers are known to lie between two others.
    """
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            walk = _Walk(network, quantized, inputs, ranges)
            spreads = walk.spreads()
        for name in network.float_outputs:
            if name not in spreads:
                spreads[name] = Spread.constant(walk.float_constant(name), walk.constant(name))
        worst = {name: float(spreads[name].error.magnitude.max(initial=0.0)) for name in network.float_outputs}
    except NoBound as reason:
        return ErrorBound({}, str(reason))
    if not all(np.isfinite(value) for value in worst.values()):
        return ErrorBound({}, "the bound is above all float64 numbers")
    return ErrorBound(worst)


@dataclass(frozen=True)
class _Site:
    """A node of the quantized network, and the spreads of its operands; None for operands that are left out.

    `float_node` is the node of the float network that it stands for; None for one that corrects a bias.
    """

    node: Any
    float_node: Any | None
    operands: Sequence[Spread | None]

    @cached_property
    def attributes(self) -> Mapping[str, Any]:
        """The node's attributes by name."""
        return _attributes(self.node)

    @property
    def float_attributes(self) -> Mapping[str, Any]:
        """The attributes of the float network's node by name."""
        return self.attributes if self.float_node is None else _attributes(self.float_node)

    def optional(self, k: int) -> Spread | None:
        """Return an operand; None if it is left out."""
        return self.operands[k] if k < len(self.operands) else None

    def at(self, k: int) -> Spread:
        """Return an operand; NoBound if it is left out."""
        operand = self.optional(k)
        if operand is None:
            raise NoBound(f"{self.node.op_type} {self.node.name} without operand {k}")
        return operand

    def constant(self, k: int) -> Spread | None:
        """Return an operand; None if it is left out, NoBound if it is computed when the network runs."""
        operand = self.optional(k)
        if operand is not None and not _is_known(operand):
            raise NoBound(f"no rule for {self.node.op_type} whose operand {k} is no constant")
        return operand


def _attributes(node: Any) -> Mapping[str, Any]:
    """Return a node's attributes by name."""
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


Rule = Callable[[_Site], Spread]


class _Walk:
    """Follows both networks node by node."""

    def __init__(
        self,
        network: FloatModel,
        quantized: Any,
        inputs: Mapping[str, tuple[float, float]],
        ranges: Mapping[str, tuple[float, float]],
    ) -> None:
        self._network, self._model, self._ranges = network, quantized, ranges
        self._floats = {node.name: node for node in network.model.graph.node}
        self._values: dict[str, Any] = {x.name: numpy_helper.to_array(x) for x in quantized.graph.initializer}
        self._spreads: dict[str, Spread] = {}
        for name, shape in network.inputs.items():
            low, high = (np.full(shape, end, np.float64) for end in inputs[name])
            zero = np.zeros(shape)
            self._spreads[name] = Spread(Enclosure(low, high), Enclosure(low, high), Enclosure(zero, zero))

    def spreads(self) -> dict[str, Spread]:
        """Return the spreads of all edges; NoBound for an operator that is not followed."""
        for node in self._model.graph.node:
            if node.domain == DOMAIN:
                self._quantizer(node)
                continue
            function = _RULES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
            if function is None:
                raise NoBound(f"no rule for {node.op_type}" + (f" of {node.domain}" if node.domain else ""))
            if not any(name in self._spreads for name in node.input):
                raise NoBound(f"{node.op_type} {node.name} of constants")
            given = [self._operand(node, k) for k in range(len(node.input))]
            result = function(_Site(node, self._floats.get(node.name), given))
            if limits := self._ranges.get(node.output[0]):
                known = Enclosure(*(np.full(result.exact.low.shape, end, np.float64) for end in limits))
                result = Spread.of(result.exact.meet(known), result.quantized, result.error)
            if not all((side.magnitude <= _MOST32).all() for side in (result.exact, result.quantized)):
                raise NoBound(f"numbers of {node.output[0]} may be beyond float32")
            self._spreads[node.output[0]] = result
        return self._spreads

    def _operand(self, node: Any, k: int) -> Spread | None:
        """Return the spread of an operand; None if it is left out. Constants may differ between the networks."""
        name = node.input[k]
        if not name:
            return None
        if name in self._spreads:
            return self._spreads[name]
        quantized = self.constant(name)
        source = self._floats.get(node.name)
        constants = self._network.constants
        if source is None:  # a node that corrects a bias
            return Spread.constant(np.zeros_like(quantized), quantized)
        if k < len(source.input) and source.input[k] in constants:
            return Spread.constant(constants[source.input[k]], quantized)
        if k >= len(source.input) or not source.input[k]:  # a bias that the float network does not have
            return Spread.constant(np.zeros_like(quantized), quantized)
        raise NoBound(f"{node.op_type} {node.name} has a constant in place of an edge")

    def float_constant(self, name: str) -> NDArray[Any]:
        """Return the numbers of a constant of the float network; NoBound if it is none."""
        if name not in self._network.constants:
            raise NoBound(f"{name} is neither a constant nor an edge that is followed")
        return self._network.constants[name]

    def constant(self, name: str) -> NDArray[Any]:
        """Return the numbers of a constant of the quantized network; NoBound if they are not known."""
        if name not in self._values:
            raise NoBound(f"{name} is neither a constant nor an edge that is followed")
        return np.asarray(self._values[name])

    def _quantizer(self, node: Any) -> None:
        """Add the result of a quantizer: numbers if it is of constants, else a spread."""
        name, scale = node.input[0], np.asarray(self._values[node.input[1]], np.float32)
        attributes = _attributes(node)
        if node.op_type == "BipolarQuant":
            grid = QuantizerGrid(1, scale, bipolar=True)
        else:
            zero, bits = (float(self._values[n]) for n in node.input[2:4])
            grid = QuantizerGrid(int(bits), scale, int(zero), bool(attributes["signed"]))
        if name not in self._spreads:
            self._values[node.output[0]] = exact_codes(grid, self.constant(name))
            return
        if grid.bipolar:
            raise NoBound("no rule for activations of two values")
        self._spreads[node.output[0]] = quantize_spread(self._spreads[name], grid)


def exact_codes(grid: QuantizerGrid, numbers: NDArray[Any]) -> Floats64:
    """Return numbers on the grid in float64: codes by the scale, without another rounding."""
    scale = grid.scale.astype(np.float64)
    if grid.bipolar:
        return np.where(numbers >= 0, scale, -scale)
    low, high = grid.limits
    codes: Floats64 = np.clip(np.rint(numbers / scale) + grid.zero, low, high) - grid.zero
    return codes * scale


def quantize_spread(x: Spread, grid: QuantizerGrid) -> Spread:
    """Return the spread behind a quantizer of the quantized network."""
    scale = grid.scale.astype(np.float64)
    low, high = ((limit - grid.zero) * scale for limit in grid.limits)
    step = _HALF * scale
    result = Enclosure(
        np.clip(x.quantized.low - step, low, high),
        np.clip(x.quantized.high + step, low, high),
    )
    off = outward(np.minimum(-step, high - x.quantized.high), np.maximum(step, low - x.quantized.low))
    return Spread.of(x.exact, result, x.error + off).rounded32()


def _linear(
    matrix_of: Callable[[Floats64, Floats64], Floats64], x: Enclosure, weights: Enclosure, terms: int
) -> Enclosure:
    """Return the interval of a product by known weights: a product of middles, and one of radii, in absolute numbers.

    `terms` numbers are added for each result.
    """
    w = weights.low
    middle = (x.low + x.high) / 2
    radius = np.maximum(x.high - middle, middle - x.low) * (1 + 4 * _UNIT) + np.finfo(np.float64).tiny
    slack = (terms + 4) * _UNIT
    radius = radius + slack * (np.abs(middle) + radius)
    center, room = matrix_of(middle, w), matrix_of(radius, np.abs(w)) * (1 + slack)
    return outward(center - room, center + room)


def _bilinear(matrix_of: Callable[[Floats64, Floats64], Floats64], x: Enclosure, y: Enclosure, terms: int) -> Enclosure:
    """Return the interval of a product of two matrices of intervals (Rump, 1999).

    Of middles m and radii r its middle is m_x m_y, its radius |m_x| r_y + r_x (|m_y| + r_y), and what float64 rounds.
    `terms` numbers are added for each result.
    """
    slack = (terms + 4) * _UNIT
    sides = []
    for side in (x, y):
        middle = (side.low + side.high) / 2
        radius = np.maximum(side.high - middle, middle - side.low) * (1 + 4 * _UNIT) + np.finfo(np.float64).tiny
        sides.append((middle, radius + slack * (np.abs(middle) + radius)))
    (m_x, r_x), (m_y, r_y) = sides
    center = matrix_of(m_x, m_y)
    room = (matrix_of(np.abs(m_x), r_y) + matrix_of(r_x, np.abs(m_y) + r_y)) * (1 + 2 * slack)
    return outward(center - room, center + room)


def _product_of_edges(x: Spread, y: Spread, matrix_of: Callable[[Floats64, Floats64], Floats64], terms: int) -> Spread:
    """Return the spread of a product whose factors are both computed when the networks run."""
    exact = _bilinear(matrix_of, x.exact, y.exact, terms)
    quantized = _bilinear(matrix_of, x.quantized, y.quantized, terms)
    error = _bilinear(matrix_of, x.error, y.quantized, terms) + _bilinear(matrix_of, x.exact, y.error, terms)
    rounding = 2 * (terms + 4) * _UNIT32
    room = [rounding * matrix_of(a.magnitude, b.magnitude) for a, b in ((x.exact, y.exact), (x.quantized, y.quantized))]
    return Spread.of(exact, quantized, error).with_room(room[0], room[1])


def _product(x: Spread, w: Spread, matrix_of: Callable[[Floats64, Floats64], Floats64], terms: int) -> Spread:
    """Return the spread of a product by weights that differ between the networks."""
    exact = _linear(matrix_of, x.exact, w.exact, terms)
    quantized = _linear(matrix_of, x.quantized, w.quantized, terms)
    error = _linear(matrix_of, x.error, w.quantized, terms)
    difference = _linear(matrix_of, x.exact, Enclosure(w.error.low, w.error.low), terms)
    rounding = 2 * (terms + 4) * _UNIT32
    room = [
        rounding * matrix_of(side.magnitude, np.abs(weights.low))
        for side, weights in ((x.exact, w.exact), (x.quantized, w.quantized))
    ]
    # the difference of weights is known to a rounding error, which is far below float32's rounding error
    return Spread(exact, quantized, error + difference).with_room(room[0], room[1])


def _conv(site: _Site) -> Spread:
    x, w = site.at(0), site.at(1)
    if not _is_known(w):
        raise NoBound("no rule for a Conv of two edges")
    kernel = w.exact.low.shape[2:]
    count = len(kernel)
    strides, dilations = (list(site.attributes.get(name, [1] * count)) for name in ("strides", "dilations"))
    pads, groups = (
        _pads(site.attributes, x.exact.low.shape[2:], kernel, strides, dilations),
        site.attributes.get("group", 1),
    )

    def windows_of(numbers: Floats64, weights: Floats64) -> Floats64:
        return convolve(numbers, weights, pads, strides, dilations, groups)

    terms = int(np.prod(w.exact.low.shape[1:]))
    result = _product(x, w, windows_of, terms)
    bias = site.optional(2)
    return result if bias is None else _sum(result, _along_channels(bias, result))


def _pads(
    attributes: Mapping[str, Any], shape: Any, kernel: Any, strides: list[int], dilations: list[int]
) -> list[tuple[int, int]]:
    """Return the pads of each axis."""
    mode = attributes.get("auto_pad", b"NOTSET").decode()
    if mode == "VALID":
        return [(0, 0)] * len(kernel)
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        pads = []
        for size, window, stride, dilation in zip(shape, kernel, strides, dilations, strict=True):
            total = max(0, (-(-size // stride) - 1) * stride + (window - 1) * dilation + 1 - size)
            less, more = total // 2, total - total // 2
            pads.append((less, more) if mode == "SAME_UPPER" else (more, less))
        return pads
    flat = list(attributes.get("pads", [0] * 2 * len(kernel)))
    if min(flat, default=0) < 0:
        raise NoBound("no rule for pads below 0")
    return list(zip(flat[: len(kernel)], flat[len(kernel) :], strict=True))


def convolve(
    x: Floats64, w: Floats64, pads: list[tuple[int, int]], strides: list[int], dilations: list[int], groups: int
) -> Floats64:
    """Return a convolution of (N, C, ...) by weights (O, C / groups, ...)."""
    count = w.ndim - 2
    windows = windows_of(x, w.shape[2:], pads, strides, dilations)
    if windows.size > _MAX_ELEMENTS * 16:
        raise NoBound("a convolution is too large")
    inputs, outputs = x.shape[1] // groups, w.shape[0] // groups
    parts = []
    for k in range(groups):
        part = windows[:, k * inputs : (k + 1) * inputs]
        axes = [1, *range(2 + count, 2 + 2 * count)]
        product = np.tensordot(part, w[k * outputs : (k + 1) * outputs], (axes, [1, *range(2, 2 + count)]))
        parts.append(np.moveaxis(product, -1, 1))
    return np.concatenate(parts, 1)


def _matmul(site: _Site) -> Spread:
    x, w = site.at(0), site.at(1)
    product = _product if _is_known(w) else _product_of_edges
    return product(x, w, lambda a, b: np.asarray(a @ b, np.float64), x.exact.low.shape[-1])


def _gemm(site: _Site) -> Spread:
    x, w = site.at(0), site.at(1)
    if not _is_known(w) or any(some.get("alpha", 1.0) != 1.0 for some in (site.attributes, site.float_attributes)):
        raise NoBound("no rule for this Gemm")
    if site.attributes.get("transA"):
        x = x.each(lambda side: side.map(np.transpose))
    if site.attributes.get("transB"):
        w = w.each(lambda side: side.map(np.transpose))
    result = _product(x, w, lambda a, b: np.asarray(a @ b, np.float64), w.exact.low.shape[0])
    bias = site.optional(2)
    if bias is None:
        return result
    # the quantized network's bias may have the float network's factor in it already
    factors = [some.get("beta", 1.0) for some in (site.float_attributes, site.attributes)]
    if factors != [1.0, 1.0]:
        if not _is_known(bias):
            raise NoBound("no rule for this Gemm")
        bias = Spread.constant(bias.exact.low * factors[0], bias.quantized.low * factors[1]).rounded32(2)
    return _sum(result, bias)


def _is_known(spread: Spread) -> bool:
    """Return whether a spread belongs to constants."""
    return bool((spread.exact.low == spread.exact.high).all() and (spread.quantized.low == spread.quantized.high).all())


def _along_channels(bias: Spread, result: Spread) -> Spread:
    """Return a bias a channel, shaped to be added to a result (N, C, ...)."""
    shape = [1, -1, *[1] * (result.exact.low.ndim - 2)]
    return Spread(*(side.map(lambda x: x.reshape(shape)) for side in (bias.exact, bias.quantized, bias.error)))


def _sum(a: Spread, b: Spread) -> Spread:
    return Spread.of(a.exact + b.exact, a.quantized + b.quantized, a.error + b.error).rounded32()


def _add(site: _Site) -> Spread:
    return _sum(site.at(0), site.at(1))


def _sub(site: _Site) -> Spread:
    a, b = site.at(0), site.at(1)
    return Spread.of(a.exact - b.exact, a.quantized - b.quantized, a.error - b.error).rounded32()


def _mul(site: _Site) -> Spread:
    a, b = site.at(0), site.at(1)
    error = a.error * b.quantized + a.exact * b.error
    return Spread.of(a.exact * b.exact, a.quantized * b.quantized, error).rounded32()


def _lipschitz(function: Callable[[Floats64], Floats64], slope: float = 1.0, rounding: float = 0) -> Rule:
    """Return the rule of an increasing function whose slope is at most `slope`; `rounding` counts float32 errors."""

    def rule(site: _Site) -> Spread:
        x = site.at(0)
        error = outward(np.minimum(x.error.low, 0) * slope, np.maximum(x.error.high, 0) * slope)
        sides = [outward(*(function(end) for end in (side.low, side.high))) for side in (x.exact, x.quantized)]
        if rounding:
            sides = [side.widen(rounding * _UNIT * (1 + side.magnitude)) for side in sides]
            room = rounding * _UNIT32
            return Spread.of(sides[0], sides[1], error).with_room(*(room * (1 + s.magnitude) for s in sides))
        return Spread.of(sides[0], sides[1], error)

    return rule


def _sigmoid(x: Floats64) -> Floats64:
    return np.asarray(1 / (1 + np.exp(-x)))


def _clip(site: _Site) -> Spread:
    least, most = site.constant(1), site.constant(2)
    low = -np.inf if least is None else least.exact.low.item()
    high = np.inf if most is None else most.exact.low.item()
    return _lipschitz(lambda x: np.clip(x, low, high))(site)


def _leaky(site: _Site) -> Spread:
    alpha = site.attributes.get("alpha", 0.01)
    if not 0 <= alpha <= 1:
        raise NoBound("no rule for LeakyRelu that falls")
    return _lipschitz(lambda x: np.where(x > 0, x, alpha * x), 1.0, 2)(site)


def _mean_over(x: Spread, axes: tuple[int, ...], keep: bool) -> Spread:
    size = int(np.prod([x.exact.low.shape[axis] for axis in axes]))

    def mean(side: Enclosure) -> Enclosure:
        ends = [end.mean(axes, keepdims=keep) for end in (side.low, side.high)]
        room = (size + 2) * _UNIT * side.magnitude.max(axes, keepdims=keep)
        return outward(ends[0] - room, ends[1] + room)

    room = [(size + 2) * _UNIT32 * side.magnitude.max(axes, keepdims=keep) for side in (x.exact, x.quantized)]
    return x.each(mean).with_room(room[0], room[1])


def _global_mean(site: _Site) -> Spread:
    return _mean_over(site.at(0), tuple(range(2, site.at(0).exact.low.ndim)), True)


def _reduce_mean(site: _Site) -> Spread:
    count, listed_axes = site.at(0).exact.low.ndim, site.constant(1)
    listed = site.attributes.get("axes") if listed_axes is None else listed_axes.exact.low.tolist()
    if not listed and site.attributes.get("noop_with_empty_axes"):
        return site.at(0)
    axes = tuple(int(axis) % count for axis in listed) if listed else tuple(range(count))
    return _mean_over(site.at(0), axes, bool(site.attributes.get("keepdims", 1)))


def _pool(site: _Site) -> Spread:
    x = site.at(0)
    kernel = list(site.attributes["kernel_shape"])
    strides, dilations = (list(site.attributes.get(name, [1] * len(kernel))) for name in ("strides", "dilations"))
    if site.attributes.get("ceil_mode") or len(site.node.output) > 1:
        raise NoBound(f"no rule for this {site.node.op_type}")
    pads = _pads(site.attributes, x.exact.low.shape[2:], kernel, strides, dilations)
    inner = tuple(range(-len(kernel), 0))

    def windows(end: Floats64, filler: float) -> Floats64:
        return windows_of(end, kernel, pads, strides, dilations, filler)

    if site.node.op_type == "MaxPool":
        sides = [side.map(lambda end: windows(end, -np.inf).max(inner)) for side in (x.exact, x.quantized)]
        error = Enclosure(windows(x.error.low, np.inf).min(inner), windows(x.error.high, -np.inf).max(inner))
        return Spread.of(sides[0], sides[1], error)
    counted = bool(site.attributes.get("count_include_pad", 0))
    counts = np.full(x.exact.low.shape, 1.0)
    share = windows(counts, 1.0 if counted else 0.0).sum(inner)
    size = int(np.prod(kernel))

    def mean(side: Enclosure) -> Enclosure:
        ends = [windows(end, 0.0).sum(inner) / share for end in (side.low, side.high)]
        room = (size + 3) * _UNIT * windows(side.magnitude, 0.0).max(inner)
        return outward(ends[0] - room, ends[1] + room)

    room = [(size + 3) * _UNIT32 * windows(s.magnitude, 0.0).max(inner) for s in (x.exact, x.quantized)]
    return x.each(mean).with_room(room[0], room[1])


def _global_max(site: _Site) -> Spread:
    axes = tuple(range(2, site.at(0).exact.low.ndim))
    x = site.at(0)
    sides = [side.map(lambda end: end.max(axes, keepdims=True)) for side in (x.exact, x.quantized)]
    error = Enclosure(x.error.low.min(axes, keepdims=True), x.error.high.max(axes, keepdims=True))
    return Spread.of(sides[0], sides[1], error)


def _softmax(site: _Site) -> Spread:
    """Return a spread in [0, 1]; an error is at most half the largest of its input's."""
    axis = site.attributes.get("axis", -1)
    x = site.at(0)
    most = np.broadcast_to(x.error.magnitude.max(axis, keepdims=True) / 2, x.exact.low.shape)
    unit = Enclosure(np.zeros_like(x.exact.low), np.ones_like(x.exact.low))
    room = np.full(x.exact.low.shape, (x.exact.low.shape[axis] + 8) * _UNIT32 * 16)
    return Spread.of(unit, unit, outward(-most, most)).with_room(room, room)


def _hard_sigmoid(site: _Site) -> Spread:
    alpha, beta = site.attributes.get("alpha", 0.2), site.attributes.get("beta", 0.5)
    if alpha < 0:
        raise NoBound("no rule for HardSigmoid that falls")
    # alpha x is as large as beta where both nearly cancel, and so is the rounding
    return _lipschitz(lambda x: np.clip(alpha * x + beta, 0, 1), alpha, 4 * (1 + abs(beta)))(site)


def _move(site: _Site) -> Spread:
    """Return the spread of a node that only selects or moves elements, by the reference of the package onnx."""
    from onnx.reference import ReferenceEvaluator

    node, count = site.node, len(site.operands) if site.node.op_type == "Concat" else 1
    edges = [site.at(k) for k in range(count)]
    # indices and shapes; names of operands that are left out stay empty
    others = {k: other for k in range(count, len(site.operands)) if (other := site.constant(k)) is not None}
    names = [f"x{k}" if k < count or k in others else "" for k in range(len(site.operands))]
    constants = {
        names[k]: other.exact.low.clip(-_MAX_INDEX, _MAX_INDEX).astype(np.int64) for k, other in others.items()
    }

    def run(numbers: list[Floats64]) -> Floats64:
        simple = onnx.NodeProto()
        simple.CopyFrom(node)
        del simple.input[:], simple.output[:]
        simple.input.extend(names)
        simple.output.append("y")
        types = dict.fromkeys(names[:count], onnx.TensorProto.DOUBLE) | dict.fromkeys(constants, onnx.TensorProto.INT64)
        infos = [onnx.helper.make_tensor_value_info(name, kind, None) for name, kind in types.items()]
        result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.DOUBLE, None)
        graph = onnx.helper.make_graph([simple], "move", infos, [result])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
        feed = dict(zip(names[:count], numbers, strict=True)) | constants
        (moved,) = ReferenceEvaluator(model).run(None, feed)
        return np.asarray(moved, np.float64)

    def move(sides: list[Enclosure]) -> Enclosure:
        return Enclosure(run([side.low for side in sides]), run([side.high for side in sides]))

    return Spread(move([s.exact for s in edges]), move([s.quantized for s in edges]), move([s.error for s in edges]))


_MOVES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Slice", "Concat")
_RULES: dict[str, Rule] = {
    "Conv": _conv,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Add": _add,
    "Sub": _sub,
    "Mul": _mul,
    "Relu": _lipschitz(lambda x: np.maximum(x, 0)),
    "Clip": _clip,
    "LeakyRelu": _leaky,
    "Sigmoid": _lipschitz(_sigmoid, 0.25, 16),
    "Tanh": _lipschitz(np.tanh, 1.0, 16),
    "HardSigmoid": _hard_sigmoid,
    "GlobalAveragePool": _global_mean,
    "ReduceMean": _reduce_mean,
    "AveragePool": _pool,
    "MaxPool": _pool,
    "GlobalMaxPool": _global_max,
    "Softmax": _softmax,
    **dict.fromkeys(_MOVES, _move),
}

"""Graph operators as operations of the checker: the operator table's own meanings, run on numbers that record them.

Given: `(x - mean) * (gain / spread) + bias`, the meaning of a batch norm in the exact reference.
Result: the operations "sub", "div", "mul" and "add" in a chain, on `x` and the constants of the node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from bitsynth.graph.arithmetic import Arithmetic, Quantity
from bitsynth.graph.ir import Node
from bitsynth.graph.operators import TABLE, Site
from bitsynth.graph.operators.rounding import RoundsItself
from bitsynth.graph.types import Edge, Shape, Tensor
from bitsynth.network.certificate.arrays import encode_array
from bitsynth.network.certificate.chains import ChainValue, ChainWriter, Unsupported, may_wrap
from bitsynth.network.certificate.checker import CURVES

_OPERATIONS = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "maximum": "max",
    "minimum": "min",
    "rint": "round",
    "floor": "floor",
    "ceil": "ceil",
    "sqrt": "root",
}
"""The checker's operations, by numpy's names."""
_ROUNDING_PARTS = {
    "CEIL": ("ceil", "ceil", 0.0),
    "FLOOR": ("floor", "floor", 0.0),
    "UP": ("ceil", "floor", 0.0),
    "DOWN": ("floor", "ceil", 0.0),
    "HALF_UP": ("floor", "ceil", 0.5),
    "HALF_DOWN": ("ceil", "floor", -0.5),
}
"""Operations that round numbers above 0 and below 0, and what is first added to, or subtracted from, the number."""
_NEVER_WRAP = {"max", "min", "relu", "clip"}
"""Operators that choose one of several integers."""


class RecordedNumber(np.lib.mixins.NDArrayOperatorsMixin, RoundsItself):
    """A value of a chain, which takes part in numpy's operators as an array does; each operation is recorded."""

    shape: Shape = ()

    def __init__(self, chain: ChainWriter, value: ChainValue) -> None:
        self.chain, self.value = chain, value

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers: a float reference's type, or object for exact numbers."""
        return np.dtype(object if self.chain.exact else self.value.dtype)

    def astype(self, dtype: Any) -> RecordedNumber:
        """Return the number rounded to a float type, where the reference computes in floats."""
        kind = np.dtype(dtype)
        return RecordedNumber(self.chain, self.chain.cast(self.value, kind.name)) if kind.kind == "f" else self

    def round_by(self, mode: str) -> RecordedNumber:
        """Return integers; a mode that differs on both sides of 0 is a sum of a part above 0 and a part below."""
        if mode == "BIPOLAR":
            return self.count(self.chain.scalar(0, self.value), -1, 2)
        if mode in ("ROUND", "HALF_EVEN"):
            return self._apply("rint", self)
        if mode == "HALF_ODD":
            return self._apply("subtract", self._apply("rint", self._apply("add", self, 1)), 1)
        above, below, half = _ROUNDING_PARTS[mode]
        if above is below:
            return self._apply(above, self)
        first, second = (self._apply(name, self, half) if half else self for name in ("add", "subtract"))
        upper = self._apply("maximum", self._apply(above, first), 0)
        return self._apply("add", upper, self._apply("minimum", self._apply(below, second), 0))

    def count(self, levels: ChainValue, least: int, step: int) -> RecordedNumber:
        """Return the number of levels reached, times `step`, plus the least number."""
        count = RecordedNumber(self.chain, self.chain.op("count", self.value, levels))
        if step == 2:  # sums of whole numbers are exact in float64 to the checker, products are not
            count = self._apply("add", count, count)
        elif step != 1:
            count = self._apply("multiply", count, np.asarray(step))
        return self._apply("add", count, np.asarray(least))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any) -> RecordedNumber:
        return self._apply(ufunc.__name__, *inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> RecordedNumber:
        if function is not np.clip:
            raise Unsupported(f"{function.__name__} is none of the checker's operations")
        number, low, high = args
        number = number if low is None else self._apply("maximum", number, low)
        return number if high is None else self._apply("minimum", number, high)

    def _apply(self, name: str, a: Any, b: Any = None) -> RecordedNumber:
        """Record an operation by numpy's name. An added integer 0, the zero point of most quantizers, is left out."""
        if name == "add" and isinstance(a, RecordedNumber) and _is_integer_zero(b):
            return a
        inputs = (a,) if b is None else (a, b)
        values = [self._lift(x) for x in inputs]
        if name == "negative":
            return RecordedNumber(self.chain, self.chain.op("mul", values[0], self.chain.scalar(-1, values[0])))
        if name not in _OPERATIONS:
            raise Unsupported(f"{name} is none of the checker's operations")
        return RecordedNumber(self.chain, self.chain.op(_OPERATIONS[name], *values))

    def _lift(self, x: Any) -> ChainValue:
        """Return an operand as a value of the chain: Python's numbers in the type of this one, arrays in their own."""
        if isinstance(x, RecordedNumber):
            return x.value
        if isinstance(x, np.ndarray | np.generic):
            return self.chain.constant(x)
        return self.chain.scalar(x, self.value)


def _is_integer_zero(x: Any) -> bool:
    return not isinstance(x, RecordedNumber) and np.asarray(x).dtype.kind in "iu" and not np.any(x)


class RecordedArithmetic(Arithmetic):
    """The arithmetic of recorded numbers; Python's numbers get the type of the number that they meet."""

    def __init__(self, chain: ChainWriter) -> None:
        self.chain, self.reference = chain, chain.graph.reference

    def number(self, value: Quantity, edge: Edge) -> Quantity:
        return RecordedNumber(self.chain, self.chain.number(edge.name))

    def constant(self, value: Any) -> Quantity:
        if isinstance(value, np.ndarray | np.generic):
            return RecordedNumber(self.chain, self.chain.constant(value))
        return value

    def cast(self, number: Quantity, dtype: str) -> Quantity:
        return number.astype(dtype) if isinstance(number, RecordedNumber) else number

    def steps(
        self, function: Callable[[Tensor], Tensor], number: Quantity, *, exactly: Callable[[Tensor], Tensor]
    ) -> Tensor:
        return function(number)

    def maximum(self, a: Quantity, b: Quantity) -> Quantity:
        return np.maximum(a, b)

    def minimum(self, a: Quantity, b: Quantity) -> Quantity:
        return np.minimum(a, b)

    def call(self, name: str, a: Quantity) -> Quantity:
        if name == "sqrt":
            return np.sqrt(a)
        if name not in CURVES or not self.chain.exact:
            raise Unsupported(f"{name} is as the reference computes it in floats")
        return RecordedNumber(self.chain, self.chain.op(name, a.value))

    def move(self, apply: Callable[..., Tensor], *numbers: Quantity) -> Quantity:
        _refuse("moves")

    def matmul(self, a: Quantity, b: Quantity) -> Quantity:
        _refuse("products")

    def sum(self, a: Quantity, axes: tuple[int, ...]) -> Quantity:
        _refuse("sums")

    def max(self, a: Quantity, axes: tuple[int, ...]) -> Quantity:
        _refuse("maxima")


def _refuse(what: str) -> NoReturn:
    raise Unsupported(f"a chain has no {what} of elements")


def record(chain: ChainWriter, node: Node) -> ChainValue:
    """Record a node's meaning in the chain, and return its result; Unsupported if the checker has no equal."""
    graph, operator = chain.graph, TABLE[node.op]
    inputs, (edge,) = graph.edges_of(node.inputs), graph.edges_of(node.outputs)
    if node.op == "view":
        return ChainValue(chain.integers(node.inputs[0]), edge=edge)
    site = Site(node, inputs, (None,) * len(inputs), graph.reference, (edge,), RecordedArithmetic(chain))
    if node.op == "multiply_shift":
        return ChainValue(_multiply_shift(chain, site).value.name, "float64", edge=edge)
    if operator.kind == "step":
        integers = _count(chain, site) if node.op == "multi_threshold" else operator.run(site, *inputs)[0]
        return ChainValue(integers.value.name, is_constant=integers.value.is_constant, edge=edge)
    if operator.meaning is None:
        raise Unsupported(f"{node.op} is none of the checker's operations")
    if not edge.is_float and (node.op == "div" or inputs[0].is_float or _wraps(node, edge)):
        raise Unsupported(f"{node.op} of {edge.dtype} may wrap or be cut off")
    number = operator.meaning(site, *site.numbers(inputs)).value
    return chain.cast(number, edge.dtype) if edge.is_float else number


def _wraps(node: Node, edge: Edge) -> bool:
    return node.op not in _NEVER_WRAP and may_wrap(edge)


_LOW_BITS = 16


def _multiply_shift(chain: ChainWriter, site: Site) -> RecordedNumber:
    """Record products with 31-bit multipliers in parts that float64 holds, as x * (a * 2^16 + b) has 62 bits.

    floor((x * m + 2^(s - 1)) / 2^s) = floor((x * a + floor(x * b / 2^16) + 2^(s - 17)) / 2^(s - 16)), for s > 16.
    """
    multiplier, shift, right = site["multiplier"], site["shift"], site["right"]
    kind = site.inputs[0].integers
    (number,) = site.numbers(site.inputs)
    most = max(int(np.abs(end - kind.zero).max()) for end in (kind.low, kind.high))
    if most * int(multiplier.max()) < 1 << 52:
        whole, low_bits = number * np.asarray(multiplier), 0
    elif np.all(shift > _LOW_BITS):
        high, low = multiplier >> _LOW_BITS, multiplier & ((1 << _LOW_BITS) - 1)
        whole = number * np.asarray(high) + np.floor(number * np.asarray(low) / np.asarray(1 << _LOW_BITS))
        low_bits = _LOW_BITS
    else:
        raise Unsupported("products of more than 52 bits with a shift of fewer than 17")
    half, unit = (np.left_shift(1, shift - low_bits - k) for k in (1, 0))
    scaled: RecordedNumber = np.floor((whole + half) / unit)
    if np.any(right):
        scaled = (scaled / np.left_shift(1, right)).round_by("HALF_UP")
    shifted = scaled + np.asarray(site["zero"]).astype(np.int64)
    limited: RecordedNumber = np.clip(shifted, site["low"], site["high"]) if site["low"] is not None else shifted
    return limited


def _count(chain: ChainWriter, site: Site) -> RecordedNumber:
    """Record thresholds as a count of the levels of each channel."""
    thresholds = site["thresholds"]
    if len(thresholds) > 1 and site["axis"] != chain.place[1]:
        raise Unsupported("thresholds differ along another axis than channels")
    (number,) = site.numbers(site.inputs)
    name = f"k{len(chain.constants)}"
    chain.constants[name] = encode_array(np.asarray(thresholds))
    counted: RecordedNumber = number.count(
        ChainValue(name, thresholds.dtype.name, True), int(site["least"]), int(site["step"])
    )
    return counted

"""Chains of nodes as the checker evaluates them: a few operations on numbers, in the order of the reference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec import UNSET, UnsetType

from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.types import Edge, Integers, Tensor, full_range
from bitsynth.network.certificate.arrays import EncodedArray, encode_array
from bitsynth.network.certificate.records import ChainOperation
from bitsynth.network.formulas.chain import find_moved_axis


class Unsupported(Exception):
    """The checker has no equivalent operation: the step is left without a claim."""


Place = tuple[int, int]
_MAX_WHOLE = 1 << 53
"""float64, in which the checker has them, holds all integers up to this."""


@dataclass(frozen=True)
class ChainValue:
    """A value of a chain.

    Args:
        name: Its name in the certificate.
        dtype: The type of its numbers in a reference of floats.
        is_constant: Whether it depends on constants alone.
        edge: The edge whose integers, not numbers, it is.
        place: The place of the edge.
        grid: Values that are its scale and, unless it is 0, its zero point, where the checker knows these by name.
    """

    name: str
    dtype: str = "float64"
    is_constant: bool = False
    edge: Edge | None = None
    place: Place = (0, -1)
    grid: tuple[ChainValue, ...] = ()


@dataclass(eq=False)
class ChainWriter:
    """Writes the operations of a chain, node by node.

    Attributes:
        ops: As the certificate has them, in order.
        constants: By name.
        edges: The value of each edge there is.
        factor: The scale of weights, of sums of products with these.
        place: The number of axes of the current edge, and the axis of its channels; -1 if channels are mixed.
    """

    graph: Graph
    place: Place
    ops: list[ChainOperation] = field(default_factory=list)
    constants: dict[str, EncodedArray] = field(default_factory=dict)
    edges: dict[str, ChainValue] = field(default_factory=dict)
    factor: Tensor = field(default_factory=lambda: np.ones(()))

    @property
    def exact(self) -> bool:
        """Whether numbers are exact: the reference is "exact"."""
        return self.graph.reference == "exact"

    def start(self, name: str, edge: Edge, number: int = 0) -> None:
        """Begin with the integers of an edge, or its numbers, called `name`; the edge is the step's input `number`.

        Unsupported if scales or zero points differ along other axes than channels.
        """
        value = ChainValue(name, edge.dtype)
        if isinstance(edge.type, Integers):
            for numbers in (edge.type.scale, edge.type.zero):
                _column(numbers, *self.place)
            grid = tuple(ChainValue(f"{k}{number}", is_constant=True) for k in ("scale", "zero"))
            value = ChainValue(name, edge=edge, place=self.place, grid=grid)
        self.edges[edge.name] = value

    def start_sums(self, sums: Edge, given: Edge, weights: Edge | None = None) -> None:
        """Begin with accumulators of the `given` edge and weights, called "sum", on the product of their scales."""
        scales = np.ones(()) if weights is None else weights.integers.scale, given.integers.scale, sums.integers.scale
        own, read, summed = (x.astype(np.float64).reshape(-1, 1) for x in scales)
        if {len(own), len(read)} - {1, max(len(own), len(read))} or set(np.ravel(own * read)) != set(np.ravel(summed)):
            raise Unsupported("sums are on another scale than products")
        scale, results = ChainValue("scale0", is_constant=True), sums.shape[self.place[1]]
        if len(read) > 1 and len(read) != results:  # a group reads a channel and gives several results
            if len(summed) != results:
                raise Unsupported("scales of the input differ along other axes than channels")
            scale, own = self.constant(sums.integers.scale), np.ones((1, 1))
        self.factor = own
        self.edges[sums.name] = ChainValue("sum", edge=sums, place=self.place, grid=(scale,))

    def add(self, node: Node) -> None:
        """Add a node whose inputs are in the chain or constant; Unsupported if the checker has no such operation."""
        from bitsynth.network.certificate.recorder import record

        result = self.graph.edges[node.outputs[0]]
        if node.op == "reshape":
            self._reshape(self.graph.edges[node.inputs[0]], result)
            return
        self.edges[result.name] = record(self, node)

    def _reshape(self, before: Edge, after: Edge) -> None:
        axis = None if self.place[1] < 0 else find_moved_axis(before.shape, after.shape, self.place[1])
        self.edges[after.name] = self.value(before.name)
        self.place = len(after.shape), -1 if axis is None else axis

    def integers(self, edge: str) -> str:
        """Return the name of an edge's integers."""
        value, kind = self.value(edge), self.graph.edges[edge].integers
        if value.edge is not None:
            return value.name
        unscaled = self.op("div", value, self.constant(kind.scale)) if (kind.scale != 1).any() else value
        return (self.op("add", unscaled, self.constant(kind.zero)) if kind.zero.any() else unscaled).name

    def number(self, edge: str) -> ChainValue:
        """Return the numbers that an edge's integers stand for, as `Arithmetic.number` does."""
        value = self.value(edge)
        if value.edge is None:
            return value
        kind = value.edge.integers
        scale, *zero = value.grid or (self.constant(x, value.place) for x in (kind.scale, kind.zero))
        if value.name == "sum" and (self.factor != 1).any():
            scale = self.op("mul", scale, self._of_weights())
        number = ChainValue(value.name, value.dtype, value.is_constant)
        if zero and (value.grid or kind.zero.any()):
            number = self.op("sub", number, *zero)
        if not value.edge.is_float and not self.exact:
            return number
        number = self.cast(number, value.edge.dtype)
        return (
            self.op("mul", number, self.cast(scale, number.dtype)) if value.grid or (kind.scale != 1).any() else number
        )

    def _of_weights(self) -> ChainValue:
        """Return the scale of weights (OC, ...) or (..., OC), a number a channel."""
        name = f"k{len(self.constants)}"
        self.constants[name] = encode_array(self.factor.reshape(-1, 1))
        return ChainValue(name, is_constant=True)

    def value(self, edge: str) -> ChainValue:
        """Return the value of an edge; for a constant its number, one a channel or one for all."""
        if edge not in self.edges:
            if edge not in self.graph.constants:
                raise Unsupported(f"{edge} is computed by another step")
            given = self.graph.edges[edge]
            constant = self.constant(self.graph.constants[edge])
            kind = given if isinstance(given.type, Integers) else None
            self.edges[edge] = ChainValue(constant.name, constant.dtype, True, kind, self.place)
        return self.edges[edge]

    def constant(self, array: Any, place: Place | None = None) -> ChainValue:
        """Return a constant, a number a channel or one for all, that broadcasts to the current edge or another."""
        column = _column(np.asarray(array), *(place or self.place))
        if column.dtype.kind not in "iuf" or column.dtype.itemsize > 8:
            raise Unsupported(f"constants of {column.dtype}")
        if column.dtype.kind != "f" and np.any(np.abs(column.astype(object)) > _MAX_WHOLE):
            raise Unsupported("constants of more than 53 bits")
        text = encode_array(column)
        name = next((n for n, other in self.constants.items() if other == text), f"k{len(self.constants)}")
        self.constants[name] = text
        return ChainValue(name, column.dtype.name if column.dtype.kind == "f" else "float64", True)

    def scalar(self, number: float, like: ChainValue) -> ChainValue:
        """Return a number in the type of a value."""
        return self.constant(np.asarray(number, np.float64 if self.exact else like.dtype))

    def op(
        self, name: str, a: ChainValue, b: ChainValue | None = None, *, bytes: int | UnsetType = UNSET
    ) -> ChainValue:
        """Add one operation, a constant operand second, and return its result."""
        if b is not None and a.is_constant and not b.is_constant and name in ("mul", "add", "max", "min"):
            a, b = b, a
        called = f"v{len(self.ops)}"
        values = [a] if b is None else [a, b]
        self.ops.append(ChainOperation(op=name, of=[v.name for v in values], result=called, bytes=bytes))
        dtype = np.result_type(*(v.dtype for v in values)).name
        return ChainValue(called, dtype, all(v.is_constant for v in values))

    def cast(self, value: ChainValue, dtype: str) -> ChainValue:
        """Return the value rounded to a float type, where the reference computes in floats."""
        if self.exact or value.dtype == dtype:
            return ChainValue(value.name, value.dtype, value.is_constant)
        if dtype not in ("float16", "float32", "float64"):
            raise Unsupported(f"numbers of {dtype}")
        rounded = self.op("type", value, bytes=np.dtype(dtype).itemsize)
        return ChainValue(rounded.name, dtype, rounded.is_constant)


def _column(array: Tensor, rank: int, axis: int) -> Tensor:
    """Return (channels, 1) or (1, 1) numbers of an array that broadcasts to an edge of `rank` axes."""
    if array.size == 1:
        return array.reshape(1, 1)
    axes = [k for k, n in enumerate(array.shape) if n > 1]
    if axis < 0 or len(axes) > 1 or array.ndim - axes[0] != rank - axis:
        raise Unsupported("constants differ along other axes than channels")
    return array.reshape(-1, 1)


def may_wrap(edge: Edge) -> bool:
    """Return whether integer results may leave their type of the file."""
    if edge.is_float or not isinstance(edge.type, Integers):
        return False
    every = full_range(edge.dtype)
    return bool(edge.type.least <= every.least or edge.type.most >= every.most)

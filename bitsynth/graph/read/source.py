"""A node of a file, and what its translation asks of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.types import Edge, Integers, Shape, Tensor, cast
from bitsynth.printable import shown

FEW_ROUNDINGS = 2.0**-21
"""What a few roundings of float32 may put a number off by, of its size: exporters fold constants one by one."""


@dataclass(frozen=True)
class FileNode:
    """A node as the file has it, and the graph it becomes part of.

    Args:
        op: Its operator.
        domain: The domain of that.
        version: The version of the domain in the file.
        name: Its name, or that of its first output.
        attributes: Values by name; texts as str, tensors as arrays.
        inputs: Edges of the graph; None for those that are left out.
        outputs: Names in the file; empty for those that are left out.
        graph: The graph in the making.
    """

    op: str
    domain: str
    version: int
    name: str
    attributes: dict[str, Any]
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]
    graph: GraphBuilder

    def __str__(self) -> str:
        return shown(f"{self.op} {self.name}")

    def fail(self, why: str) -> SpecError:
        """The error that names this node."""
        return SpecError(f"{self}: {why}")

    def get(self, name: str, otherwise: Any = None) -> Any:
        """An attribute, or `otherwise`."""
        return self.attributes.get(name, otherwise)

    def has(self, index: int) -> bool:
        """Whether the input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def edge(self, index: int) -> str:
        """The edge of an input; SpecError if it is left out."""
        if not self.has(index):
            raise self.fail(f"input {index} is missing")
        found = self.inputs[index]
        assert found is not None
        return found

    def of(self, index: int) -> Edge:
        """What is on an input."""
        return self.graph.edges[self.edge(index)]

    def shape(self, index: int = 0) -> Shape:
        """The shape of an input."""
        return self.of(index).shape

    def value(self, index: int, what: str) -> Tensor:
        """The numbers of an input that must be constant, or made of constants: as the file's floats have them."""
        found = self.graph.in_floats(self.edge(index))
        if found is None:
            raise self.fail(f"{what} is computed at run time; it must be a constant of the file")
        return found

    def numbers(self, name: str, index: int) -> list[int] | None:
        """Whole numbers: an attribute of older versions, an input of newer ones; None if neither is there."""
        if name in self.attributes:
            return [int(n) for n in np.atleast_1d(self.attributes[name])]
        if not self.has(index):
            return None
        return [int(n) for n in self.value(index, name).reshape(-1)]

    def axis(self, axis: int, rank: int | None = None) -> int:
        """The axis, counted from the first."""
        rank = len(self.shape()) if rank is None else rank
        if not -rank <= axis < rank:
            raise self.fail(f"axis {axis} of {rank} axes")
        return axis % rank

    def axes(self, axes: list[int] | None) -> tuple[int, ...]:
        """The axes, each once and counted from the first; all if none are given."""
        rank = len(self.shape())
        return tuple(range(rank)) if axes is None else tuple(sorted({self.axis(k) for k in axes}))

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node of the graph; its output."""
        return self.graph.add(op, *inputs, source=str(self), **attributes)

    def constant(self, value: Any) -> str:
        """A constant of the graph."""
        return self.graph.constant(value)

    def like(self, value: Any, index: int = 0) -> str:
        """A constant in the float type of an input."""
        return self.constant(cast(value, self.of(index).dtype))

    def defined(self, value: float) -> str:
        """Return a constant of an operator's definition: float64 in exact arithmetic, else in the type of input 0.

        What the file says is exact as it is; the root of 2 in GELU is not, and float32 would lose half of its digits.
        """
        return self.constant(np.float64(value)) if self.graph.reference == "exact" else self.like(value)

    def reshape(self, edge: str, sizes: Shape) -> str:
        """The edge in another shape."""
        if self.graph.edges[edge].shape == tuple(sizes):
            return edge
        return self.add("reshape", edge, sizes=tuple(sizes))

    def integers(self, index: int) -> Integers:
        """The type of an input that must carry integers of the file."""
        kind = self.of(index).type
        if not isinstance(kind, Integers) or self.of(index).is_float:
            raise self.fail(f"input {index} has type {self.of(index).dtype}; it wants integers")
        return kind


def positive(node: FileNode, scale: Tensor, what: str = "scale") -> Tensor:
    """The scales, which must be finite and above 0."""
    numbers = scale.astype(np.float64)
    if not numbers.size or not np.isfinite(numbers).all() or (numbers <= 0).any():
        bad = numbers.reshape(-1)[~(np.isfinite(numbers) & (numbers > 0)).reshape(-1)]
        raise node.fail(f"{what} is {bad[0] if bad.size else 'empty'}; it must be a number above 0")
    return scale


def fitting(node: FileNode, parameter: Tensor, what: str) -> Tensor:
    """A parameter that broadcasts to the input without changing its shape."""
    shape = node.shape()
    if parameter.size == 1:
        return parameter.reshape(())
    try:
        fits = np.broadcast_shapes(parameter.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise node.fail(f"{what} of shape {parameter.shape} does not broadcast to {shape}")
    return parameter.reshape((1,) * (len(shape) - parameter.ndim) + parameter.shape)

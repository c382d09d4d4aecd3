"""A row of the table of operators, and one use of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.arithmetic import Arithmetic, Floats, Interval, Intervals, Quantity
from bitsynth.graph.ir import Node
from bitsynth.graph.types import (
    Edge,
    EdgeType,
    Integers,
    Reals,
    Shape,
    Tensor,
    full_range,
    is_float,
    limits,
    numpy_type,
)

Dependence = Literal["elementwise", "step", "move", "product", "pool", "reduction"]


@dataclass(frozen=True, eq=False)
class Site:
    """A node with its edges, before or while it runs.

    Args:
        node: The node.
        inputs: The edges it reads.
        given: The values of those that are constants, None for others.
        reference: The named reference.
        outputs: The edges it makes; empty while they are inferred.
        arithmetic: What it runs in; None while its edges are inferred.
        exactly: Gives its inputs in fractions, broadcast to a mask, where that says so: each in a row.
    """

    node: Node
    inputs: tuple[Edge, ...]
    given: tuple[Tensor | None, ...]
    reference: str
    outputs: tuple[Edge, ...] = ()
    arithmetic: Arithmetic | None = None
    exactly: Callable[[Tensor], list[Tensor]] | None = None

    def __getitem__(self, attribute: str) -> Any:
        return self.node.attributes[attribute]

    def get(self, attribute: str, otherwise: Any = None) -> Any:
        """An attribute, or `otherwise`."""
        return self.node.attributes.get(attribute, otherwise)

    @property
    def maths(self) -> Arithmetic:
        """The arithmetic it runs in."""
        assert self.arithmetic is not None
        return self.arithmetic

    def fail(self, why: str) -> SpecError:
        """The error that names this node of the file."""
        return SpecError(f"{self.node}: {why}")

    def made(self, shape: Shape, kind: EdgeType, dtype: str = "", output: int = 0) -> Edge:
        """An output edge; of the first input's type of the file if none is said."""
        return Edge(self.node.outputs[output], shape, dtype or self.inputs[0].dtype, kind)

    def numbers(self, values: Sequence[Any]) -> list[Quantity]:
        """The numbers that the inputs' values stand for."""
        return [self.maths.number(v, e) for v, e in zip(values, self.inputs, strict=True)]

    def integers(self) -> list[Integers] | None:
        """The types of inputs if all carry integers."""
        found = [e.type for e in self.inputs if isinstance(e.type, Integers)]
        return found if len(found) == len(self.inputs) else None

    def in_floats(self) -> Site:
        """The same in the arithmetic of the file's types, which is exact for integers."""
        return replace(self, arithmetic=self.maths.of_integers or Floats(self.reference))


Infer = Callable[[Site], list[Edge]]
Run = Callable[..., Sequence[Any]]


@dataclass(frozen=True)
class Operator:
    """A row of the table: all that is known of an operator.

    Args:
        name: As nodes have it.
        kind: How outputs depend on inputs: element by element, by integer steps, by place alone, by windows and sums.
        infer: The edges it makes, by shape and type; SpecError if it cannot.
        run: The reference: output values of input values, in the site's arithmetic.
        monotone: Whether each output only rises, or only falls, with the first input while others stay.
    """

    name: str
    kind: Dependence
    infer: Infer
    run: Run
    monotone: bool = False


def broadcast_shape(site: Site) -> Shape:
    """The shape that the inputs broadcast to; SpecError if they do not."""
    try:
        return np.broadcast_shapes(*(e.shape for e in site.inputs))
    except ValueError:
        shapes = ", ".join(f"{e.name} {e.shape}" for e in site.inputs)
        raise site.fail(f"shapes do not broadcast: {shapes}") from None


Meaning = Callable[..., Quantity]
Grid = Callable[[Site], Integers | None]
"""The integers that come of integers, if numbers stay on one grid."""


def elementwise_operator(
    name: str,
    meaning: Meaning,
    *,
    monotone: bool = False,
    grid: Grid | None = None,
    on: Meaning | None = None,
    floats: bool = False,
) -> Operator:
    """A row for what is done element by element: `meaning(site, *numbers)`.

    Where `grid` gives a type, `on(site, *integers)` is done instead, which must mean the same.
    """

    def infer(site: Site) -> list[Edge]:
        shape = broadcast_shape(site)
        dtype = site.get("dtype") or common_dtype(site)
        if floats and not is_float(dtype):
            raise site.fail(f"its input is {dtype}; it needs floats")
        if not is_float(dtype):
            return [site.made(shape, _integer_range(site, meaning, dtype), dtype)]
        kind = grid(site) if grid else None
        return [site.made(shape, kind if kind and floats_hold(site, kind, dtype) else Reals(), dtype)]

    def run(site: Site, *values: Any) -> list[Any]:
        (edge,) = site.outputs
        if not isinstance(edge.type, Integers):
            return [site.maths.typed(meaning(site, *site.numbers(values)), edge.dtype)]
        if edge.is_float:
            return [(on or meaning)(site, *values)]
        plain = site.in_floats()
        return [wrap(plain.maths.typed(meaning(plain, *plain.numbers(values)), "int64"), edge.dtype)]

    return Operator(name, "elementwise", infer, run, monotone)


def for_integers(rule: Callable[[list[Integers]], Integers | None]) -> Grid:
    """The rule for inputs that all carry integers."""
    return lambda site: rule(kinds) if (kinds := site.integers()) else None


_PROMOTED = {"float16", "float32", "float64"}
"""Types that some exporters mix, though the standard does not: the widest is that of the result."""


def common_dtype(site: Site) -> str:
    """The type of the file's result: that of all inputs, or the widest of floats; SpecError if others differ."""
    types = dict.fromkeys(e.dtype for e in site.inputs)
    if len(types) > 1 and not types.keys() <= _PROMOTED:
        raise site.fail(f"its inputs are of types {', '.join(types)}; they must have one type")
    return max(types, key=lambda name: numpy_type(name).itemsize)


def floats_hold(site: Site, kind: Integers, dtype: str) -> bool:
    """Whether operations on integers give what the reference does: floats must hold each of them."""
    if site.reference == "exact":
        return max(-kind.least, kind.most) < 1 << 53
    most = {"float16": 1 << 11, "bfloat16": 1 << 8, "float64": 1 << 53}.get(dtype, 1 << 24)
    return kind.is_plain and max(-kind.least, kind.most) <= most


def wrap(values: Tensor, dtype: str) -> Tensor:
    """Integers in int64, modulo 2 to the bits of a type of the file."""
    low, high = limits(dtype)
    made = values.astype(np.int64)
    if dtype in ("int64", "uint64") or not made.size or (made.min() >= low and made.max() <= high):
        return made
    return (made - low) % (high - low + 1) + low


def _integer_range(site: Site, meaning: Meaning, dtype: str) -> Integers:
    """The range of integers of a type of the file that come of integers; all of the type if they may wrap."""
    kinds = site.integers()
    if kinds is None or dtype == "bool":
        return full_range(dtype)
    ranges = [Interval((k.low - k.zero) * k.scale, (k.high - k.zero) * k.scale) for k in kinds]
    made = meaning(replace(site, arithmetic=Intervals()), *ranges)
    low, high = np.floor(made.low), np.ceil(made.high)
    every = full_range(dtype)
    if not (np.isfinite(low).all() and np.isfinite(high).all()) or low.min() < every.least or high.max() > every.most:
        return every
    return Integers.between(low.astype(np.int64), high.astype(np.int64))

"""A row of the table of operators, and a site: one use of a row by a node.

Given:   the row "mul", its meaning `lambda site, a, b: a * b`, and a node mul(%x, %y) of two float32 edges
Result:  `row.infer(site)` gives the output edge, of the shape that both inputs broadcast to; `row.run(site, x, y)`
         gives its values. `site.arithmetic` says in which numbers: floats of the file, intervals, or fractions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    """A node with its edges: while they are inferred, or while the node runs.

    Args:
        node: The node.
        inputs: The edges that it reads.
        given: The values of constant inputs; None for other inputs.
        reference: The named reference.
        outputs: The edges that it makes; empty while they are inferred.
        arithmetic: The arithmetic that it runs in; None while its edges are inferred.
        exactly: Returns, for a mask, an array of one axis for each input: its elements, broadcast to the mask, where
            the mask is set, as fractions.
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
        """Return an attribute, or `otherwise` if it is left out."""
        return self.node.attributes.get(attribute, otherwise)

    @property
    def maths(self) -> Arithmetic:
        """The arithmetic that the node runs in."""
        assert self.arithmetic is not None
        return self.arithmetic

    def fail(self, why: str) -> SpecError:
        """Return a SpecError that names the node of the file; the caller raises it."""
        return SpecError(f"{self.node}: {why}")

    def output_edge(self, shape: Shape, kind: EdgeType, dtype: str = "", output: int = 0) -> Edge:
        """Return an output edge; its type in the file is the first input's type, unless `dtype` is given."""
        return Edge(self.node.outputs[output], shape, dtype or self.inputs[0].dtype, kind)

    def numbers(self, values: Sequence[Any]) -> list[Quantity]:
        """Return the numbers that the values of the inputs stand for."""
        return [self.maths.number(v, e) for v, e in zip(values, self.inputs, strict=True)]

    def integers(self) -> list[Integers] | None:
        """Return the types of the inputs if all carry integers; else None."""
        types = [e.type for e in self.inputs if isinstance(e.type, Integers)]
        return types if len(types) == len(self.inputs) else None

    def in_floats(self) -> Site:
        """Return the site in the arithmetic of the file's types, which is exact for integers."""
        return replace(self, arithmetic=self.maths.of_integers or Floats(self.reference))


Infer = Callable[[Site], list[Edge]]
Run = Callable[..., Sequence[Any]]
Meaning = Callable[..., Quantity]
Monotone = bool | Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True)
class Operator:
    """A row of the table of operators.

    Args:
        name: The name that nodes have.
        kind: How elements of the output depend on the input: one on one ("elementwise", or "step" for step functions),
            by place alone ("move"), on windows ("pool"), on sums ("product"), or on whole axes ("reduction").
        infer: Returns the output edges, with shapes and types; SpecError if the inputs do not fit.
        run: Returns the output values for input values, in the site's arithmetic: the definition of the operator.
        monotone: Whether each output is monotone in the first input while the others stay the same; a function of the
            attributes if these decide.
        meaning: Returns the result's numbers for a site and the numbers of its inputs, if the operator is elementwise.
    """

    name: str
    kind: Dependence
    infer: Infer
    run: Run
    monotone: Monotone = False
    meaning: Meaning | None = None

    def is_monotone(self, node: Node) -> bool:
        """Return whether a node of this operator is monotone in its first input."""
        return self.monotone(node.attributes) if callable(self.monotone) else self.monotone


def broadcast_shape(site: Site) -> Shape:
    """Return the shape that the inputs broadcast to; SpecError if there is none."""
    try:
        return np.broadcast_shapes(*(e.shape for e in site.inputs))
    except ValueError:
        shapes = ", ".join(f"{e.name} {e.shape}" for e in site.inputs)
        raise site.fail(f"shapes do not broadcast: {shapes}") from None


Grid = Callable[[Site], Integers | None]
"""Returns the type of results that are integers; None if they are real numbers."""


def elementwise_operator(
    name: str,
    meaning: Meaning,
    *,
    monotone: Monotone = False,
    grid: Grid | None = None,
    on_integers: Meaning | None = None,
    floats: bool = False,
) -> Operator:
    """Return the row of an elementwise operator: `meaning(site, *numbers)`.

    Where `grid` returns a type, `on_integers(site, *integers)` is run on integers instead, with the same meaning.
    """

    def infer(site: Site) -> list[Edge]:
        shape = broadcast_shape(site)
        dtype = site.get("dtype") or common_dtype(site)
        if floats and not is_float(dtype):
            raise site.fail(f"its input is {dtype}; it needs floats")
        if not is_float(dtype):
            return [site.output_edge(shape, _integer_range(site, meaning, dtype), dtype)]
        kind = grid(site) if grid else None
        return [site.output_edge(shape, kind if kind and floats_hold(site, kind, dtype) else Reals(), dtype)]

    def run(site: Site, *values: Any) -> list[Any]:
        (edge,) = site.outputs
        if not isinstance(edge.type, Integers):
            return [site.maths.cast(meaning(site, *site.numbers(values)), edge.dtype)]
        if edge.is_float:
            return [(on_integers or meaning)(site, *values)]
        plain = site.in_floats()
        return [wrap(plain.maths.cast(meaning(plain, *plain.numbers(values)), "int64"), edge.dtype)]

    return Operator(name, "elementwise", infer, run, monotone, meaning)


def for_integers(rule: Callable[[list[Integers]], Integers | None]) -> Grid:
    """Return the rule for inputs that all carry integers."""
    return lambda site: rule(kinds) if (kinds := site.integers()) else None


_PROMOTED = {"float16", "float32", "float64"}
"""Types that some exporters mix, against the standard: the result has the widest one."""


def common_dtype(site: Site) -> str:
    """Return the type of the result: the type of all inputs, or the widest float type; SpecError for other mixtures."""
    types = dict.fromkeys(e.dtype for e in site.inputs)
    if len(types) > 1 and not types.keys() <= _PROMOTED:
        raise site.fail(f"its inputs are of types {', '.join(types)}; they must have one type")
    return max(types, key=lambda name: numpy_type(name).itemsize)


def floats_hold(site: Site, kind: Integers, dtype: str) -> bool:
    """Return whether operations on integers give the results of the reference, whose floats must hold each integer."""
    if site.reference == "exact":
        return max(-kind.least, kind.most) < 1 << 53
    most = {"float16": 1 << 11, "bfloat16": 1 << 8, "float64": 1 << 53}.get(dtype, 1 << 24)
    return kind.is_plain and max(-kind.least, kind.most) <= most


def wrap(values: Tensor, dtype: str) -> Tensor:
    """Return int64 integers wrapped to a type of the file."""
    low, high = limits(dtype)
    integers = values.astype(np.int64)
    if dtype in ("int64", "uint64") or not integers.size or (integers.min() >= low and integers.max() <= high):
        return integers
    return (integers - low) % (high - low + 1) + low


def _limits(kind: Integers, value: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the limits of an input's integers: its own numbers if it is a constant that varies along one axis at most.

    Example: the bias 5, -900 of two channels moves sums from 0 to 10 to 5 .. 15 and -900 .. -890, not to -900 .. 15.
    """
    if value is None or value.size != max(value.shape, default=1):
        return kind.low, kind.high
    return value, value


def _integer_range(site: Site, meaning: Meaning, dtype: str) -> Integers:
    """Return the range of results of integers of the file; the whole range of the type if they may wrap."""
    kinds = site.integers()
    if kinds is None or dtype == "bool":
        return full_range(dtype)
    limits = map(_limits, kinds, site.given)
    ranges = [Interval(*((end - k.zero) * k.scale for end in ends)) for k, ends in zip(kinds, limits, strict=True)]
    results = meaning(replace(site, arithmetic=Intervals()), *ranges)
    low, high = np.floor(results.low), np.ceil(results.high)
    every = full_range(dtype)
    if not (np.isfinite(low).all() and np.isfinite(high).all()) or low.min() < every.least or high.max() > every.most:
        return every
    return Integers.between(low.astype(np.int64), high.astype(np.int64))

"""The interpreter of graphs: it computes every edge of a network for given inputs, in the arithmetic of its reference.

It defines the results that compiled networks are compared with, and depends on the table of operators alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.arithmetic import Arithmetic, Interval, WideIntervals, arithmetic_of, interval
from bitsynth.graph.exact_numbers import ExactNumbers
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.operators import TABLE, Site
from bitsynth.graph.types import Integers, Tensor


@dataclass(frozen=True, eq=False)
class Evaluation(Mapping[str, Any]):
    """The values of every edge of a run, by name.

    The value of an edge of type `Integers` is its integers in int64. Of type `Reals` it is floats of the file's type
    or, in exact arithmetic, intervals.
    """

    graph: Graph
    by_name: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name)

    def __len__(self) -> int:
        return len(self.by_name)

    def floats(self, name: str) -> Tensor:
        """Return the numbers of an edge, rounded to its type in the file; of integer types the integers."""
        return to_floats(self.graph, name, self.by_name[name])

    def outputs(self) -> tuple[Tensor, ...]:
        """Return the numbers of each output of the network."""
        return tuple(self.floats(name) for name in self.graph.outputs)


def run(graph: Graph, inputs: Mapping[str, Tensor]) -> Evaluation:
    """Evaluate `graph` for inputs by name; an input that carries integers may be given as integers or as their numbers.

    SpecError for inputs that are missing, of another shape, or not on an input's grid.
    """
    return Evaluation(graph, dict(stream(graph, inputs)))


def stream(graph: Graph, inputs: Mapping[str, Tensor]) -> Iterator[tuple[str, Any]]:
    """Yield each edge with its value, in an order in which nodes can run.

    A value is dropped after the last node that may read it, so that memory holds only edges that are alive at once.
    SpecError as from `run`; MemoryError that names the node.
    """
    if unknown := sorted(set(inputs) - set(graph.inputs)):
        raise SpecError(f"no input {', '.join(unknown)}; the network's are {', '.join(graph.inputs)}")
    values: dict[str, Any] = dict(graph.constants)
    yield from values.items()
    for name in graph.inputs:
        if name not in inputs:
            raise SpecError(f"input {name} is missing")
        with _naming_too_large(f"input {name}", graph, [name]):
            values[name] = _check_input(graph, name, np.asarray(inputs[name]))
        yield name, values[name]
    exact = ExactNumbers(graph, values, graph.makers)
    unread = _find_last_reads(graph)
    for place, node in enumerate(graph.nodes):
        with _naming_too_large(str(node), graph, node.outputs):
            outputs = dict(zip(node.outputs, evaluate(node, graph, values, exact), strict=True))
        values.update(outputs)
        yield from outputs.items()
        for name in unread.get(place, ()):
            values.pop(name, None)


@contextmanager
def _naming_too_large(what: str, graph: Graph, names: Sequence[str]) -> Iterator[None]:
    """Raise MemoryErrors inside with `what`, and the shapes of the edges `names` that do not fit."""
    try:
        yield
    except MemoryError:
        shapes = ", ".join(str(graph.edges[name].shape) for name in names)
        raise MemoryError(f"{what}: the reference's values of shape {shapes} do not fit") from None


def _find_last_reads(graph: Graph) -> dict[int, list[str]]:
    """Return for each node, by its place, the edges that no later node reads.

    A number that exact arithmetic leaves open is computed again from the inputs of its node, so these stay alive as
    long as the number does: in `x -> Mul -> y -> Quant`, where y is real, x is read until after Quant.
    """
    last: dict[str, int] = {}
    for place in reversed(range(len(graph.nodes))):
        node = graph.nodes[place]
        again = [
            last[name] for name in node.outputs if name in last and not isinstance(graph.edges[name].type, Integers)
        ]
        for name in node.inputs:
            last[name] = max([last.get(name, place), *again])
    unread: dict[int, list[str]] = {}
    for name, place in last.items():
        unread.setdefault(place, []).append(name)
    return unread


def to_floats(graph: Graph, name: str, value: Any) -> Tensor:
    """Return the numbers of a value of the edge `name`, rounded to its type of the file; integers as they are."""
    edge = graph.edges[name]
    if isinstance(edge.type, Integers) and not edge.is_float:
        integers = value - edge.type.zero.astype(np.int64)
        return arithmetic_of("onnx").cast(integers, edge.dtype)  # type: ignore[no-any-return]
    number = arithmetic_of(graph.reference).number(value, edge)
    if isinstance(number, Interval):
        number = (number.low + number.high) / 2
    return arithmetic_of("onnx").cast(number, edge.dtype)  # type: ignore[no-any-return]


def enclose(graph: Graph, inputs: Mapping[str, Interval], end: str) -> Interval:
    """Return the integers that bound the edge `end` for all inputs in intervals of integers.

    SpecError if the reference is not exact, or if integers are made from integers by a node that is not monotone.
    """
    if graph.reference != "exact":
        raise SpecError("intervals are of real arithmetic alone")
    values: dict[str, Any] = {**graph.constants, **inputs}
    exact = ExactNumbers(graph, values, graph.makers)
    for node in graph.nodes:
        wide = [name for name in node.inputs if isinstance(values[name], Interval)]
        output = graph.edges[node.outputs[0]]
        if wide and isinstance(output.type, Integers) and TABLE[node.op].kind == "elementwise":
            values[output.name] = _evaluate_ends(node, graph, values, exact, wide)
        else:
            arithmetic = WideIntervals() if wide else None
            values.update(zip(node.outputs, evaluate(node, graph, values, exact, arithmetic), strict=True))
    return interval(values[end])


def _evaluate_ends(
    node: Node, graph: Graph, values: Mapping[str, Any], exact: ExactNumbers, wide: list[str]
) -> Interval:
    """Return the interval of integers that a monotone node makes from one interval: it is run on both ends."""
    (name,) = wide if len(wide) == 1 else ("",)
    if not name or not TABLE[node.op].is_monotone(node) or not isinstance(graph.edges[name].type, Integers):
        raise SpecError(f"{node} makes integers of intervals, and is not known to be monotone")
    (one,), (other,) = (
        evaluate(node, graph, {**values, name: end}, exact) for end in (values[name].low, values[name].high)
    )
    return Interval(np.minimum(one, other), np.maximum(one, other))


def evaluate(
    node: Node, graph: Graph, values: Mapping[str, Any], exact: ExactNumbers, arithmetic: Arithmetic | None = None
) -> list[Any]:
    """Return the values of a node's outputs."""
    site = Site(
        node,
        graph.edges_of(node.inputs),
        tuple(graph.constants.get(name) for name in node.inputs),
        graph.reference,
        graph.edges_of(node.outputs),
        arithmetic or arithmetic_of(graph.reference),
        lambda mask: [exact.where(name, mask) for name in node.inputs],
    )
    try:
        with np.errstate(all="ignore"):
            return list(TABLE[node.op].run(site, *(values[name] for name in node.inputs)))
    except ArithmeticError as error:
        raise SpecError(f"{node}: {error}; exact arithmetic has real numbers alone: name another reference") from None


def _check_input(graph: Graph, name: str, value: Tensor) -> Any:
    """Return the value of an input, integers or floats; SpecError if shape or numbers do not fit."""
    edge = graph.edges[name]
    if value.shape != edge.shape:
        raise SpecError(f"input {name} has shape {value.shape}, not {edge.shape}")
    kind = edge.type
    if not isinstance(kind, Integers):
        return _require_reals(graph, name, arithmetic_of("onnx").cast(value, edge.dtype))
    with np.errstate(all="ignore"):
        integers, off = value, value.astype(np.int64) != value
        if edge.is_float and value.dtype.kind not in "iu":
            value = arithmetic_of("onnx").cast(value, edge.dtype).astype(np.float64)
            integers = kind.nearest(value)
            off = ~kind.stands_for(integers, value, edge.dtype)
        off |= ~((integers >= kind.low) & (integers <= kind.high) & ((integers - kind.low) % kind.step == 0))
    if off.any():
        raise SpecError(f"input {edge.name}: {value[off].flat[0]:g} is {_describe_codes(kind)}")
    return integers.astype(np.int64)


def _describe_codes(kind: Integers) -> str:
    """Return the text of an error about a number that is not on an input's grid."""
    every = f"the integers {kind.least} to {kind.most}" + (f", every {kind.step}nd" if kind.step > 1 else "")
    return f"not one of {every}" + ("" if kind.is_plain else f", times {kind.scale.flat[0]:g}")


def _require_reals(graph: Graph, name: str, value: Tensor) -> Tensor:
    """Return an input of real numbers; SpecError if the reference is exact and it holds infinity or NaN."""
    if graph.reference == "exact" and not np.isfinite(value.astype(np.float64)).all():
        raise SpecError(f"input {name} holds infinity or NaN, which are no real numbers; name another reference")
    return value

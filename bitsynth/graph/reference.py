"""The interpreter of graphs: every edge of a network for given inputs, by its named reference.

It knows the table of operators and nothing of passes, layers or C.
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

    Of type `Integers` they are integers in int64; of `Reals` floats of the file's type or, of exact arithmetic,
    intervals.
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
        """The numbers on an edge, rounded to its type of the file; integers of an integer type as they are."""
        return to_floats(self.graph, name, self.by_name[name])

    def outputs(self) -> tuple[Tensor, ...]:
        """The numbers on each output of the network."""
        return tuple(self.floats(name) for name in self.graph.outputs)


def run(graph: Graph, inputs: Mapping[str, Tensor]) -> Evaluation:
    """Every edge of `graph` for `inputs` by name: numbers or, where an input carries integers, these.

    SpecError for inputs that are missing, of another shape, or not on an input's grid.
    """
    return Evaluation(graph, dict(stream(graph, inputs)))


def stream(graph: Graph, inputs: Mapping[str, Tensor]) -> Iterator[tuple[str, Any]]:
    """Yield each edge with its value, as `run` has them, in an order in which nodes can run.

    A value is dropped after the last node that may read it, so that memory is that of the edges alive at once.
    SpecError as of `run`; MemoryError that names the node.
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
    exact = ExactNumbers(graph, values, graph.makers())
    unread = _find_last_reads(graph)
    for place, node in enumerate(graph.nodes):
        with _naming_too_large(str(node), graph, node.outputs):
            made = dict(zip(node.outputs, evaluate(node, graph, values, exact), strict=True))
        values.update(made)
        yield from made.items()
        for name in unread.get(place, ()):
            values.pop(name, None)


@contextmanager
def _naming_too_large(what: str, graph: Graph, names: Sequence[str]) -> Iterator[None]:
    """Name `what` needs memory for the edges `names` if there is too little."""
    try:
        yield
    except MemoryError:
        shapes = ", ".join(str(graph.edges[name].shape) for name in names)
        raise MemoryError(f"{what}: the reference's values of shape {shapes} do not fit") from None


def _find_last_reads(graph: Graph) -> dict[int, list[str]]:
    """Find for each node, by its place, the edges that no later node reads.

    A number that exact arithmetic leaves open is computed again from the inputs of its node, so these are alive as
    long as the number is: in `x -> Mul -> y -> Quant`, where y is real, x is read until after Quant.
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
        made = value - edge.type.zero.astype(np.int64)
        return arithmetic_of("onnx").typed(made, edge.dtype)  # type: ignore[no-any-return]
    number = arithmetic_of(graph.reference).number(value, edge)
    if isinstance(number, Interval):
        number = (number.low + number.high) / 2
    return arithmetic_of("onnx").typed(number, edge.dtype)  # type: ignore[no-any-return]


def enclose(graph: Graph, inputs: Mapping[str, Interval], end: str) -> Interval:
    """Integers of the edge `end` between which they are for all inputs, by name, in intervals of integers.

    By real arithmetic: SpecError for another reference, or if nodes that turn back make integers of integers.
    """
    if graph.reference != "exact":
        raise SpecError("intervals are of real arithmetic alone")
    values: dict[str, Any] = {**graph.constants, **inputs}
    exact = ExactNumbers(graph, values, graph.makers())
    for node in graph.nodes:
        wide = [name for name in node.inputs if isinstance(values[name], Interval)]
        made = graph.edges[node.outputs[0]]
        if wide and isinstance(made.type, Integers) and TABLE[node.op].kind == "elementwise":
            values[made.name] = _evaluate_ends(node, graph, values, exact, wide)
        else:
            arithmetic = WideIntervals() if wide else None
            values.update(zip(node.outputs, evaluate(node, graph, values, exact, arithmetic), strict=True))
    return interval(values[end])


def _evaluate_ends(
    node: Node, graph: Graph, values: Mapping[str, Any], exact: ExactNumbers, wide: list[str]
) -> Interval:
    """The integers between those that a monotone node makes of the ends of one interval of integers."""
    (name,) = wide if len(wide) == 1 else ("",)
    if not name or not TABLE[node.op].monotone or not isinstance(graph.edges[name].type, Integers):
        raise SpecError(f"{node} makes integers of intervals, and may turn back")
    (one,), (other,) = (
        evaluate(node, graph, {**values, name: end}, exact) for end in (values[name].low, values[name].high)
    )
    return Interval(np.minimum(one, other), np.maximum(one, other))


def evaluate(
    node: Node, graph: Graph, values: Mapping[str, Any], exact: ExactNumbers, arithmetic: Arithmetic | None = None
) -> list[Any]:
    """What a node makes of the values of its inputs."""
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
    edge = graph.edges[name]
    if value.shape != edge.shape:
        raise SpecError(f"input {name} has shape {value.shape}, not {edge.shape}")
    kind = edge.type
    if not isinstance(kind, Integers):
        return _require_reals(graph, name, arithmetic_of("onnx").typed(value, edge.dtype))
    with np.errstate(all="ignore"):
        made, off = value, value.astype(np.int64) != value
        if edge.is_float and value.dtype.kind not in "iu":
            value = arithmetic_of("onnx").typed(value, edge.dtype).astype(np.float64)
            made = kind.nearest(value)
            off = ~kind.stands_for(made, value, edge.dtype)
        off |= ~((made >= kind.low) & (made <= kind.high) & ((made - kind.low) % kind.step == 0))
    if off.any():
        raise SpecError(f"input {edge.name}: {value[off].flat[0]:g} is {_describe_codes(kind)}")
    return made.astype(np.int64)


def _describe_codes(kind: Integers) -> str:
    every = f"the integers {kind.least} to {kind.most}" + (f", every {kind.step}nd" if kind.step > 1 else "")
    return f"not one of {every}" + ("" if kind.is_plain else f", times {kind.scale.flat[0]:g}")


def _require_reals(graph: Graph, name: str, value: Tensor) -> Tensor:
    if graph.reference == "exact" and not np.isfinite(value.astype(np.float64)).all():
        raise SpecError(f"input {name} holds infinity or NaN, which are no real numbers; name another reference")
    return value

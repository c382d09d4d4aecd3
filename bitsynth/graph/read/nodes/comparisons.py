"""Greater, Less, Equal, Not, And, Or, Where: comparisons, and the quantizers that trainers write with them.

A bit is 1 where a comparison holds. Of p > q it is p - q rounded up and clipped to 0 and 1, of p >= q it is p - q
rounded down, plus 1, clipped to 0 and 1. In IEEE floats, too, the sign of p - q equals the result of the comparison.

Patterns found here:

* A binarizer, such as Where(x > 0, 1, -1) or (x > 0) * 2 - 1, becomes a bipolar quantizer.
* The number of thresholds that x exceeds becomes one multi_threshold. HWGQ writes it as nested choices, Where(x > c,
  3 s, Where(x > b, 2 s, Where(x > a, s, 0))); others write the sum of x > a, x > b and x > c.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Node
from bitsynth.graph.read.file_node import (
    BOOL,
    MAX_FOLDING_ERROR,
    FileNode,
    Quantizer,
    Reader,
    cast_to,
    compare_with_zero,
)
from bitsynth.graph.types import Edge, Integers, Shape, Tensor, cast


def find_bit(graph: GraphBuilder, edge: str) -> Node | None:
    """Return the node that makes a bit, past casts of it; None if the edge is not a bit."""
    while cast := graph.maker(edge, "cast"):
        edge = cast.inputs[0]
    quantizer = graph.maker(edge, "quantize")
    return quantizer if quantizer and quantizer.attributes.get("dtype") == BOOL else None


def is_strict(bit: Node) -> bool:
    """Return whether a bit tests for > 0, not for >= 0."""
    return bool(bit.attributes["rounding"] == "CEIL")


def add_bipolar(node: FileNode, edge: str, dtype: str, scale: float = 1.0) -> str:
    """Add a bipolar quantizer: `scale` where a number is 0 or more, else -`scale`."""
    grid = np.asarray(scale, np.float64), np.zeros(())
    return Quantizer("BIPOLAR", (-1, 1), 1.0, 0).add(node, edge, grid=grid, dtype=dtype)


def add_signed_choice(node: FileNode, bit: Node, number: float, dtype: str) -> str:
    """Add the choice of `number` where a bit is 1, else -`number`, as bipolar codes.

    A bipolar quantizer gives 1 for 0. So for a strict bit, p > q, the quantizer reads q - p, and its result is negated.
    """
    swaps = is_strict(bit)
    edge = negate(node, bit.inputs[0]) if swaps else bit.inputs[0]
    chosen = add_bipolar(node, edge, dtype, abs(number))
    return node.add("neg", chosen) if swaps != (number < 0) else chosen


def negate(node: FileNode, edge: str) -> str:
    """Return the edge of -x; of p - q it is q - p, and of -x it is x."""
    if difference := node.graph.maker(edge, "sub"):
        return node.add("sub", *difference.inputs[::-1])
    negation = node.graph.maker(edge, "neg")
    return negation.inputs[0] if negation else node.add("neg", edge)


def match_twice_less_one(node: FileNode, op: str, edge: str, other: str) -> str | None:
    """Return the edge of bipolar codes that a file writes as bit * 2 - 1; None of other sums and differences."""
    doubled, number = node.graph.maker(edge, "mul"), node.graph.value(other)
    if doubled is None or number is None or number.size != 1 or float(number.reshape(())) != (1 if op == "sub" else -1):
        return None
    factor, bit = node.graph.value(doubled.inputs[1]), find_bit(node.graph, doubled.inputs[0])
    if bit is None or factor is None or factor.size != 1 or float(factor.reshape(())) != 2:
        return None
    same = node.graph.edges[bit.inputs[0]].shape == np.broadcast_shapes(node.shape(0), node.shape(1))
    return add_signed_choice(node, bit, 1.0, node.input(0).dtype) if same else None


@dataclass(frozen=True)
class _ThresholdCount:
    """The number of thresholds that the number on an edge exceeds (or, unless `strict`, reaches), times `step`."""

    edge: str
    thresholds: tuple[float, ...]
    strict: bool
    step: float

    def fits(self, other: _ThresholdCount) -> bool:
        """Return whether both count thresholds of one edge by the same comparison."""
        return (self.edge, self.strict) == (other.edge, other.strict)


def match_threshold_sum(node: FileNode, a: str, b: str) -> str | None:
    """Return the edge of one multi_threshold for the sum of two counts of thresholds of one number; else None."""
    one, other = (_find_threshold_count(node.graph, edge) for edge in (a, b))
    if one is None or other is None or not one.fits(other) or one.step != other.step:
        return None
    if not _has_shape_and_dtype(node, one.edge, np.broadcast_shapes(node.shape(0), node.shape(1)), node.input(0).dtype):
        return None
    return _add_multi_threshold(
        node, _ThresholdCount(one.edge, one.thresholds + other.thresholds, one.strict, one.step)
    )


def match_threshold_choice(node: FileNode, condition: str, level: str, otherwise: str) -> str | None:
    """Return the edge of one multi_threshold for Where(x > t, level, otherwise); else None.

    `otherwise` counts thresholds of x that are at most t, and `level` is the next level after its highest one.
    """
    top, below, value = (
        _find_threshold_count(node.graph, condition),
        _find_threshold_count(node.graph, otherwise),
        node.graph.value(level),
    )
    if top is None or below is None or not top.fits(below) or value is None or value.size != 1:
        return None
    number = float(value.reshape(()))
    count = len(below.thresholds) + 1
    if not _has_shape_and_dtype(node, top.edge, node.shape(), node.input(1).dtype):
        return None
    error = abs(count * below.step - number)
    if min(top.thresholds) < max(below.thresholds) or not error <= MAX_FOLDING_ERROR * abs(number):
        return None
    return _add_multi_threshold(
        node, _ThresholdCount(top.edge, below.thresholds + top.thresholds, top.strict, below.step)
    )


def _has_shape_and_dtype(node: FileNode, edge: str, sizes: Shape, dtype: str) -> bool:
    """Return whether an edge has these sizes, and whether its type and the file node's type are float32."""
    source = node.graph.edges[edge]
    return source.shape == sizes and source.dtype == dtype == "float32"


def _add_multi_threshold(node: FileNode, counted: _ThresholdCount) -> str:
    """Add the nodes that count thresholds; return the edge of the count, times the step.

    multi_threshold counts the t with x >= t. Strict comparisons: #(x > t) = n - #(-x >= -t) for n thresholds t, so -x
    is compared with -t, `least` is -n, and the result is negated.
    """
    sign, count = (-1 if counted.strict else 1), len(counted.thresholds)
    edge = node.add("neg", counted.edge) if counted.strict else counted.edge
    count_edge = node.add(
        "multi_threshold",
        edge,
        thresholds=np.sort(sign * np.array([counted.thresholds])),
        axis=min(1, len(node.graph.edges[edge].shape) - 1),
        step=1,
        least=-count if counted.strict else 0,
        out_scale=counted.step,
    )
    return node.add("neg", count_edge) if counted.strict else count_edge


def _find_threshold_count(graph: GraphBuilder, edge: str) -> _ThresholdCount | None:
    """Return the count of thresholds that an edge holds; None if it holds anything else."""
    if scaled := graph.maker(edge, "mul"):
        value, inner = graph.value(scaled.inputs[1]), _find_threshold_count(graph, scaled.inputs[0])
        if inner is None or value is None or value.size != 1 or not 0 < float(value.reshape(())) < np.inf:
            return None
        return _ThresholdCount(inner.edge, inner.thresholds, inner.strict, inner.step * float(value.reshape(())))
    return _count_of_bit(graph, edge) or _count_of_multi_threshold(graph, edge)


def _count_of_bit(graph: GraphBuilder, edge: str) -> _ThresholdCount | None:
    """Return a bit as a count of one threshold; None of other edges."""
    bit = find_bit(graph, edge)
    if bit is None or not graph.edges[bit.inputs[0]].shape:
        return None
    difference = graph.maker(bit.inputs[0], "sub")
    value = graph.value(difference.inputs[1]) if difference else None
    if difference is None or graph.edges[difference.inputs[0]].shape != graph.edges[bit.inputs[0]].shape:
        return _ThresholdCount(bit.inputs[0], (0.0,), is_strict(bit), 1.0)
    if value is None or value.size != 1:
        return None
    return _ThresholdCount(difference.inputs[0], (float(value.reshape(())),), is_strict(bit), 1.0)


def _count_of_multi_threshold(graph: GraphBuilder, edge: str) -> _ThresholdCount | None:
    """Return the count of thresholds whose nodes `_add_multi_threshold` added; None of other edges."""
    negation = graph.maker(edge, "neg")
    row = graph.maker(negation.inputs[0] if negation else edge, "multi_threshold")
    if row is None or row.attributes["thresholds"].shape[0] != 1 or row.attributes["step"] != 1:
        return None
    thresholds, source = row.attributes["thresholds"][0], row.inputs[0]
    if row.attributes["least"] != (-thresholds.size if negation else 0):
        return None
    if negation:
        before = graph.maker(source, "neg")
        if before is None:
            return None
        thresholds, source = -thresholds, before.inputs[0]
    return _ThresholdCount(
        source, tuple(thresholds.tolist()), bool(negation), float(np.max(row.attributes["out_scale"]))
    )


_MAX_WHOLE = {"float32": 1 << 24, "float64": 1 << 53}
"""A type of floats holds all integers up to this, so comparisons of them are exact."""


def _comparison_reader(function: Callable[[Tensor, Tensor], Tensor], *, strict: bool, swapped: bool) -> Reader:
    """Return the reader of p > q, or p >= q unless `strict`; of p < q or p <= q if `swapped`.

    Args:
        function: The comparison of arrays, for constants.
        strict: Whether equal numbers give 0.
        swapped: Whether p is the second input.
    """

    def read(node: FileNode) -> tuple[str, ...]:
        if (folded := _fold_constants(node, function)) is not None:
            return (folded,)
        p, q = _operands_in_floats(node)[:: -1 if swapped else 1]
        return (compare_with_zero(node, _subtract(node, p, q), strict=strict),)

    return read


def _fold_constants(node: FileNode, function: Callable[..., Tensor]) -> str | None:
    """Return the edge of `function` of the inputs, in floats of the file, if all come from constants; else None."""
    inputs = [node.graph.in_floats(node.edge(k)) for k in range(len(node.inputs))]
    values = [value for value in inputs if value is not None]
    return node.constant(function(*values)) if len(values) == len(inputs) else None


def _operands_in_floats(node: FileNode) -> tuple[str, str]:
    """Return the operands of a comparison in floats that hold both; SpecError if no type of floats does.

    Integers are clipped to just beyond a constant operand, which changes no comparison: x < 5 of int64 has the result
    of clip(x, 4, 6) < 5, whose numbers float32 holds.
    """
    edges = [_clip_around(node, index) for index in (0, 1)]
    operands = [node.graph.edges[edge] for edge in edges]
    if all(operand.is_float for operand in operands):
        return edges[0], edges[1]
    for dtype, limit in _MAX_WHOLE.items():
        if all(_farthest_from_zero(operand) <= limit for operand in operands):
            return cast_to(node, edges[0], dtype), cast_to(node, edges[1], dtype)
    raise node.fail(f"compares two {operands[0].dtype} at run time; cast them to int32 or to floats before")


def _farthest_from_zero(edge: Edge) -> float:
    """Return the largest distance of an edge's integers from 0; infinity if it holds no integers."""
    return max(-edge.type.least, edge.type.most) if isinstance(edge.type, Integers) else math.inf


def _clip_around(node: FileNode, index: int) -> str:
    """Return an operand of a comparison: integers of a wide range clipped around the other one, if that is constant."""
    edge, other = node.input(index), node.graph.in_floats(node.edge(1 - index))
    wide = not edge.is_float and _farthest_from_zero(edge) > _MAX_WHOLE["float32"]
    if not wide or other is None or not other.size or node.graph.in_floats(edge.name) is not None:
        return edge.name
    assert isinstance(edge.type, Integers)
    low = max(math.floor(other.min()) - 1, edge.type.least)
    high = min(math.ceil(other.max()) + 1, edge.type.most)
    if low > high:
        return edge.name
    return node.add("clip", edge.name, low=low, high=high)


def _subtract(node: FileNode, p: str, q: str) -> str:
    """Return the edge of p - q; p itself if q is the number 0."""
    zeros = [value is not None and value.shape == () and value == 0 for value in map(node.graph.value, (p, q))]
    if zeros[1]:
        return p
    return node.add("neg", q) if zeros[0] else node.add("sub", p, q)


def _read_where(node: FileNode) -> tuple[str, ...]:
    """Read Where: the second input where the first holds, else the third."""
    dtype = node.input(1).dtype
    folded = _fold_constants(node, lambda mask, a, b: cast(np.where(mask.astype(bool), a, b), dtype))
    return (
        folded
        or _match_uniform_choice(node)
        or _match_extreme(node)
        or _match_bipolar(node)
        or _match_threshold_step(node)
        or _blend(node),
    )


def _broadcast_shape(node: FileNode) -> tuple[int, ...]:
    """Return the shape to which the three inputs of Where broadcast."""
    return np.broadcast_shapes(*(node.shape(k) for k in range(3)))


def _match_uniform_choice(node: FileNode) -> str | None:
    """Return the chosen edge, if a constant condition chooses the same input everywhere; else None."""
    mask = node.graph.in_floats(node.edge(0))
    if mask is None or not mask.size or not (mask == mask.flat[0]).all():
        return None
    index, sizes = (1 if mask.flat[0] else 2), _broadcast_shape(node)
    edge = node.edge(index)
    return edge if node.shape(index) == sizes else node.add("expand", edge, sizes=sizes)


def _match_extreme(node: FileNode) -> str | None:
    """Return the edge of max(p, q) or min(p, q), if a comparison of p and q chooses between them; else None."""
    bit = find_bit(node.graph, node.edge(0))
    difference = node.graph.maker(bit.inputs[0], "sub") if bit else None
    chosen = node.edge(1), node.edge(2)
    if difference is None or set(chosen) != set(difference.inputs):
        return None
    a, b = chosen if chosen[0] not in node.graph.constants else chosen[::-1]
    return node.add("max" if chosen == difference.inputs else "min", a, b)


def _match_bipolar(node: FileNode) -> str | None:
    """Return the edge of bipolar codes, if a bit chooses between a number and its negative; else None."""
    bit, (a, b) = find_bit(node.graph, node.edge(0)), (node.graph.value(node.edge(k)) for k in (1, 2))
    if bit is None or a is None or b is None or a.size != 1 or b.size != 1 or not node.input(1).is_float:
        return None
    number = float(a.reshape(()))
    if number != -float(b.reshape(())) or not 0 < abs(number) < np.inf or node.shape() != _broadcast_shape(node):
        return None
    return add_signed_choice(node, bit, number, node.input(1).dtype)


def _match_threshold_step(node: FileNode) -> str | None:
    """Return the edge of a count of thresholds to which Where adds a level, in exact arithmetic; else None."""
    if node.graph.reference != "exact" or node.shape() != _broadcast_shape(node) or node.shape(2) != node.shape():
        return None
    return match_threshold_choice(node, *(node.edge(k) for k in range(3)))


def _blend(node: FileNode) -> str:
    """Return the edge of bit * a + (1 - bit) * b."""
    dtype = node.input(1).dtype
    bits, parts = cast_to(node, node.edge(0), dtype), []
    for index in (1, 2):
        edge = node.edge(index)
        value = node.graph.value(edge)
        if value is not None and not np.isfinite(value.astype(np.float64)).all():
            raise node.fail("chooses an infinity at run time; let it choose a finite number")
        if index == 2:
            bits = node.add("sub", node.constant(cast(1, dtype)), bits)
        if value is None or value.any():
            parts.append(node.add("mul", *((edge, bits) if value is None else (bits, edge))))
    if not parts:
        return node.constant(cast(np.zeros(_broadcast_shape(node)), dtype))
    total = node.add("add", *parts) if len(parts) == 2 else parts[0]
    return (
        total
        if node.graph.edges[total].shape == _broadcast_shape(node)
        else node.add("expand", total, sizes=_broadcast_shape(node))
    )


def _read_not(node: FileNode) -> tuple[str, ...]:
    if (folded := _fold_constants(node, lambda value: ~value.astype(bool))) is not None:
        return (folded,)
    bit = find_bit(node.graph, node.edge(0))
    if bit is not None:
        return (compare_with_zero(node, negate(node, bit.inputs[0]), strict=not is_strict(bit)),)
    return (cast_to(node, node.add("sub", node.constant(np.ones((), np.int32)), _to_int32(node, 0)), BOOL),)


def _to_int32(node: FileNode, index: int) -> str:
    """Return an input cast to int32."""
    return cast_to(node, node.edge(index), "int32")


def _logical_reader(op: str, function: Callable[[Tensor, Tensor], Tensor]) -> Reader:
    """Return the reader of And or Or: of bits as int32 the minimum or the maximum."""

    def read(node: FileNode) -> tuple[str, ...]:
        folded = _fold_constants(node, lambda a, b: function(a.astype(bool), b.astype(bool)))
        return (folded or cast_to(node, node.add(op, _to_int32(node, 0), _to_int32(node, 1)), BOOL),)

    return read


def _read_equal(node: FileNode) -> tuple[str, ...]:
    """Read Equal: p >= q and q >= p."""
    if (folded := _fold_constants(node, np.equal)) is not None:
        return (folded,)
    p, q = _operands_in_floats(node)
    bits = [
        cast_to(node, compare_with_zero(node, _subtract(node, *operands), strict=False), "int32")
        for operands in ((p, q), (q, p))
    ]
    return (cast_to(node, node.add("min", *bits), BOOL),)


READERS: dict[str, Reader] = {
    "And": _logical_reader("min", np.logical_and),
    "Equal": _read_equal,
    "Greater": _comparison_reader(np.greater, strict=True, swapped=False),
    "GreaterOrEqual": _comparison_reader(np.greater_equal, strict=False, swapped=False),
    "Less": _comparison_reader(np.less, strict=True, swapped=True),
    "LessOrEqual": _comparison_reader(np.less_equal, strict=False, swapped=True),
    "Not": _read_not,
    "Or": _logical_reader("max", np.logical_or),
    "Where": _read_where,
}

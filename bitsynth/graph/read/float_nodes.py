"""Nodes of standard ONNX that are done element by element, and sums and maxima along axes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np

from bitsynth.graph.read.bits import BOOL, bit
from bitsynth.graph.read.fake_quantizers import constant_scale, meant_by_sum
from bitsynth.graph.read.layouts import of_first, to_last
from bitsynth.graph.read.quantizer import Quantizer
from bitsynth.graph.read.source import FileNode
from bitsynth.graph.read.tensors import dtype_of
from bitsynth.graph.types import Integers, Reals, Tensor, cast, is_float
from bitsynth.graph.types import limits as limits_of

Reader = Callable[[FileNode], tuple[str, ...]]
"""Adds what a node means to the graph; the edges of its outputs."""
Reducer = Callable[[FileNode, str, tuple[int, ...]], str]
"""Adds what makes one number of those of an edge along axes, which stay as 1; its edge."""


def unary(op: str, **defaults: Any) -> Reader:
    """Of one input, attributes by name with their defaults."""

    def read(node: FileNode) -> tuple[str, ...]:
        return (node.add(op, node.edge(0), **{k: float(node.get(k, v)) for k, v in defaults.items()}),)

    return read


def fold(joined: Callable[[FileNode, str, str], str]) -> Reader:
    """Of several inputs, joined two by two."""

    def read(node: FileNode) -> tuple[str, ...]:
        edges = [node.edge(k) for k in range(len(node.inputs))]
        return (reduce(partial(joined, node), edges),)

    return read


def _binary(op: str) -> Reader:
    def read(node: FileNode) -> tuple[str, ...]:
        a, b = constant_scale(node, op, _aligned(node, 0), _aligned(node, 1))
        constants = node.graph.constants
        if op in ("add", "mul") and a in constants and b not in constants:
            a, b = b, a
        return (meant_by_sum(node, op, a, b) or node.add(op, a, b),)

    return read


def _aligned(node: FileNode, index: int) -> str:
    """An operand; before version 7, axes of the second start at `axis`."""
    edge = node.edge(index)
    if index == 1 and node.version < 7 and node.get("broadcast"):
        first, second = node.shape(0), node.shape(1)
        axis = node.get("axis", len(first) - len(second))
        edge = node.reshape(edge, second + (1,) * (len(first) - axis - len(second)))
    return edge


def _add(node: FileNode) -> tuple[str, ...]:
    """Return the sum; that of a DORY network, which Quantlab marks by attributes, requantizes operands and result.

    DORY's kernels cut each operand as its type is, with a sign or without, and the sum to `out_n_levels`. The sum has a
    sign if `out_signed` says so, or else if an operand has one.
    """
    if not any(f"{part}_rq" in node.attributes for part in ("in1", "in2", "out")):
        return _binary("add")(node)
    signed = [_is_signed(node, k) for k in range(2)]
    operands = [_requantized(node, node.edge(k), f"in{k + 1}", signed[k]) for k in range(2)]
    total = node.add("add", *operands)
    has_sign = bool(node.get("out_signed", any(signed)))
    if node.get("out_rq"):
        return (_requantized(node, total, "out", has_sign),)
    low, high = _levels(node, "out", has_sign)
    return (node.add("clip", total, low=low, high=high),)


def _is_signed(node: FileNode, index: int) -> bool:
    """Return whether an operand of DORY's sum has a sign: whether its integers may be below 0, or else `out_signed`."""
    kind = node.of(index).type
    return kind.least < 0 if isinstance(kind, Integers) else bool(node.get("out_signed", 0))


def _levels(node: FileNode, part: str, signed: bool) -> tuple[int, int]:
    """Return the least and the greatest integer of an operand or the result of DORY's sum."""
    levels = int(node.get(f"{part}_n_levels", 256))
    low = -(levels // 2) if signed else 0
    return low, low + levels - 1


def _requantized(node: FileNode, edge: str, part: str, signed: bool) -> str:
    """Return an operand or the result of DORY's sum: times `mul`, plus `add`, shifted right and cut to `n_levels`.

    The shift rounds down: who exports the network has added half a step to `add` where it is to round.
    """
    if not node.get(f"{part}_rq"):
        return edge
    mul, add, shift = (int(node.get(f"{part}_{name}", value)) for name, value in (("mul", 1), ("add", 0), ("shift", 0)))
    return rescaled(node, edge, np.asarray(mul), np.asarray(add), 1 << shift, _levels(node, part, signed))


def rescaled(
    node: FileNode, edge: str, mul: Tensor, add: Tensor, divisor: int, limits: tuple[int, int], *, half: bool = False
) -> str:
    """Return the edge of floor((x * mul + add) / divisor), or of that plus 1/2 rounded down, within limits.

    It is what integers of at most 53 bits give under every reference: floats are multiplied in float64.

    Args:
        node: The node of the file that says so.
        edge: The integers x, in a float or an integer type of the file.
        mul: Whole numbers that broadcast to the edge.
        add: Whole numbers that broadcast to the edge.
        divisor: A power of two.
        limits: The least and the greatest result.
        half: Whether the quotient is rounded to the nearest integer, of two the greater one, and not down.
    """
    dtype = node.graph.edges[edge].dtype
    wide = "float64" if is_float(dtype) else "int64"
    x = edge if is_float(dtype) else cast_to(node, edge, wide)
    product = node.add("mul", x, node.constant(cast(mul, wide)))
    total = node.add("add", product, node.constant(cast(add, wide)))
    holds = is_float(dtype) or (limits_of(dtype)[0] <= limits[0] and limits[1] <= limits_of(dtype)[1])
    return Quantizer("FLOOR", limits, float(divisor), 0.5 if half else 0.0, zero_first=True).add(
        node, total, real="float64", dtype=dtype if holds else "int32"
    )


def _log(node: FileNode) -> tuple[str, ...]:
    """Of constants alone: scales that are powers of 2 are made so."""
    value = node.graph.in_floats(node.edge(0))
    if value is None or not (value > 0).all():
        raise node.fail("only logarithms of constants above 0 are compiled; cut the network before it")
    return (node.like(np.log(value)),)


_added = fold(lambda node, a, b: node.add("add", a, b))


def _mean(node: FileNode) -> tuple[str, ...]:
    (total,) = _added(node)
    return (node.add("div", total, node.like(float(len(node.inputs)))),)


def _power(node: FileNode) -> tuple[str, ...]:
    base, exponents = (node.graph.in_floats(node.edge(k)) for k in range(2))
    found = np.unique(node.value(1, "the exponent")).astype(np.float64)
    if found.size == 1 and (made := power_of(node, node.edge(0), float(abs(found[0])))) is not None:
        return (made if found[0] > 0 else node.add("div", node.like(1.0), made),)
    if base is not None and exponents is not None and (base > 0).all():
        return (node.like(np.power(base.astype(np.float64), exponents)),)
    raise node.fail(
        f"exponents {found[:3]} are not understood; known: 0.25, 0.5, 0.75, 1, 1.5, 2, 3 and 4, and less than 0"
    )


def power_of(node: FileNode, edge: str, exponent: float) -> str | None:
    """The numbers of an edge to a power above 0, a whole one or of roots of roots; None if it is none of these."""
    if exponent in (0.5, 1.0, 2.0, 3.0, 4.0):
        return node.add("power", edge, exponent=exponent)
    for roots in (2, 4):
        if exponent * roots in (1.0, 3.0):
            root = edge
            for _ in range(roots // 2):
                root = node.add("sqrt", root)
            return node.add("power", root, exponent=exponent * roots)
    return None


def _reciprocal(node: FileNode) -> tuple[str, ...]:
    return (node.add("div", node.like(1.0), node.edge(0)),)


def _cast(node: FileNode) -> tuple[str, ...]:
    return (cast_to(node, node.edge(0), dtype_of(node.get("to"))),)


def _cast_like(node: FileNode) -> tuple[str, ...]:
    return (cast_to(node, node.edge(0), node.of(1).dtype),)


def cast_to(node: FileNode, edge: str, dtype: str) -> str:
    """The numbers in another type of the file: floats become integers by cutting off toward 0, truth is not to be 0."""
    found = node.graph.edges[edge].dtype
    if found == dtype:
        return edge
    if dtype == BOOL and not _is_truth(node.graph.edges[edge].type):
        return bit(node, node.add("abs", cast_to(node, edge, found if is_float(found) else "float32")), strict=True)
    if is_float(found) and not is_float(dtype):
        whole = node.add("round", edge, rounding="DOWN")
        return node.add("cast", whole, dtype=dtype)
    return node.add("cast", edge, dtype=dtype)


def _is_truth(kind: Integers | Reals) -> bool:
    """Whether numbers are 0 and 1 alone."""
    return isinstance(kind, Integers) and kind.is_plain and kind.least >= 0 and kind.most <= 1


def batch_norm(node: FileNode) -> tuple[str, ...]:
    """Batch norm of channels along the second axis, by what was learned of them."""
    if node.get("training_mode") or (node.version >= 14 and any(node.outputs[1:])):
        raise node.fail("is in training mode; export the network for inference")
    shape = (-1, *[1] * (len(node.shape()) - 2))
    sizes = tuple(node.shape()[1] if n == -1 else n for n in shape)
    parameters = [node.reshape(node.edge(k), (1, *sizes)) for k in range(1, 5)]
    return (node.add("batch_norm", node.edge(0), *parameters, epsilon=float(node.get("epsilon", 1e-5))),)


def mean_of(node: FileNode, edge: str, axes: tuple[int, ...]) -> str:
    """The mean along axes, which stay as 1."""
    count = int(np.prod([node.graph.edges[edge].shape[k] for k in axes]))
    return node.add("div", node.add("reduce_sum", edge, axes=axes), node.like(count))


def sum_of_sizes(node: FileNode, edge: str, axes: tuple[int, ...]) -> str:
    """Sums of absolute numbers along axes, which stay as 1."""
    return node.add("reduce_sum", node.add("abs", edge), axes=axes)


def sum_of_squares(node: FileNode, edge: str, axes: tuple[int, ...]) -> str:
    """Sums of squares along axes, which stay as 1."""
    return node.add("reduce_sum", node.add("mul", edge, edge), axes=axes)


def length(node: FileNode, edge: str, axes: tuple[int, ...]) -> str:
    """The roots of sums of squares along axes, which stay as 1."""
    return node.add("sqrt", sum_of_squares(node, edge, axes))


def _folded(op: str) -> Reducer:
    return lambda node, edge, axes: node.add(op, edge, axes=axes)


def _reduce(fold: Reducer) -> Reader:
    def read(node: FileNode) -> tuple[str, ...]:
        asked = node.numbers("axes", 1)
        if not asked and node.get("noop_with_empty_axes"):
            return (node.edge(0),)
        axes = node.axes(asked or None)
        edge, places, is_turned = of_first(node, node.edge(0), axes)
        made = fold(node, edge, places)
        return (_kept(node, to_last(node, made) if is_turned else made, axes),)

    return read


def _kept(node: FileNode, edge: str, axes: tuple[int, ...]) -> str:
    """The reduced axes as 1, or left out without `keepdims`."""
    if node.get("keepdims", 1):
        return edge
    return node.reshape(edge, tuple(n for k, n in enumerate(node.shape()) if k not in axes))


def _global_pool(fold: Reducer) -> Reader:
    return lambda node: (fold(node, node.edge(0), tuple(range(2, len(node.shape())))),)


def _arg(largest: bool) -> Reader:
    def read(node: FileNode) -> tuple[str, ...]:
        axis = node.axis(node.get("axis", 0))
        last = bool(node.get("select_last_index", 0))
        _, places = node.graph.add_all(
            "rank", node.edge(0), source=str(node), count=2, axis=axis, k=1, largest=largest, last=last
        )
        return (_kept(node, places, (axis,)),)

    return read


def _top_k(node: FileNode) -> tuple[str, ...]:
    count = (node.numbers("k", 1) or [1])[0]
    axis, largest = node.axis(node.get("axis", -1)), bool(node.get("largest", 1))
    return node.graph.add_all(
        "rank", node.edge(0), source=str(node), count=2, axis=axis, k=count, largest=largest, last=False
    )


def _same(node: FileNode) -> tuple[str, ...]:
    return (node.edge(0),)


def _dropout(node: FileNode) -> tuple[str, ...]:
    if any(node.outputs[1:]) or (node.has(2) and node.value(2, "training_mode").any()):
        raise node.fail("is in training mode, or its mask is used; export the network for inference")
    return (node.edge(0),)


READERS: dict[str, Reader] = {
    "Abs": unary("abs"),
    "Add": _add,
    "ArgMax": _arg(True),
    "ArgMin": _arg(False),
    "BatchNormalization": batch_norm,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Div": _binary("div"),
    "Dropout": _dropout,
    "GlobalAveragePool": _global_pool(mean_of),
    "GlobalMaxPool": _global_pool(_folded("reduce_max")),
    "Identity": _same,
    "Log": _log,
    "Mean": _mean,
    "Mul": _binary("mul"),
    "Neg": unary("neg"),
    "Pow": _power,
    "Reciprocal": _reciprocal,
    "ReduceL1": _reduce(sum_of_sizes),
    "ReduceL2": _reduce(length),
    "ReduceMax": _reduce(_folded("reduce_max")),
    "ReduceMean": _reduce(mean_of),
    "ReduceMin": _reduce(_folded("reduce_min")),
    "ReduceSum": _reduce(_folded("reduce_sum")),
    "ReduceSumSquare": _reduce(sum_of_squares),
    "Sqrt": unary("sqrt"),
    "Sub": _binary("sub"),
    "Sum": _added,
    "TopK": _top_k,
}

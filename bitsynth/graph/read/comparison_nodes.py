"""Nodes that compare, and choose by that: binarizers of trainers, and limits that are learned, are written so."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitsynth.graph.read import ladders
from bitsynth.graph.read.bits import BOOL, bit, is_strict, maker_of_bit, negative, signed
from bitsynth.graph.read.float_nodes import Reader, cast_to
from bitsynth.graph.read.source import FileNode
from bitsynth.graph.types import Integers, Tensor, cast

_WIDEST = 1 << 24
"""The greatest integer that is compared in float32."""


def _compare(function: Callable[[Tensor, Tensor], Tensor], *, strict: bool, turned: bool) -> Reader:
    """Of two inputs p and q whether p > q, or p >= q unless `strict`; the other way round if `turned`."""

    def read(node: FileNode) -> tuple[str, ...]:
        if (folded := _of_constants(node, function)) is not None:
            return (folded,)
        p, q = (_compared(node, k) for k in ((1, 0) if turned else (0, 1)))
        return (bit(node, _difference(node, p, q), strict=strict),)

    return read


def _of_constants(node: FileNode, function: Callable[..., Tensor]) -> str | None:
    """The result of constants, or of what is made of them in the file's floats; None of any others."""
    found = [node.graph.in_floats(node.edge(k)) for k in range(len(node.inputs))]
    values = [value for value in found if value is not None]
    return node.constant(function(*values)) if len(values) == len(found) else None


def _compared(node: FileNode, index: int) -> str:
    """An operand in floats, which hold its integers."""
    edge = node.of(index)
    if edge.is_float:
        return edge.name
    kind = edge.type
    if not isinstance(kind, Integers) or max(-kind.least, kind.most) > _WIDEST:
        raise node.fail(f"compares {edge.dtype} at run time; cast it to float before")
    return cast_to(node, edge.name, "float32")


def _difference(node: FileNode, p: str, q: str) -> str:
    """p - q; p itself if q is the number 0."""
    zeros = [value is not None and value.shape == () and value == 0 for value in map(node.graph.value, (p, q))]
    if zeros[1]:
        return p
    return node.add("neg", q) if zeros[0] else node.add("sub", p, q)


def _where(node: FileNode) -> tuple[str, ...]:
    """The second input where the first holds, else the third."""
    dtype = node.of(1).dtype
    folded = _of_constants(node, lambda mask, a, b: cast(np.where(mask.astype(bool), a, b), dtype))
    return (folded or _fixed(node) or _extreme(node) or _bipolar(node) or _step(node) or _mixed(node),)


def _sizes(node: FileNode) -> tuple[int, ...]:
    return np.broadcast_shapes(*(node.shape(k) for k in range(3)))


def _fixed(node: FileNode) -> str | None:
    """The choice, if it is the same everywhere."""
    mask = node.graph.in_floats(node.edge(0))
    if mask is None or not mask.size or not (mask == mask.flat[0]).all():
        return None
    index, sizes = (1 if mask.flat[0] else 2), _sizes(node)
    edge = node.edge(index)
    return edge if node.shape(index) == sizes else node.add("expand", edge, sizes=sizes)


def _extreme(node: FileNode) -> str | None:
    """The greater or the lesser of what is compared, if that is chosen."""
    made = maker_of_bit(node.graph, node.edge(0))
    taken = node.graph.maker(made.inputs[0], "sub") if made else None
    chosen = node.edge(1), node.edge(2)
    if taken is None or set(chosen) != set(taken.inputs):
        return None
    a, b = chosen if chosen[0] not in node.graph.constants else chosen[::-1]
    return node.add("max" if chosen == taken.inputs else "min", a, b)


def _bipolar(node: FileNode) -> str | None:
    """Bipolar codes, if of one number that or its negative is chosen."""
    made, (a, b) = maker_of_bit(node.graph, node.edge(0)), (node.graph.value(node.edge(k)) for k in (1, 2))
    if made is None or a is None or b is None or a.size != 1 or b.size != 1 or not node.of(1).is_float:
        return None
    number = float(a.reshape(()))
    if number != -float(b.reshape(())) or not 0 < abs(number) < np.inf or node.shape() != _sizes(node):
        return None
    return signed(node, made, number, node.of(1).dtype)


def _step(node: FileNode) -> str | None:
    """The next step of a ladder, in exact arithmetic."""
    if node.graph.reference != "exact" or node.shape() != _sizes(node) or node.shape(2) != node.shape():
        return None
    return ladders.chosen(node, *(node.edge(k) for k in range(3)))


def _mixed(node: FileNode) -> str:
    """Each choice times the bit that chooses it, added."""
    dtype = node.of(1).dtype
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
        return node.constant(cast(np.zeros(_sizes(node)), dtype))
    made = node.add("add", *parts) if len(parts) == 2 else parts[0]
    return made if node.graph.edges[made].shape == _sizes(node) else node.add("expand", made, sizes=_sizes(node))


def _not(node: FileNode) -> tuple[str, ...]:
    if (folded := _of_constants(node, lambda value: ~value.astype(bool))) is not None:
        return (folded,)
    made = maker_of_bit(node.graph, node.edge(0))
    if made is not None:
        return (bit(node, negative(node, made.inputs[0]), strict=not is_strict(made)),)
    return (cast_to(node, node.add("sub", node.constant(np.ones((), np.int32)), _whole(node, 0)), BOOL),)


def _whole(node: FileNode, index: int) -> str:
    return cast_to(node, node.edge(index), "int32")


def _logical(op: str, function: Callable[[Tensor, Tensor], Tensor]) -> Reader:
    def read(node: FileNode) -> tuple[str, ...]:
        folded = _of_constants(node, lambda a, b: function(a.astype(bool), b.astype(bool)))
        return (folded or cast_to(node, node.add(op, _whole(node, 0), _whole(node, 1)), BOOL),)

    return read


def _equal(node: FileNode) -> tuple[str, ...]:
    """Neither p > q nor q > p."""
    if (folded := _of_constants(node, np.equal)) is not None:
        return (folded,)
    p, q = _compared(node, 0), _compared(node, 1)
    bits = [cast_to(node, bit(node, _difference(node, *two), strict=False), "int32") for two in ((p, q), (q, p))]
    return (cast_to(node, node.add("min", *bits), BOOL),)


READERS: dict[str, Reader] = {
    "And": _logical("min", np.logical_and),
    "Equal": _equal,
    "Greater": _compare(np.greater, strict=True, turned=False),
    "GreaterOrEqual": _compare(np.greater_equal, strict=False, turned=False),
    "Less": _compare(np.less, strict=True, turned=True),
    "LessOrEqual": _compare(np.less_equal, strict=False, turned=True),
    "Not": _not,
    "Or": _logical("max", np.logical_or),
    "Where": _where,
}

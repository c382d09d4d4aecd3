"""Elementwise arithmetic, casts, rounding, clipping and activations of standard ONNX; Softmax.

Trainers with quantizers of their own (DoReFa, PACT, LSQ) export Div, Clip, Round and Mul. Rounding of numbers between
known bounds, or before a Clip, has few results, so it becomes a quantizer. Weights that are computed from constants are
rounded as the floats of the file are, as exporters do it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np

from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.operators.rounding import ROUNDINGS
from bitsynth.graph.read.file import dtype_of
from bitsynth.graph.read.file_node import FileNode, Reader, cast_to
from bitsynth.graph.read.nodes.comparisons import add_bipolar
from bitsynth.graph.read.nodes.quantized import is_dory_add, read_dory_add
from bitsynth.graph.read.nodes.quantizer_recovery import (
    MAX_LIMIT,
    add_quantizer_within,
    constant_number,
    find_bounds,
    fold_constant_scale,
    match_cut_rounding,
    match_sum_idiom,
)
from bitsynth.graph.types import Integers


def unary_reader(op: str, **defaults: Any) -> Reader:
    """Return the reader of an operator of one input; `defaults` are its attributes by name."""

    def read(node: FileNode) -> tuple[str, ...]:
        return (node.add(op, node.edge(0), **{k: float(node.get(k, v)) for k, v in defaults.items()}),)

    return read


def folding_reader(joined: Callable[[FileNode, str, str], str]) -> Reader:
    """Return the reader of an operator of several inputs, which `joined` joins two at a time."""

    def read(node: FileNode) -> tuple[str, ...]:
        edges = [node.edge(k) for k in range(len(node.inputs))]
        return (reduce(partial(joined, node), edges),)

    return read


def _binary_reader(op: str) -> Reader:
    """Return the reader of an arithmetic operator; idioms of trainers are recognized in it."""

    def read(node: FileNode) -> tuple[str, ...]:
        a, b = fold_constant_scale(node, op, _align_operand(node, 0), _align_operand(node, 1))
        constants = node.graph.constants
        if op in ("add", "mul") and a in constants and b not in constants:
            a, b = b, a
        return (match_sum_idiom(node, op, a, b) or node.add(op, a, b),)

    return read


def _align_operand(node: FileNode, index: int) -> str:
    """Return an operand; before version 7 the axes of the second one start at `axis` of the first."""
    edge = node.edge(index)
    if index == 1 and node.version < 7 and node.get("broadcast"):
        first, second = node.shape(0), node.shape(1)
        axis = node.get("axis", len(first) - len(second))
        edge = node.reshape(edge, second + (1,) * (len(first) - axis - len(second)))
    return edge


def _read_add(node: FileNode) -> tuple[str, ...]:
    return read_dory_add(node) if is_dory_add(node) else _binary_reader("add")(node)


def _read_log(node: FileNode) -> tuple[str, ...]:
    """Read Log of constants: exporters compute scales that are powers of 2 with it."""
    value = node.graph.in_floats(node.edge(0))
    if value is None or not (value > 0).all():
        raise node.fail("only logarithms of constants above 0 are compiled; cut the network before it")
    return (node.constant_like(np.log(value)),)


_read_sum = folding_reader(lambda node, a, b: node.add("add", a, b))


def _read_mean(node: FileNode) -> tuple[str, ...]:
    """Read Mean: the sum of all inputs over their number."""
    (total,) = _read_sum(node)
    return (node.add("div", total, node.constant_like(float(len(node.inputs)))),)


def _read_pow(node: FileNode) -> tuple[str, ...]:
    """Read Pow with a constant exponent; of constants with any exponents."""
    base, exponents = (node.graph.in_floats(node.edge(k)) for k in range(2))
    distinct = np.unique(node.value(1, "the exponent")).astype(np.float64)
    power = add_power(node, node.edge(0), float(abs(distinct[0]))) if distinct.size == 1 else None
    if power is not None:
        return (power if distinct[0] > 0 else node.add("div", node.constant_like(1.0), power),)
    if base is not None and exponents is not None and (base > 0).all():
        return (node.constant_like(np.power(base.astype(np.float64), exponents)),)
    raise node.fail(
        f"exponents {distinct[:3]} are not compiled; known: 0.25, 0.5, 0.75, 1, 1.5, 2, 3 and 4, and their negatives"
    )


def add_power(node: FileNode, edge: str, exponent: float) -> str | None:
    """Return the edge of a power; None unless the exponent is 1/4, 1/2, 3/4, 1, 3/2, 2, 3 or 4."""
    if exponent in (0.5, 1.0, 2.0, 3.0, 4.0):
        return node.add("power", edge, exponent=exponent)
    for roots in (2, 4):
        if exponent * roots in (1.0, 3.0):
            root = edge
            for _ in range(roots // 2):
                root = node.add("sqrt", root)
            return node.add("power", root, exponent=exponent * roots)
    return None


def _read_reciprocal(node: FileNode) -> tuple[str, ...]:
    return (node.add("div", node.constant_like(1.0), node.edge(0)),)


def _read_cast(node: FileNode) -> tuple[str, ...]:
    return (cast_to(node, node.edge(0), dtype_of(node.get("to"))),)


def _read_cast_like(node: FileNode) -> tuple[str, ...]:
    return (cast_to(node, node.edge(0), node.input(1).dtype),)


def _read_identity(node: FileNode) -> tuple[str, ...]:
    return (node.edge(0),)


def _read_dropout(node: FileNode) -> tuple[str, ...]:
    if any(node.outputs[1:]) or (node.has(2) and node.value(2, "training_mode").any()):
        raise node.fail("is in training mode, or its mask is used; export the network for inference")
    return (node.edge(0),)


def _rounding_reader(mode: str) -> Reader:
    """Return the reader of a rounding operator, which is a quantizer if bounds of its input are known."""

    def read(node: FileNode) -> tuple[str, ...]:
        if not node.input(0).is_float or isinstance(node.input(0).type, Integers):
            return (node.add("round", node.edge(0), rounding=mode),)
        weights = node.graph.in_floats(node.edge(0))
        edge = node.edge(0) if weights is None else node.constant(weights)
        low, high = (ROUNDINGS[mode](end) for end in find_bounds(node.graph, edge))
        limits = float(low.min()), float(high.max())
        if not (-MAX_LIMIT <= limits[0] and limits[1] <= MAX_LIMIT):
            return (node.add("round", edge, rounding=mode),)
        return (add_quantizer_within(node, edge, mode, limits),)

    return read


def _read_clip(node: FileNode) -> tuple[str, ...]:
    """Read Clip, which becomes part of a quantizer if it clips rounded numbers."""
    limits = [_limit(node, name, k) for k, name in ((1, "min"), (2, "max"))]
    low, high = (None if x is None or not np.isfinite(x) else x for x in limits)
    if not node.input(0).is_float:
        low, high = (None if x is None else int(x) for x in (low, high))
    if low is None and high is None:
        return (node.edge(0),)
    quantized = match_cut_rounding(node, node.edge(0), low, high) if node.input(0).is_float else None
    return (quantized or node.add("clip", node.edge(0), low=low, high=high),)


def _extreme_reader(op: str) -> Reader:
    """Return the reader of Max or Min, which becomes part of a quantizer if it clips rounded numbers."""
    return folding_reader(lambda node, a, b: _match_cut(node, op, a, b) or node.add(op, a, b))


def _match_cut(node: FileNode, op: str, a: str, b: str) -> str | None:
    """Return the edge of a quantizer, if one operand clips rounded numbers of the other at a constant; else None.

    Return the other operand, if it is clipped at an infinity, which no number is beyond.
    """
    neutral = math.inf if op == "min" else -math.inf
    for edge, other in ((a, b), (b, a)):
        value, shape = node.graph.value(other), node.graph.edges[edge].shape
        if value is not None and (value == neutral).all() and np.broadcast_shapes(value.shape, shape) == shape:
            return edge
        limit = constant_number(node.graph, other)
        if limit is not None and len(node.graph.edges[other].shape) <= len(node.graph.edges[edge].shape):
            return match_cut_rounding(node, edge, *((None, limit) if op == "min" else (limit, None)))
    return None


def _limit(node: FileNode, name: str, index: int) -> float | int | None:
    """Return a limit of Clip, an attribute of older versions or an input; None if it is left out."""
    if name in node.attributes:
        return float(node.attributes[name])
    if not node.has(index):
        return None
    value = node.value(index, name)
    if value.size != 1:
        raise node.fail(f"{name} must be one number")
    number: float | int = value.reshape(-1)[0].item()
    return number


def _read_sign(node: FileNode) -> tuple[str, ...]:
    """Read Sign: the next whole number away from 0, clipped to -1 and 1; bipolar if its input is never 0."""
    if not node.input(0).is_float:
        raise node.fail(f"its input is {node.input(0).dtype}; it needs floats")
    value = node.graph.in_floats(node.edge(0))
    if value is not None:
        return (node.constant(np.sign(value)),)
    if _is_never_zero(node.graph, node.edge(0)):
        return (add_bipolar(node, node.edge(0), node.input(0).dtype),)
    return (add_quantizer_within(node, node.edge(0), "UP", (-1, 1)),)


def _is_never_zero(graph: GraphBuilder, edge: str) -> bool:
    """Return whether an edge is integers plus a number that is not whole: Larq writes so to make the sign of 0 1."""
    more = graph.maker(edge, "add") or graph.maker(edge, "sub")
    number = graph.value(more.inputs[1]) if more else None
    if more is None or number is None or not (number != np.rint(number)).all():
        return False
    kind = graph.edges[more.inputs[0]].type
    return isinstance(kind, Integers) and kind.is_plain


def _formula_reader(formula: Callable[[FileNode, str], str]) -> Reader:
    """Return the reader of a function that is composed of several nodes.

    Of float16 and bfloat16 it is computed in float32 and rounded once at the end, as runtimes do.
    """

    def read(node: FileNode) -> tuple[str, ...]:
        narrow = node.input(0).dtype
        if narrow in ("float16", "bfloat16"):
            node = replace(node, inputs=tuple(node.add("cast", e, dtype="float32") for e in node.inputs if e))
        return (cast_to(node, formula(node, node.edge(0)), narrow),)

    return read


def _add_elu(node: FileNode, x: str) -> str:
    """Return x above 0, and alpha * (e**x - 1) below."""
    return _join_at_zero(node, x, node.add("mul", _add_expm1_below_zero(node, x), _float_attribute(node, "alpha", 1.0)))


def _add_celu(node: FileNode, x: str) -> str:
    """Return x above 0, and alpha * (e**(x / alpha) - 1) below."""
    alpha = _float_attribute(node, "alpha", 1.0)
    return _join_at_zero(node, x, node.add("mul", _add_expm1_below_zero(node, node.add("div", x, alpha)), alpha))


def _add_selu(node: FileNode, x: str) -> str:
    """Return gamma * x above 0, and gamma * alpha * (e**x - 1) below."""
    alpha = _float_attribute(node, "alpha", 1.67326319217681884765625)
    unscaled = _join_at_zero(node, x, node.add("mul", _add_expm1_below_zero(node, x), alpha))
    return node.add("mul", unscaled, _float_attribute(node, "gamma", 1.05070102214813232421875))


def _add_expm1_below_zero(node: FileNode, x: str) -> str:
    """Return e**x - 1 for x below 0, and 0 above."""
    return node.add("sub", node.add("exp", node.add("min", x, node.constant_like(0.0))), node.constant_like(1.0))


def _join_at_zero(node: FileNode, x: str, below: str) -> str:
    """Return x above 0, and `below` below 0, where it is 0 above."""
    return node.add("add", node.add("relu", x), below)


def _add_gelu(node: FileNode, x: str) -> str:
    """Return x * (1 + erf(x / sqrt(2))) / 2, or its approximation by tanh if the attribute asks for it."""
    if node.get("approximate", "none") == "tanh":
        cube = node.add("mul", node.add("power", x, exponent=3.0), node.definition_constant(0.044715))
        inner = node.add("mul", node.add("add", x, cube), node.definition_constant(math.sqrt(2 / math.pi)))
        gate = node.add("tanh", inner)
    else:
        gate = node.add("erf", node.add("div", x, node.definition_constant(math.sqrt(2))))
    return node.add("mul", node.add("mul", x, node.constant_like(0.5)), node.add("add", gate, node.constant_like(1.0)))


def _add_mish(node: FileNode, x: str) -> str:
    """Return x * tanh(softplus(x))."""
    return node.add("mul", x, node.add("tanh", _add_softplus(node, x)))


def _add_softplus(node: FileNode, x: str) -> str:
    """Return log(1 + e**x) as max(x, 0) + log(1 + e**-|x|), whose power does not overflow."""
    small = node.add("exp", node.add("neg", node.add("abs", x)))
    return node.add("add", node.add("relu", x), node.add("log", node.add("add", small, node.constant_like(1.0))))


def _add_softsign(node: FileNode, x: str) -> str:
    """Return x / (1 + |x|)."""
    return node.add("div", x, node.add("add", node.add("abs", x), node.constant_like(1.0)))


def _add_swish(node: FileNode, x: str) -> str:
    """Return x * sigmoid(alpha * x)."""
    alpha = node.get("alpha", 1.0)
    inner = x if alpha == 1 else node.add("mul", x, node.constant_like(alpha))
    return node.add("mul", x, node.add("sigmoid", inner))


def _add_prelu(node: FileNode, x: str) -> str:
    """Return x above 0, and the second input times x below; slopes that are constant are an attribute."""
    shape, spread = node.shape(), (1,) * (len(node.shape()) - len(node.shape(1))) + node.shape(1)
    if node.edge(1) in node.graph.constants and all(n in (1, m) for n, m in zip(spread, shape, strict=True)):
        return node.add("leaky_relu", x, alpha=node.value(1, "slope").reshape(spread))
    return node.add(
        "add", node.add("relu", x), node.add("mul", node.add("min", x, node.constant_like(0.0)), node.edge(1))
    )


def _read_hard_swish(node: FileNode) -> tuple[str, ...]:
    return (node.add("hard_swish", node.edge(0), alpha=1 / 6),)


def _read_softmax(node: FileNode) -> tuple[str, ...]:
    return (node.add("softmax", node.edge(0), axes=softmax_axes(node, node.version)),)


def _add_log_softmax(node: FileNode, x: str) -> str:
    """Return x - max(x) - log(sum of e**(x - max(x))), along the axes of the node."""
    axes = softmax_axes(node, node.version)
    less = node.add("sub", x, node.add("reduce_max", x, axes=axes))
    return node.add("sub", less, node.add("log", node.add("reduce_sum", node.add("exp", less), axes=axes)))


def softmax_axes(node: FileNode, version: int) -> tuple[int, ...]:
    """Return the axes of Softmax: one since version 13 of ONNX, before that `axis` and all after it."""
    axis = node.axis(node.get("axis", -1 if version >= 13 else 1))
    return (axis,) if version >= 13 else tuple(range(axis, len(node.shape())))


def _float_attribute(node: FileNode, name: str, otherwise: float) -> str:
    """Return the edge of an attribute as a number of the input's type."""
    return node.constant_like(node.get(name, otherwise))


read_gelu = _formula_reader(_add_gelu)
"""Reads GELU, by erf or by its approximation with tanh."""
read_swish = _formula_reader(_add_swish)
"""Reads Swish: x * sigmoid(alpha * x)."""


READERS: dict[str, Reader] = {
    "Abs": unary_reader("abs"),
    "Add": _read_add,
    "Cast": _read_cast,
    "CastLike": _read_cast_like,
    "Ceil": _rounding_reader("CEIL"),
    "Celu": _formula_reader(_add_celu),
    "Clip": _read_clip,
    "Div": _binary_reader("div"),
    "Dropout": _read_dropout,
    "Elu": _formula_reader(_add_elu),
    "Erf": unary_reader("erf"),
    "Exp": unary_reader("exp"),
    "Floor": _rounding_reader("FLOOR"),
    "Gelu": read_gelu,
    "HardSigmoid": unary_reader("hard_sigmoid", alpha=0.2, beta=0.5),
    "HardSwish": _read_hard_swish,
    "Identity": _read_identity,
    "LeakyRelu": unary_reader("leaky_relu", alpha=0.01),
    "Log": _read_log,
    "LogSoftmax": _formula_reader(_add_log_softmax),
    "Max": _extreme_reader("max"),
    "Mean": _read_mean,
    "Min": _extreme_reader("min"),
    "Mish": _formula_reader(_add_mish),
    "Mul": _binary_reader("mul"),
    "Neg": unary_reader("neg"),
    "PRelu": _formula_reader(_add_prelu),
    "Pow": _read_pow,
    "Reciprocal": _read_reciprocal,
    "Relu": unary_reader("relu"),
    "Round": _rounding_reader("ROUND"),
    "Selu": _formula_reader(_add_selu),
    "Sigmoid": unary_reader("sigmoid"),
    "Sign": _read_sign,
    "Softmax": _read_softmax,
    "Softplus": _formula_reader(_add_softplus),
    "Softsign": _formula_reader(_add_softsign),
    "Sqrt": unary_reader("sqrt"),
    "Sub": _binary_reader("sub"),
    "Sum": _read_sum,
    "Swish": read_swish,
    "Tanh": unary_reader("tanh"),
}

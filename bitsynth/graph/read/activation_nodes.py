"""Nodes of standard ONNX that are activations: functions of one number, by those of the table, and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from bitsynth.graph.read.float_nodes import Reader, cast_to, unary
from bitsynth.graph.read.source import FileNode


def _written(formula: Callable[[FileNode, str], str]) -> Reader:
    """The reader of a function that is written in others: of narrow floats in float32, rounded once at the end."""

    def read(node: FileNode) -> tuple[str, ...]:
        narrow = node.of(0).dtype
        if narrow in ("float16", "bfloat16"):
            node = replace(node, inputs=tuple(node.add("cast", e, dtype="float32") for e in node.inputs if e))
        return (cast_to(node, formula(node, node.edge(0)), narrow),)

    return read


def _elu(node: FileNode, x: str) -> str:
    """x above 0, alpha * (e**x - 1) below."""
    return _with_below(node, x, node.add("mul", _below(node, x), _number(node, "alpha", 1.0)))


def _celu(node: FileNode, x: str) -> str:
    """x above 0, alpha * (e**(x / alpha) - 1) below."""
    alpha = _number(node, "alpha", 1.0)
    return _with_below(node, x, node.add("mul", _below(node, node.add("div", x, alpha)), alpha))


def _selu(node: FileNode, x: str) -> str:
    """gamma * x above 0, gamma * alpha * (e**x - 1) below."""
    alpha = _number(node, "alpha", 1.67326319217681884765625)
    made = _with_below(node, x, node.add("mul", _below(node, x), alpha))
    return node.add("mul", made, _number(node, "gamma", 1.05070102214813232421875))


def _below(node: FileNode, x: str) -> str:
    """e**x - 1, 0 above 0."""
    return node.add("sub", node.add("exp", node.add("min", x, node.like(0.0))), node.like(1.0))


def _with_below(node: FileNode, x: str, below: str) -> str:
    return node.add("add", node.add("relu", x), below)


def _gelu(node: FileNode, x: str) -> str:
    """x * (1 + erf(x / root of 2)) / 2, or with tanh as it is approximated."""
    if node.get("approximate", "none") == "tanh":
        cube = node.add("mul", node.add("power", x, exponent=3.0), node.defined(0.044715))
        inner = node.add("mul", node.add("add", x, cube), node.defined(math.sqrt(2 / math.pi)))
        gate = node.add("tanh", inner)
    else:
        gate = node.add("erf", node.add("div", x, node.defined(math.sqrt(2))))
    return node.add("mul", node.add("mul", x, node.like(0.5)), node.add("add", gate, node.like(1.0)))


def _mish(node: FileNode, x: str) -> str:
    return node.add("mul", x, node.add("tanh", _softplus(node, x)))


def _softplus(node: FileNode, x: str) -> str:
    """log(1 + e**x), which is that of -|x| and max(x, 0)."""
    small = node.add("exp", node.add("neg", node.add("abs", x)))
    return node.add("add", node.add("relu", x), node.add("log", node.add("add", small, node.like(1.0))))


def _softsign(node: FileNode, x: str) -> str:
    return node.add("div", x, node.add("add", node.add("abs", x), node.like(1.0)))


def _swish(node: FileNode, x: str) -> str:
    alpha = node.get("alpha", 1.0)
    inner = x if alpha == 1 else node.add("mul", x, node.like(alpha))
    return node.add("mul", x, node.add("sigmoid", inner))


def _prelu(node: FileNode, x: str) -> str:
    return node.add("add", node.add("relu", x), node.add("mul", node.add("min", x, node.like(0.0)), node.edge(1)))


def _hard_swish(node: FileNode) -> tuple[str, ...]:
    return (node.add("hard_swish", node.edge(0), alpha=1 / 6),)


def _softmax(node: FileNode) -> tuple[str, ...]:
    return (node.add("softmax", node.edge(0), axes=softmax_axes(node, node.version)),)


def _log_softmax(node: FileNode, x: str) -> str:
    """What is above the greatest, and the logarithm of the sum of powers of that."""
    axes = softmax_axes(node, node.version)
    less = node.add("sub", x, node.add("reduce_max", x, axes=axes))
    return node.add("sub", less, node.add("log", node.add("reduce_sum", node.add("exp", less), axes=axes)))


def softmax_axes(node: FileNode, version: int) -> tuple[int, ...]:
    """The axes of a softmax as the operator is defined in a version of ONNX: of one, or of all from one on."""
    axis = node.axis(node.get("axis", -1 if version >= 13 else 1))
    return (axis,) if version >= 13 else tuple(range(axis, len(node.shape())))


def _number(node: FileNode, name: str, otherwise: float) -> str:
    return node.like(node.get(name, otherwise))


gelu = _written(_gelu)
"""The reader of GELU, by erf or as it is approximated."""
swish = _written(_swish)
"""The reader of x * sigmoid(alpha * x)."""
READERS: dict[str, Reader] = {
    "Celu": _written(_celu),
    "Elu": _written(_elu),
    "Erf": unary("erf"),
    "Exp": unary("exp"),
    "Gelu": gelu,
    "HardSigmoid": unary("hard_sigmoid", alpha=0.2, beta=0.5),
    "HardSwish": _hard_swish,
    "LeakyRelu": unary("leaky_relu", alpha=0.01),
    "LogSoftmax": _written(_log_softmax),
    "Mish": _written(_mish),
    "PRelu": _written(_prelu),
    "Relu": unary("relu"),
    "Selu": _written(_selu),
    "Sigmoid": unary("sigmoid"),
    "Softmax": _softmax,
    "Softplus": _written(_softplus),
    "Softsign": _written(_softsign),
    "Swish": swish,
    "Tanh": unary("tanh"),
}

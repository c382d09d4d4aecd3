"""Graph operators as operations of the checker, each in the order of its reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bitsynth.graph.ir import Node
from bitsynth.graph.types import Integers
from bitsynth.network.certificate.arrays import encode_array
from bitsynth.network.certificate.chains import ChainValue, ChainWriter, Rule, Unsupported, may_wrap
from bitsynth.network.certificate.checker import CURVES


def _typed(chain: ChainWriter, node: Node, made: ChainValue) -> ChainValue:
    """Return the numbers of a node's result in its type of the file."""
    edge = chain.graph.edges[node.outputs[0]]
    if edge.is_float and not isinstance(edge.type, Integers):
        return chain.typed(made, edge.dtype)
    return made


def _binary(name: str) -> Rule:
    def rule(chain: ChainWriter, node: Node) -> ChainValue:
        made = chain.graph.edges[node.outputs[0]]
        if not made.is_float and (may_wrap(made) or name == "div"):
            raise Unsupported(f"{node.op} of {made.dtype} may wrap or be cut off")
        a, b = (chain.number(edge) for edge in node.inputs)
        return _typed(chain, node, chain.op(name, a, b))

    return rule


def _negate(chain: ChainWriter, node: Node) -> ChainValue:
    a = chain.number(node.inputs[0])
    return chain.op("mul", a, chain.scalar(-1, a))


def _absolute(chain: ChainWriter, node: Node) -> ChainValue:
    a = chain.number(node.inputs[0])
    return chain.op("max", a, chain.op("mul", a, chain.scalar(-1, a)))


def _relu(chain: ChainWriter, node: Node) -> ChainValue:
    a = chain.number(node.inputs[0])
    return chain.op("max", a, chain.scalar(0, a))


def _leaky(chain: ChainWriter, node: Node) -> ChainValue:
    a = chain.number(node.inputs[0])
    zero, alpha = chain.scalar(0, a), chain.scalar(node.attributes["alpha"], a)
    below = chain.op("mul", chain.op("min", a, zero), alpha)
    return _typed(chain, node, chain.op("add", chain.op("max", a, zero), below))


def _hard_sigmoid(chain: ChainWriter, node: Node) -> ChainValue:
    a = chain.number(node.inputs[0])
    made = chain.op("mul", a, chain.scalar(node.attributes["alpha"], a))
    made = chain.op("add", made, chain.scalar(node.attributes["beta"], a))
    return _typed(chain, node, _between(chain, made, 0, 1))


def _hard_swish(chain: ChainWriter, node: Node) -> ChainValue:
    a = chain.number(node.inputs[0])
    inner = chain.op("mul", a, chain.scalar(node.attributes["alpha"], a))
    inner = _between(chain, chain.op("add", inner, chain.scalar(0.5, a)), 0, 1)
    return _typed(chain, node, chain.op("mul", a, inner))


def _clip(chain: ChainWriter, node: Node) -> ChainValue:
    low, high = node.attributes["low"], node.attributes["high"]
    return _typed(chain, node, _between(chain, chain.number(node.inputs[0]), low, high))


def _between(chain: ChainWriter, a: ChainValue, low: Any, high: Any) -> ChainValue:
    """The value, none below `low`, then none above `high`: numbers of its type, or arrays of their own."""
    for name, limit in (("max", low), ("min", high)):
        if limit is not None:
            is_array = isinstance(limit, np.ndarray | np.generic)
            a = chain.op(name, a, chain.constant(limit) if is_array else chain.scalar(limit, a))
    return a


def _root(chain: ChainWriter, node: Node) -> ChainValue:
    if node.op == "power" and node.attributes["exponent"] != 0.5:
        a = made = chain.number(node.inputs[0])
        for _ in range(int(node.attributes["exponent"]) - 1):
            made = chain.op("mul", made, a)
        return _typed(chain, node, made)
    return _typed(chain, node, chain.op("root", chain.number(node.inputs[0])))


def _cast(chain: ChainWriter, node: Node) -> ChainValue:
    made, given = chain.graph.edges[node.outputs[0]], chain.graph.edges[node.inputs[0]]
    if not made.is_float and (given.is_float or may_wrap(made)):
        raise Unsupported(f"a cast from {given.dtype} to {made.dtype}")
    a = chain.number(node.inputs[0])
    return chain.typed(a, made.dtype) if made.is_float else a


def _batch_norm(chain: ChainWriter, node: Node) -> ChainValue:
    x, gain, bias, mean, variance = (chain.number(edge) for edge in node.inputs)
    spread = chain.op("root", chain.op("add", variance, chain.scalar(node.attributes["epsilon"], variance)))
    if chain.graph.reference == "onnxruntime":
        slope = chain.op("mul", chain.op("div", chain.scalar(1.0, spread), spread), gain)
        bias = chain.op("sub", bias, chain.op("mul", mean, slope))
        return _typed(chain, node, chain.op("add", chain.op("mul", x, slope), bias))
    apart = chain.op("sub", x, mean)
    if chain.graph.reference == "onnx":
        made = chain.op("div", chain.op("mul", gain, apart), spread)
    else:
        made = chain.op("mul", apart, chain.op("div", gain, spread))
    return _typed(chain, node, chain.op("add", made, bias))


def _curved(chain: ChainWriter, node: Node) -> ChainValue:
    if not chain.exact:
        raise Unsupported(f"{node.op} is as the reference computes it in floats")
    return chain.op(node.op, chain.number(node.inputs[0]))


# What makes integers.


def _step(chain: ChainWriter, node: Node, made: ChainValue) -> ChainValue:
    """Return the integers of a node's result."""
    return ChainValue(made.name, "float64", made.is_constant, chain.graph.edges[node.outputs[0]])


_MODES = {
    "CEIL": ("ceil", "ceil", 0),
    "FLOOR": ("floor", "floor", 0),
    "UP": ("ceil", "floor", 0),
    "DOWN": ("floor", "ceil", 0),
    "HALF_UP": ("floor", "ceil", 0.5),
    "HALF_DOWN": ("ceil", "floor", -0.5),
}
"""How numbers above 0 are rounded, how those below it, and what the first have more before, and the others less."""


def _rounded(chain: ChainWriter, a: ChainValue, mode: str) -> ChainValue:
    """Whole numbers. By modes that differ on both sides of 0 they are none below 0 on one side, plus none above it."""
    if mode == "BIPOLAR":
        return _counted(chain, a, chain.scalar(0, a), -1, 2)
    if mode in ("ROUND", "HALF_EVEN"):
        return chain.op("round", a)
    if mode == "HALF_ODD":
        one = chain.scalar(1, a)
        return chain.op("sub", chain.op("round", chain.op("add", a, one)), one)
    above, below, half = _MODES[mode]
    if above == below:
        return chain.op(above, a)
    zero, near = chain.scalar(0, a), chain.scalar(half, a)
    first, second = (chain.op(name, a, near) if half else a for name in ("add", "sub"))
    kept = chain.op("max", chain.op(above, first), zero), chain.op("min", chain.op(below, second), zero)
    return chain.op("add", *kept)


def _counted(chain: ChainWriter, a: ChainValue, levels: ChainValue, least: int, step: int) -> ChainValue:
    """Return the number of levels reached, times `step`, plus the least number."""
    made = chain.op("count", a, levels)
    if step == 2:  # sums of whole numbers are exact in float64 to the checker, products are not
        made = chain.op("add", made, made)
    elif step != 1:
        made = chain.op("mul", made, chain.constant(np.asarray(step)))
    return made if least == 0 else chain.op("add", made, chain.constant(np.asarray(least)))


def _on_scale(chain: ChainWriter, node: Node, zero_first: bool) -> ChainValue:
    at, x = node.attributes, chain.number(node.inputs[0])
    t = chain.op("div", x, chain.typed(chain.constant(at["scale"]), at["real"]))
    return chain.op("add", t, chain.typed(chain.constant(at["zero"]), at["real"])) if zero_first else t


def _quantize(chain: ChainWriter, node: Node) -> ChainValue:
    at = node.attributes
    t = _on_scale(chain, node, at["zero_first"])
    if at["zero_first"] and not chain.exact:
        return _step(chain, node, _rounded(chain, _between(chain, t, at["low"], at["high"]), at["rounding"]))
    made = _rounded(chain, t, at["rounding"])
    return _step(chain, node, _limited(chain, made, None if at["zero_first"] else at["zero"], at))


def _limited(chain: ChainWriter, made: ChainValue, zero: Any, at: Mapping[str, Any]) -> ChainValue:
    """Return whole numbers plus a zero point, clipped."""
    if zero is not None and np.any(zero):
        made = chain.op("add", made, chain.constant(np.asarray(zero).astype(np.int64)))
    return _between(chain, made, at["low"], at["high"])


def _round(chain: ChainWriter, node: Node) -> ChainValue:
    made = _rounded(chain, chain.number(node.inputs[0]), node.attributes["rounding"])
    return _step(chain, node, made)


def _requantize(chain: ChainWriter, node: Node) -> ChainValue:
    at, x = node.attributes, chain.number(node.inputs[0])
    factor = chain.op("div", chain.op("mul", *map(chain.constant, at["factors"][:2])), chain.constant(at["factors"][2]))
    zero = chain.constant(at["zero"])
    first = chain.graph.reference == "onnx" or at["zero_first"]
    if chain.exact:
        made = chain.op("mul", x, factor)
    elif chain.graph.reference == "onnxruntime":
        single = chain.typed(chain.typed(factor, at["factors"][0].dtype.name), "float32")
        made, zero = chain.op("mul", chain.typed(x, "float32"), single), chain.typed(zero, "float32")
    else:
        made = chain.op("mul", x, chain.typed(factor, at["factors"][0].dtype.name))
    if first and np.any(at["zero"]):
        made = chain.op("add", made, zero)
    if chain.graph.reference == "onnx":
        return _step(chain, node, _rounded(chain, _between(chain, made, at["low"], at["high"]), "ROUND"))
    return _step(chain, node, _limited(chain, _rounded(chain, made, "ROUND"), None if first else at["zero"], at))


def _add_codes(chain: ChainWriter, node: Node) -> ChainValue:
    if not chain.exact:
        return _fused_codes(chain, node)
    scale_a, zero_a, scale_b, zero_b, scale, zero = map(chain.constant, node.attributes["grids"])
    a, b = (chain.number(edge) for edge in node.inputs)
    a, b = (chain.op("mul", chain.op("sub", x, z), s) for x, z, s in ((a, zero_a, scale_a), (b, zero_b, scale_b)))
    made = chain.op("add", chain.op("div", chain.op("add", a, b), scale), zero)
    return _step(chain, node, _limited(chain, _rounded(chain, made, "ROUND"), None, node.attributes))


def _fused_codes(chain: ChainWriter, node: Node) -> ChainValue:
    """Return a product and sum rounded once to float32: float64 holds both exactly."""
    grids = [np.asarray(x) for x in node.attributes["grids"]]
    ratios = [grids[k] / grids[4] for k in (0, 2)]
    start = grids[5].astype(np.float32) - _fused(grids[1], ratios[0], grids[3].astype(np.float32) * ratios[1])
    made = chain.constant(start)
    for edge, ratio in ((node.inputs[1], ratios[1]), (node.inputs[0], ratios[0])):
        product = chain.op("mul", chain.number(edge), chain.constant(ratio.astype(np.float64)))
        made = chain.typed(chain.op("add", product, made), "float32")
    return _step(chain, node, _limited(chain, _rounded(chain, made, "ROUND"), None, node.attributes))


def _fused(code: Any, ratio: Any, more: Any) -> Any:
    return (code.astype(np.float64) * ratio.astype(np.float64) + more.astype(np.float64)).astype(np.float32)


def _count(chain: ChainWriter, node: Node) -> ChainValue:
    at, a = node.attributes, chain.number(node.inputs[0])
    rows = at["thresholds"]
    if len(rows) > 1 and at["axis"] != chain.place[1]:
        raise Unsupported("thresholds differ along another axis than channels")
    name = f"k{len(chain.constants)}"
    chain.constants[name] = encode_array(np.asarray(rows))
    levels = ChainValue(name, rows.dtype.name, True)
    return _step(chain, node, _counted(chain, a, levels, int(at["least"]), int(at["step"])))


def _truncate(chain: ChainWriter, node: Node) -> ChainValue:
    at = node.attributes
    nearest = _rounded(chain, _on_scale(chain, node, True), "ROUND")
    t = chain.op("div", nearest, chain.constant(at["divisor"]))
    return _step(chain, node, _limited(chain, _rounded(chain, t, at["rounding"]), None, at))


def _view(chain: ChainWriter, node: Node) -> ChainValue:
    return _step(chain, node, ChainValue(chain.integers(node.inputs[0])))


OPERATIONS: dict[str, Rule] = {
    **{name: _binary(name) for name in ("add", "sub", "mul", "div", "max", "min")},
    "neg": _negate,
    "abs": _absolute,
    "relu": _relu,
    "leaky_relu": _leaky,
    "hard_sigmoid": _hard_sigmoid,
    "hard_swish": _hard_swish,
    "clip": _clip,
    "power": _root,
    "sqrt": _root,
    "cast": _cast,
    "batch_norm": _batch_norm,
    **dict.fromkeys(CURVES, _curved),
    "round": _round,
    "quantize": _quantize,
    "requantize": _requantize,
    "add_codes": _add_codes,
    "multi_threshold": _count,
    "trunc": _truncate,
    "view": _view,
}
"""By the name of the row."""

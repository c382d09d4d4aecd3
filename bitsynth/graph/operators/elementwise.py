"""Rows of elementwise operators: arithmetic and activations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bitsynth.graph.arithmetic import Quantity
from bitsynth.graph.arithmetic.intervals import interval
from bitsynth.graph.operators.site import Site, elementwise_operator, for_integers
from bitsynth.graph.types import Integers, Tensor, compress
from bitsynth.spec.matmul import MAX_BITS

_MAX_STEPS = 1 << MAX_BITS
"""Steps by which a constant may move a zero point: sums of products with it must fit in int32."""


def _add(site: Site, a: Quantity, b: Quantity) -> Quantity:
    return a + b


def _subtract(site: Site, a: Quantity, b: Quantity) -> Quantity:
    return a - b


def _multiply(site: Site, a: Quantity, b: Quantity) -> Quantity:
    return a * b


def _divide(site: Site, a: Quantity, b: Quantity) -> Quantity:
    """Return the quotient; of integers it is rounded toward 0."""
    if isinstance(a, np.ndarray) and a.dtype.kind in "iu":
        safe = np.where(b == 0, 1, b)
        return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(safe))
    return a / b


def _sum_grid(sign: int) -> Any:
    """Return the rule for sums (`sign` 1) or differences (-1) of integers on one grid."""

    def rule(kinds: list[Integers]) -> Integers | None:
        a, b = kinds
        if not a.same_grid(b):
            return None
        low, high = (b.low, b.high) if sign > 0 else (-b.high, -b.low)
        return Integers.between(a.low + low, a.high + high, a.scale, 0.0, 2 if a.step == b.step == 2 else 1)

    return for_integers(rule)


def _real_constant(site: Site, place: int) -> Tensor | None:
    """Return the real numbers of a constant input; None if it is not constant."""
    kind, value = site.inputs[place].type, site.given[place]
    return (value - kind.zero) * kind.scale if isinstance(kind, Integers) and value is not None else value


def _codes_and_steps(site: Site, codes: int) -> tuple[Integers, Tensor] | None:
    """Return the type of input `codes`, and the other input as a whole number of its steps.

    None if the first has no codes, or the other is not one constant number of whole steps. Accumulators are left alone:
    what is added to them is part of a chain to codes, not the operand of a product.
    """
    kind, number = site.inputs[codes].type, _real_constant(site, 1 - codes)
    if site.reference != "exact" or number is None or not isinstance(kind, Integers):
        return None
    if not (kind.is_centred and kind.has_one_grid and kind.bits <= MAX_BITS):
        return None
    steps = interval(compress(np.asarray(number))) / interval(kind.scale)
    is_whole = steps.is_point and steps.low.size == 1 and steps.low == np.rint(steps.low)
    return (kind, steps.low.reshape(())) if is_whole and abs(steps.low) < _MAX_STEPS else None


def _moved_grid(site: Site) -> Integers | None:
    """Return the type of codes plus, or minus, a constant: the zero point moves by a whole number of steps.

    Given integers 0 .. 3 of scale 0.25, less 0.5. Result: the same integers, whose zero point is 2.
    """
    if (given := _codes_and_steps(site, 0)) is None:
        return None
    kind, steps = given
    distance = steps if site.node.op == "sub" else -steps
    return Integers(kind.low, kind.high, kind.scale, kind.zero + distance, kind.step)


def _mirrored_grid(site: Site) -> Integers | None:
    """Return the type of a constant minus integers: these are mirrored within their limits, and keep their bits.

    Given integers 0 .. 3 of scale 0.25, subtracted from 1. Result: integers 3 .. 0, whose zero point is -1.
    """
    if (given := _codes_and_steps(site, 1)) is None:
        return None
    kind, steps = given
    ends = kind.least + kind.most
    return Integers(ends - kind.high, ends - kind.low, kind.scale, ends - kind.zero - steps, kind.step)


def _add_grid(site: Site) -> Integers | None:
    """Return the type of sums: of integers on one grid, or of integers plus a constant."""
    return _sum_grid(1)(site) or _moved_grid(site)


def _subtract_grid(site: Site) -> Integers | None:
    """Return the type of differences: of integers on one grid, or of integers and a constant."""
    return _sum_grid(-1)(site) or _moved_grid(site) or _mirrored_grid(site)


def _add_integers(site: Site, a: Tensor, b: Tensor) -> Tensor:
    """Add integers; where a constant moves their zero point alone, they stay."""
    return a + b if _sum_grid(1)(site) else _keep_integers(site, a, b)


def _subtract_integers(site: Site, a: Tensor, b: Tensor) -> Tensor:
    """Subtract integers; where a constant moves their zero point alone, they stay, or are mirrored."""
    if _sum_grid(-1)(site):
        return a - b
    if _moved_grid(site):
        return _keep_integers(site, a, b)
    kind = site.inputs[1].integers
    return np.broadcast_to(kind.least + kind.most - b, site.outputs[0].shape)


def _plain_product_grid(kinds: list[Integers]) -> Integers | None:
    """Return the type of products of integers that stand for themselves; None of others."""
    a, b = kinds
    if not (a.is_plain and b.is_plain):
        return None
    corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return Integers(np.minimum.reduce(np.broadcast_arrays(*corners)), np.maximum.reduce(np.broadcast_arrays(*corners)))


def _rescaled_grid(site: Site) -> Integers | None:
    """Return the type of integers times, or over, a constant above 0; None if float64 does not hold the scale."""
    kind, by = site.inputs[0].type, _real_constant(site, 1)
    if site.reference != "exact" or by is None or not isinstance(kind, Integers) or not kind.is_centred:
        return None
    ratio = interval(by)
    scale = interval(kind.scale) * ratio if site.node.op == "mul" else interval(kind.scale) / ratio
    if not scale.is_point or not (ratio.low > 0).all() or not np.isfinite(scale.low).all():
        return None
    return Integers(kind.low, kind.high, compress(scale.low), kind.zero, kind.step)


def _multiply_grid(site: Site) -> Integers | None:
    """Return the type of products: of plain integers, or of integers times a constant."""
    return for_integers(_plain_product_grid)(site) or _rescaled_grid(site)


def _multiply_integers(site: Site, a: Tensor, b: Tensor) -> Tensor:
    """Multiply integers; where a constant changes their scale alone, they stay."""
    return a * b if for_integers(_plain_product_grid)(site) else _keep_integers(site, a, b)


def _keep_integers(site: Site, a: Tensor, b: Tensor) -> Tensor:
    """Return the integers of the first input, broadcast to the output."""
    return np.broadcast_to(a, site.outputs[0].shape)


def _extreme_grid(function: Any) -> Any:
    """Return the rule for the maximum or minimum of integers on one grid."""

    def rule(kinds: list[Integers]) -> Integers | None:
        a, b = kinds
        if not a.same_grid(b):
            return None
        return Integers.between(function(a.low, b.low), function(a.high, b.high), a.scale)

    return for_integers(rule)


def _zero_code(kind: Integers) -> Tensor:
    """Return the integer that stands for 0."""
    return np.rint(kind.zero).astype(np.int64)


def _relu_grid(kinds: list[Integers]) -> Integers | None:
    (a,) = kinds
    if not a.is_centred or a.step != 1:
        return None
    return Integers(np.maximum(a.low, _zero_code(a)), np.maximum(a.high, _zero_code(a)), a.scale, a.zero)


def _relu_integers(site: Site, a: Tensor) -> Tensor:
    kind = site.inputs[0].integers
    return np.maximum(a, _zero_code(kind))


def _relu(site: Site, a: Quantity) -> Quantity:
    return site.maths.maximum(a, site.maths.cast(site.maths.constant(0.0), site.inputs[0].dtype))


def _scalar(site: Site, value: float | Tensor) -> Quantity:
    """Return a number, or one for each channel, of the file's type."""
    return site.maths.cast(site.maths.constant(value), site.inputs[0].dtype)


def _leaky_relu(site: Site, a: Quantity) -> Quantity:
    alpha = _scalar(site, site["alpha"])
    zero = _scalar(site, 0.0)
    return site.maths.maximum(a, zero) + site.maths.minimum(a, zero) * alpha


def _is_leaky_relu_monotone(attributes: Mapping[str, Any]) -> bool:
    """Return whether no slope below 0 is negative: with a negative one the function falls, then rises."""
    alpha = np.asarray(attributes["alpha"])
    return bool(np.all(alpha >= 0) and np.all(np.isfinite(alpha)))


def _hard_sigmoid(site: Site, a: Quantity) -> Quantity:
    zero, one = _scalar(site, 0.0), _scalar(site, 1.0)
    return site.maths.clip(a * _scalar(site, site["alpha"]) + _scalar(site, site["beta"]), zero, one)


def _hard_swish(site: Site, a: Quantity) -> Quantity:
    inner = a * _scalar(site, site["alpha"]) + _scalar(site, 0.5)
    return a * site.maths.clip(inner, _scalar(site, 0.0), _scalar(site, 1.0))


def _clip(site: Site, a: Quantity) -> Quantity:
    low, high = (None if site[k] is None else _limit(site, a, site[k]) for k in ("low", "high"))
    return site.maths.clip(a, low, high)


def _limit(site: Site, a: Quantity, value: float) -> Quantity:
    """Return a limit in the type of the numbers that it clips."""
    dtype = np.dtype(getattr(a, "dtype", object))
    return site.maths.constant(value if dtype.kind == "O" else np.asarray(value).astype(dtype))


def _clip_grid(site: Site) -> Integers | None:
    a = site.inputs[0].type
    limits = [x for x in (site["low"], site["high"]) if x is not None]
    if not isinstance(a, Integers) or not a.is_plain or any(x != np.rint(x) for x in limits):
        return None
    low, high = (np.clip(x, site["low"], site["high"]).astype(np.int64) for x in (a.low, a.high))
    return Integers(low, high)


def _clip_integers(site: Site, a: Tensor) -> Tensor:
    return np.clip(a, site["low"], site["high"]).astype(np.int64)


def _make_function(name: str) -> Any:
    """Return the meaning of an operator that is a function of the arithmetic, by name."""

    def meaning(site: Site, a: Quantity) -> Quantity:
        return site.maths.call(name, a)

    return meaning


def _negate_grid(kinds: list[Integers]) -> Integers | None:
    (a,) = kinds
    return None if a.zero.any() else Integers(-a.high, -a.low, a.scale, a.zero, a.step)


def _negate(site: Site, a: Quantity) -> Quantity:
    return -a


def _absolute(site: Site, a: Quantity) -> Quantity:
    return site.maths.maximum(a, -a)


def _batch_norm(
    site: Site, x: Quantity, gain: Quantity, bias: Quantity, mean: Quantity, variance: Quantity
) -> Quantity:
    """Return (x - mean) / sqrt(variance + epsilon) * gain + bias, in the order of operations of the reference."""
    spread = site.maths.call("sqrt", variance + _scalar(site, site["epsilon"]))
    if site.reference == "onnx":
        return gain * (x - mean) / spread + bias
    if site.reference == "onnxruntime":
        slope = _scalar(site, 1.0) / spread * gain
        return x * slope + (bias - mean * slope)
    return (x - mean) * (gain / spread) + bias


def _maximum(site: Site, a: Quantity, b: Quantity) -> Quantity:
    return site.maths.maximum(a, b)


def _minimum(site: Site, a: Quantity, b: Quantity) -> Quantity:
    return site.maths.minimum(a, b)


def _power(site: Site, a: Quantity) -> Quantity:
    """Return the square root, or a whole power by repeated products."""
    exponent = site["exponent"]
    if exponent == 0.5:
        return site.maths.call("sqrt", a)
    power = a
    for _ in range(int(exponent) - 1):
        power = power * a
    return power


def _identity(site: Site, a: Quantity) -> Quantity:
    return a


def _same_grid(kinds: list[Integers]) -> Integers | None:
    return kinds[0]


ROWS = (
    elementwise_operator("add", _add, monotone=True, grid=_add_grid, on_integers=_add_integers),
    elementwise_operator("sub", _subtract, monotone=True, grid=_subtract_grid, on_integers=_subtract_integers),
    elementwise_operator("mul", _multiply, monotone=True, grid=_multiply_grid, on_integers=_multiply_integers),
    elementwise_operator("div", _divide, monotone=True, grid=_rescaled_grid, on_integers=_keep_integers),
    elementwise_operator(
        "max", _maximum, monotone=True, grid=_extreme_grid(np.maximum), on_integers=lambda _, a, b: np.maximum(a, b)
    ),
    elementwise_operator(
        "min", _minimum, monotone=True, grid=_extreme_grid(np.minimum), on_integers=lambda _, a, b: np.minimum(a, b)
    ),
    elementwise_operator("neg", _negate, monotone=True, grid=for_integers(_negate_grid)),
    elementwise_operator("abs", _absolute),
    elementwise_operator("relu", _relu, monotone=True, grid=for_integers(_relu_grid), on_integers=_relu_integers),
    elementwise_operator("leaky_relu", _leaky_relu, monotone=_is_leaky_relu_monotone, floats=True),
    elementwise_operator("hard_sigmoid", _hard_sigmoid, monotone=True, floats=True),
    elementwise_operator("hard_swish", _hard_swish, floats=True),
    elementwise_operator("clip", _clip, monotone=True, grid=_clip_grid, on_integers=_clip_integers),
    elementwise_operator("power", _power),
    elementwise_operator("sqrt", _make_function("sqrt"), monotone=True, floats=True),
    elementwise_operator("exp", _make_function("exp"), floats=True),
    elementwise_operator("log", _make_function("log"), floats=True),
    elementwise_operator("erf", _make_function("erf"), floats=True),
    elementwise_operator("tanh", _make_function("tanh"), floats=True),
    elementwise_operator("sigmoid", _make_function("sigmoid"), floats=True),
    elementwise_operator("cast", _identity, monotone=True, grid=for_integers(_same_grid)),
    elementwise_operator("batch_norm", _batch_norm, monotone=True, floats=True),
)
"""`tanh`, `sigmoid`, `exp`, `log` and `erf` are not marked as monotone: their implementations in float32 are not."""

"""Rows whose results are integers by steps: rounding, quantizers, thresholds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bitsynth.graph.arithmetic import Quantity, SomeFractions
from bitsynth.graph.operators.rounding import rounding
from bitsynth.graph.operators.site import Operator, Site, broadcast_shape
from bitsynth.graph.types import Edge, Integers, Shape, Tensor, compress

_Step = Callable[[Tensor], Tensor]
_MAX_FLOAT64_INTEGER = 1 << 53


def step_operator(
    name: str,
    scaled: Callable[..., Quantity],
    of: Callable[[Site], _Step],
    kind: Callable[[Site], Integers],
    shape: Callable[[Site], Shape] = broadcast_shape,
) -> Operator:
    """A row that rounds: `of(site)`, a staircase of integers, of the numbers `scaled(site, *numbers)`.

    Numbers that are integers of the file already, such as sums, are scaled as they are.
    """

    def infer(site: Site) -> list[Edge]:
        return [site.made(shape(site), kind(site), site.get("dtype", ""))]

    def run(site: Site, *values: Any) -> list[Tensor]:
        number = scaled(site, *site.numbers(values))
        return [site.maths.steps(of(site), number, exactly=lambda mask: _in_fractions(site, scaled, mask))]

    return Operator(name, "step", infer, run, monotone=True)


def _in_fractions(site: Site, scaled: Callable[..., Quantity], mask: Tensor) -> Tensor:
    """The scaled numbers, in fractions where the mask says so; 0 elsewhere."""
    assert site.exactly is not None
    made = np.zeros(mask.shape, object)
    made[mask] = scaled(replace(site, arithmetic=SomeFractions(mask)), *site.exactly(mask))
    return made


# Quantizers: integers of a grid, between two limits.


def _on_scale(site: Site, x: Quantity) -> Quantity:
    """The number in steps of the scale, and the zero point if it is added before rounding."""
    maths = site.maths
    t = x / maths.typed(maths.constant(site["scale"]), site["real"])
    return t + maths.typed(maths.constant(site["zero"]), site["real"]) if site["zero_first"] else t


def _quantized(site: Site) -> _Step:
    low, high, mode = site["low"], site["high"], rounding(site["rounding"], site.reference)
    zero = 0 if site["zero_first"] else site["zero"].astype(np.int64)
    if site["zero_first"] and site.reference != "exact":
        return lambda t: mode(np.clip(t, low, high))
    return lambda t: np.clip(mode(t) + zero, low, high)


def _grid(site: Site) -> Integers:
    bipolar = site["rounding"] == "BIPOLAR"
    return Integers.between(site["low"], site["high"], site["out_scale"], site["out_zero"], 2 if bipolar else 1)


def _integral_grid(site: Site) -> Integers:
    """The integers from the range of what is rounded; if nothing is known of that, those that float64 holds."""
    kind = site.inputs[0].type
    if not isinstance(kind, Integers):
        return Integers.between(-_MAX_FLOAT64_INTEGER, _MAX_FLOAT64_INTEGER)
    low, high = (_rounded(site)((end - kind.zero) * kind.scale) for end in (kind.low, kind.high))
    return Integers.between(compress(low), compress(high))


def _rounded(site: Site) -> _Step:
    return rounding(site["rounding"], site.reference)


def _as_is(site: Site, x: Quantity) -> Quantity:
    return x


# Requantization: sums as codes, in the formula of each reference.


def _rescaled(site: Site, x: Quantity) -> Quantity:
    """Sums times the scales of their factors, over that of the result; in float32 as ONNX Runtime does."""
    maths = site.maths
    first, second, over = site["factors"]
    zero = site["zero"] if site["zero_first"] else np.zeros(())
    if site.reference == "exact":
        return x * maths.constant(first) * maths.constant(second) / maths.constant(over) + maths.constant(zero)
    multiplier = (first * second / over).astype(first.dtype)
    if site.reference == "onnxruntime":
        return x.astype(np.float32) * multiplier.astype(np.float32) + zero.astype(np.float32)
    return x.astype(np.float64) * multiplier + site["zero"]


def _requantized(site: Site) -> _Step:
    low, high, zero = site["low"], site["high"], 0 if site["zero_first"] else site["zero"].astype(np.int64)
    if site.reference == "onnx":
        return lambda t: np.rint(np.clip(t, low, high))
    mode = rounding("ROUND", site.reference)
    return lambda t: np.clip(mode(t) + zero, low, high)


def _sum_of_codes(site: Site, a: Quantity, b: Quantity) -> Quantity:
    """Codes of two quantizers, added on the scale of a third: with its zero point, as ONNX Runtime does on AVX2."""
    maths = site.maths
    scale_a, zero_a, scale_b, zero_b, scale, zero = site["grids"]
    if site.reference == "exact":
        x, y = (maths.constant(s) * (v - maths.constant(z)) for v, s, z in ((a, scale_a, zero_a), (b, scale_b, zero_b)))
        return (x + y) / maths.constant(scale) + maths.constant(zero)
    ratio_a, ratio_b = scale_a / scale, scale_b / scale
    start = zero.astype(np.float32) - _fused(zero_a, ratio_a, zero_b.astype(np.float32) * ratio_b)
    return _fused(a, ratio_a, _fused(b, ratio_b, start))


def _fused(code: Quantity, ratio: Tensor, more: Quantity) -> Quantity:
    """A code times a ratio, plus more, rounded to float32 once: float64 holds the product."""
    return (code.astype(np.float64) * ratio.astype(np.float64) + more.astype(np.float64)).astype(np.float32)


def _added(site: Site) -> _Step:
    low, high, mode = site["low"], site["high"], rounding("ROUND", site.reference)
    return lambda t: np.clip(mode(t), low, high)


# Thresholds.


def _count(site: Site) -> _Step:
    thresholds, step, least = site["thresholds"], site["step"], site["least"]

    def counted(t: Tensor) -> Tensor:
        axis = site["axis"]
        shape = [-1 if k == axis else 1 for k in range(t.ndim)]
        made = np.zeros(t.shape, np.int64)
        for column in thresholds.T:
            made += t >= column.reshape(shape)
        return np.asarray(least + step * made)

    return counted


def _counts(site: Site) -> Integers:
    thresholds, step, least = site["thresholds"], site["step"], site["least"]
    return Integers.between(least, least + step * thresholds.shape[1], site["out_scale"], 0.0, step)


# Trunc of QONNX: the low bits of codes are dropped.


def _truncated(site: Site, x: Quantity) -> Quantity:
    whole = _whole_codes(site, x)
    nearest = site.maths.steps(
        rounding("ROUND", site.reference), whole, exactly=lambda mask: _in_fractions(site, _whole_codes, mask)
    )
    return site.maths.constant(nearest) / site.maths.constant(site["divisor"])


def _whole_codes(site: Site, x: Quantity) -> Quantity:
    maths = site.maths
    scale, zero = (maths.typed(maths.constant(site[k]), site["real"]) for k in ("scale", "zero"))
    return x / scale + zero


def _dropped(site: Site) -> _Step:
    low, high, mode = site["low"], site["high"], rounding(site["rounding"], site.reference)
    return lambda t: np.clip(mode(t), low, high)


def _truncated_grid(site: Site) -> Integers:
    """The integers from the range of what is truncated, one more each way where scales do not cancel."""
    made, kind = _grid(site), site.inputs[0].type
    if not isinstance(kind, Integers):
        return made
    ratio = kind.scale / site["scale"]
    ends = (((end - kind.zero) * ratio + site["zero"]) / site["divisor"] for end in (kind.low, kind.high))
    spare = 0 if (ratio == 1).all() else 1
    low, high = (_dropped(site)(_dropped(site)(end) + more) for end, more in zip(ends, (-spare, spare), strict=True))
    return Integers.between(compress(low), compress(high), made.scale, made.zero)


def _view() -> Operator:
    """The row of integers on another grid: what is dequantized, or integers of the file without their zero point."""

    def infer(site: Site) -> list[Edge]:
        kind = site.inputs[0].integers
        made = Integers.between(kind.low, kind.high, site["scale"], site["zero"], kind.step)
        return [site.made(broadcast_shape(site), made, site["dtype"])]

    return Operator("view", "step", infer, lambda site, value: [value], monotone=True)


ROWS = (
    step_operator("round", _as_is, _rounded, _integral_grid),
    step_operator("quantize", _on_scale, _quantized, _grid),
    step_operator("requantize", _rescaled, _requantized, _grid),
    step_operator("add_codes", _sum_of_codes, _added, _grid),
    step_operator("multi_threshold", _as_is, _count, _counts),
    step_operator("trunc", _truncated, _dropped, _truncated_grid),
    _view(),
)

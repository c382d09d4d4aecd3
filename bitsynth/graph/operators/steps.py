"""Rows of step functions, whose results are integers: rounding, quantizers, thresholds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bitsynth.graph.arithmetic import Quantity, SomeFractions
from bitsynth.graph.operators.rounding import rounding
from bitsynth.graph.operators.site import Operator, Site, broadcast_shape
from bitsynth.graph.types import INT32, Edge, Integers, Shape, Tensor, compress

_StepFunction = Callable[[Tensor], Tensor]
_MAX_FLOAT64_INTEGER = 1 << 53


def step_operator(
    name: str,
    scaled: Callable[..., Quantity],
    of: Callable[[Site], _StepFunction],
    kind: Callable[[Site], Integers],
    shape: Callable[[Site], Shape] = broadcast_shape,
) -> Operator:
    """Return the row of a step function: `of(site)` is run on the numbers `scaled(site, *numbers)`.

    Numbers that are integers of the file already, such as accumulators, are scaled as they are.
    """

    def infer(site: Site) -> list[Edge]:
        return [site.output_edge(shape(site), kind(site), site.get("dtype", ""))]

    def run(site: Site, *values: Any) -> list[Tensor]:
        number = scaled(site, *site.numbers(values))
        return [site.maths.steps(of(site), number, exactly=lambda mask: _in_fractions(site, scaled, mask))]

    return Operator(name, "step", infer, run, monotone=True)


def _in_fractions(site: Site, scaled: Callable[..., Quantity], mask: Tensor) -> Tensor:
    """Return the scaled numbers as fractions where the mask is set; 0 elsewhere."""
    assert site.exactly is not None
    fractions = np.zeros(mask.shape, object)
    fractions[mask] = scaled(replace(site, arithmetic=SomeFractions(mask)), *site.exactly(mask))
    return fractions


# Quantizers: integers of a grid, between two limits.


def _divide_by_scale(site: Site, x: Quantity) -> Quantity:
    """Return x / scale, plus the zero point if it is added before rounding."""
    maths = site.maths
    t = x / maths.cast(maths.constant(site["scale"]), site["real"])
    return t + maths.cast(maths.constant(site["zero"]), site["real"]) if site["zero_first"] else t


def _quantize_step(site: Site) -> _StepFunction:
    low, high, mode = site["low"], site["high"], rounding(site["rounding"], site.reference)
    zero = 0 if site["zero_first"] else site["zero"].astype(np.int64)
    if site["zero_first"] and site.reference != "exact":
        return lambda t: mode(np.clip(t, low, high))
    return lambda t: np.clip(mode(t) + zero, low, high)


def _quantizer_grid(site: Site) -> Integers:
    bipolar = site["rounding"] == "BIPOLAR"
    return Integers.between(site["low"], site["high"], site["out_scale"], site["out_zero"], 2 if bipolar else 1)


def _rounded_grid(site: Site) -> Integers:
    """Return the range of rounded integers; of inputs of unknown range all that float64 holds."""
    kind = site.inputs[0].type
    if not isinstance(kind, Integers):
        return Integers.between(-_MAX_FLOAT64_INTEGER, _MAX_FLOAT64_INTEGER)
    low, high = (_rounding_step(site)((end - kind.zero) * kind.scale) for end in (kind.low, kind.high))
    return Integers.between(compress(low), compress(high))


def _rounding_step(site: Site) -> _StepFunction:
    return rounding(site["rounding"], site.reference)


def _unscale(site: Site, x: Quantity) -> Quantity:
    return x


# Requantization: sums as codes, in the formula of each reference.


def _rescale(site: Site, x: Quantity) -> Quantity:
    """Return accumulators times both factors' scales over the result's scale; in float32 as ONNX Runtime."""
    maths = site.maths
    first, second, over = site["factors"]
    zero = site["zero"] if site["zero_first"] else np.zeros(())
    if site.reference == "exact":
        return x * maths.constant(first) * maths.constant(second) / maths.constant(over) + maths.constant(zero)
    multiplier = (first * second / over).astype(first.dtype)
    if site.reference == "onnxruntime":
        return x.astype(np.float32) * multiplier.astype(np.float32) + zero.astype(np.float32)
    return x.astype(np.float64) * multiplier + site["zero"]


def _requantize_step(site: Site) -> _StepFunction:
    low, high, zero = site["low"], site["high"], 0 if site["zero_first"] else site["zero"].astype(np.int64)
    if site.reference == "onnx":
        return lambda t: np.rint(np.clip(t, low, high))
    mode = rounding("ROUND", site.reference)
    return lambda t: np.clip(mode(t) + zero, low, high)


def _add_codes(site: Site, a: Quantity, b: Quantity) -> Quantity:
    """Return the sum of the numbers of two codes over a third scale, plus its zero point, as ONNX Runtime on AVX2."""
    maths = site.maths
    scale_a, zero_a, scale_b, zero_b, scale, zero = site["grids"]
    if site.reference == "exact":
        x, y = (maths.constant(s) * (v - maths.constant(z)) for v, s, z in ((a, scale_a, zero_a), (b, scale_b, zero_b)))
        return (x + y) / maths.constant(scale) + maths.constant(zero)
    ratio_a, ratio_b = scale_a / scale, scale_b / scale
    start = zero.astype(np.float32) - _multiply_add(zero_a, ratio_a, zero_b.astype(np.float32) * ratio_b)
    return _multiply_add(a, ratio_a, _multiply_add(b, ratio_b, start))


def _multiply_add(code: Quantity, ratio: Tensor, more: Quantity) -> Quantity:
    """Return code * ratio + more, rounded to float32 once: float64 holds the product."""
    return (code.astype(np.float64) * ratio.astype(np.float64) + more.astype(np.float64)).astype(np.float32)


def _add_codes_step(site: Site) -> _StepFunction:
    low, high, mode = site["low"], site["high"], rounding("ROUND", site.reference)
    return lambda t: np.clip(mode(t), low, high)


# Fixed-point requantization: integers times a 31-bit multiplier and a power of two.


def _multiply_shift(site: Site, x: Any) -> Any:
    """Return x * multiplier / 2^(shift + right), rounded twice, plus a zero point, clipped; in 64-bit integers.

    The quotient by 2^shift is rounded to nearest with ties up, that by 2^right with ties away from 0. With a shift of
    31 this is `MultiplyByQuantizedMultiplier` of TensorFlow Lite (kernels/internal/common.h), which takes both parts
    from gemmlowp: `SaturatingRoundingDoublingHighMul` and `RoundingDivideByPOT`.

    Example: 5 * 2^30 / 2^31 = 2.5 becomes 3, and 3 / 2^1 becomes 2; -5 becomes -2, and -2 / 2^1 is -1.
    """
    shift, right = site["shift"], site["right"]
    high = (x * site["multiplier"] + np.left_shift(1, shift - 1)) >> shift
    if np.any(right):
        half = np.where(right > 0, np.left_shift(1, np.maximum(right, 1) - 1), 0)
        high = (high + (half - np.where(high < 0, 1, 0) * np.where(right > 0, 1, 0))) >> right
    result = high + site["zero"]
    return result if site["low"] is None else np.clip(result, site["low"], site["high"])


def _multiply_shift_operator() -> Operator:
    """Return the row of integers that are multiplied and shifted to the right.

    It has one meaning under every reference, as it reads and gives integers.
    """

    def infer(site: Site) -> list[Edge]:
        kind = site.inputs[0].type
        if not isinstance(kind, Integers) or site.inputs[0].is_float or not kind.is_centred:
            raise site.fail(f"its input is {site.inputs[0].dtype}; it needs integers")
        ends = [end - kind.zero.astype(np.int64) for end in (kind.low, kind.high)]
        largest = max(int((np.abs(end) * np.left_shift(1, np.maximum(31 - site["shift"], 0))).max()) for end in ends)
        if largest > INT32[1]:
            raise site.fail(f"integers of up to {largest:,}, after a shift to the left, do not fit int32")
        low, high = site["low"], site["high"]
        if low is None:
            low, high = (compress(_multiply_shift(site, end)) for end in ends)
        return [site.output_edge(broadcast_shape(site), Integers.between(low, high), site["dtype"])]

    def run(site: Site, value: Any) -> list[Any]:
        zero = site.inputs[0].integers.zero
        return [_multiply_shift(site, value - zero.astype(np.int64) if zero.any() else value)]

    return Operator("multiply_shift", "step", infer, run, monotone=True)


def _lookup_operator() -> Operator:
    """Return the row of a table: the integer `first` + k becomes the k-th number of it."""

    def infer(site: Site) -> list[Edge]:
        kind, table, first = site.inputs[0].type, site["table"], site["first"]
        if not isinstance(kind, Integers) or not kind.is_plain:
            raise site.fail(f"its input is {site.inputs[0].dtype}; it needs integers")
        if kind.least < first or kind.most >= first + table.size:
            raise site.fail(f"integers from {kind.least} to {kind.most} are not all in a table from {first}")
        grid = Integers.between(table.min(), table.max())
        return [site.output_edge(broadcast_shape(site), grid, site["dtype"])]

    return Operator("lookup", "step", infer, lambda site, value: [site["table"][value - site["first"]]])


# Thresholds.


def _count_step(site: Site) -> _StepFunction:
    thresholds, step, least = site["thresholds"], site["step"], site["least"]

    def count_levels(t: Tensor) -> Tensor:
        axis = site["axis"]
        shape = [-1 if k == axis else 1 for k in range(t.ndim)]
        count = np.zeros(t.shape, np.int64)
        for column in thresholds.T:
            count += t >= column.reshape(shape)
        return np.asarray(least + step * count)

    return count_levels


def _count_grid(site: Site) -> Integers:
    thresholds, step, least = site["thresholds"], site["step"], site["least"]
    return Integers.between(least, least + step * thresholds.shape[1], site["out_scale"], 0.0, step)


# Trunc of QONNX: the low bits of codes are dropped.


def _drop_bits(site: Site, x: Quantity) -> Quantity:
    whole = _whole_codes(site, x)
    nearest = site.maths.steps(
        rounding("ROUND", site.reference), whole, exactly=lambda mask: _in_fractions(site, _whole_codes, mask)
    )
    return site.maths.constant(nearest) / site.maths.constant(site["divisor"])


def _whole_codes(site: Site, x: Quantity) -> Quantity:
    maths = site.maths
    scale, zero = (maths.cast(maths.constant(site[k]), site["real"]) for k in ("scale", "zero"))
    return x / scale + zero


def _truncate_step(site: Site) -> _StepFunction:
    low, high, mode = site["low"], site["high"], rounding(site["rounding"], site.reference)
    return lambda t: np.clip(mode(t), low, high)


def _truncate_grid(site: Site) -> Integers:
    """Return the range of truncated integers, wider by one at both ends where the scales do not cancel."""
    grid, kind = _quantizer_grid(site), site.inputs[0].type
    if not isinstance(kind, Integers):
        return grid
    ratio = kind.scale / site["scale"]
    ends = (((end - kind.zero) * ratio + site["zero"]) / site["divisor"] for end in (kind.low, kind.high))
    spare = 0 if (ratio == 1).all() else 1
    low, high = (
        _truncate_step(site)(_truncate_step(site)(end) + more) for end, more in zip(ends, (-spare, spare), strict=True)
    )
    return Integers.between(compress(low), compress(high), grid.scale, grid.zero)


def _view_operator() -> Operator:
    """Return the row of a view: integers on another grid, dequantized, or of the file without their zero point."""

    def infer(site: Site) -> list[Edge]:
        kind = site.inputs[0].integers
        grid = Integers.between(kind.low, kind.high, site["scale"], site["zero"], kind.step)
        return [site.output_edge(broadcast_shape(site), grid, site["dtype"])]

    return Operator("view", "step", infer, lambda site, value: [value], monotone=True)


ROWS = (
    step_operator("round", _unscale, _rounding_step, _rounded_grid),
    step_operator("quantize", _divide_by_scale, _quantize_step, _quantizer_grid),
    step_operator("requantize", _rescale, _requantize_step, _quantizer_grid),
    step_operator("add_codes", _add_codes, _add_codes_step, _quantizer_grid),
    _multiply_shift_operator(),
    _lookup_operator(),
    step_operator("multi_threshold", _unscale, _count_step, _count_grid),
    step_operator("trunc", _drop_bits, _truncate_step, _truncate_grid),
    _view_operator(),
)

"""Rows of pools, reductions along axes, softmax and ranking."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitsynth.graph.arithmetic import Interval, Quantity
from bitsynth.graph.operators.site import Operator, Site, floats_hold
from bitsynth.graph.operators.windows import SlidingWindow
from bitsynth.graph.ranges import is_per_channel
from bitsynth.graph.types import INT32, Edge, Integers, Reals, Shape, Tensor


def _pool_shape(site: Site) -> Shape:
    """Return the shape of a pool's output; SpecError if the window does not fit."""
    x, window = site.inputs[0], site["window"]
    if len(x.shape) != len(window.kernel) + 2:
        raise site.fail(f"an image {x.shape} does not have {len(window.kernel)} axes after two")
    out = window.count(x.shape[2:])
    if min(out, default=1) < 1:
        raise site.fail(f"an image of {x.shape[2:]} is smaller than the window {window.reach}")
    return (*x.shape[:2], *out)


def _limits_by_channel(kind: Integers, rank: int) -> Integers:
    """Return integers whose limits are by channel, or one for all."""
    low, high = (b if is_per_channel(b, rank) else f(b) for f, b in ((np.min, kind.low), (np.max, kind.high)))
    return Integers(np.asarray(low), np.asarray(high), kind.scale, kind.zero, kind.step)


def _infer_max_pool(site: Site) -> list[Edge]:
    kind = site.inputs[0].type
    if isinstance(kind, Integers):
        kind = _limits_by_channel(kind, len(site.inputs[0].shape)) if kind.has_one_grid else Reals()
    return [site.output_edge(_pool_shape(site), kind)]


def _least_number(array: Tensor) -> Any:
    """Return a number that is below all others of an array's type, as padding."""
    if array.dtype.kind in "iu":
        return np.iinfo(array.dtype).min
    return float("-inf")


def _max_pool(site: Site, value: Any) -> list[Any]:
    window: SlidingWindow = site["window"]
    axes = tuple(range(len(site.inputs[0].shape), 2 * len(site.inputs[0].shape) - 2))

    def greatest(image: Tensor) -> Tensor:
        return np.asarray(window.extract(image, _least_number(image)).max(axes))

    if isinstance(site.outputs[0].type, Integers):
        return [greatest(value)]
    return [site.maths.move(greatest, *site.numbers([value]))]


def _infer_sum_pool(site: Site) -> list[Edge]:
    count = int(np.prod(site["window"].kernel))
    return [_sum_edge(site, _pool_shape(site), count, padded=True)]


def _sum_edge(site: Site, shape: Shape, count: int, *, padded: bool) -> Edge:
    """Return the edge of sums of at most `count` elements, bounded by `count` times the limits of an element."""
    kind = site.inputs[0].type
    if not isinstance(kind, Integers) or kind.scale.size != 1 or not kind.is_centred:
        return site.output_edge(shape, Reals())
    low, high = (np.asarray(f(b - kind.zero), np.int64) for f, b in ((np.min, kind.low), (np.max, kind.high)))
    low, high = (np.minimum(low, 0), np.maximum(high, 0)) if padded else (low, high)
    sums = Integers(low * count, high * count, kind.scale.reshape(()))
    return site.output_edge(shape, sums if floats_hold(site, sums, "float64") else Reals())


def _sum_pool(site: Site, value: Any) -> list[Any]:
    window: SlidingWindow = site["window"]
    rank = len(site.inputs[0].shape)
    axes = tuple(range(rank, 2 * rank - 2))
    at, number = _summands(site, value)
    sums = at.maths.sum(at.maths.move(lambda x: window.extract(x, 0), number), axes)
    sums = at.maths.move(lambda x: x.reshape(site.outputs[0].shape), sums)
    return _round_sum(site, sums)


def _summands(site: Site, value: Any) -> tuple[Site, Quantity]:
    """Return the site and the numbers to sum: integers minus their zero point, or real numbers."""
    kind = site.inputs[0].type
    if isinstance(site.outputs[0].type, Integers) and isinstance(kind, Integers):
        return site.in_floats(), value - kind.zero.astype(np.int64)
    return site, site.numbers([value])[0]


def _round_sum(site: Site, total: Quantity) -> list[Any]:
    """Return a sum as integers, or rounded to the type of the file."""
    if isinstance(site.outputs[0].type, Integers):
        return [np.asarray(total).astype(np.int64)]
    return [site.maths.cast(total, site.outputs[0].dtype)]


def _reduced_shape(site: Site) -> Shape:
    return tuple(1 if k in site["axes"] else n for k, n in enumerate(site.inputs[0].shape))


def _infer_reduce_sum(site: Site) -> list[Edge]:
    count = int(np.prod([site.inputs[0].shape[k] for k in site["axes"]]))
    return [_sum_edge(site, _reduced_shape(site), count, padded=False)]


def _sum(site: Site, value: Any) -> list[Any]:
    at, number = _summands(site, value)
    return _round_sum(site, at.maths.sum(number, site["axes"]))


def _extreme_operator(name: str) -> Operator:
    def infer(site: Site) -> list[Edge]:
        kind = site.inputs[0].type
        if isinstance(kind, Integers):
            same = kind.has_one_grid
            kind = Integers.between(kind.least, kind.most, kind.scale, kind.zero, kind.step) if same else Reals()
        return [site.output_edge(_reduced_shape(site), kind)]

    def run(site: Site, value: Any) -> list[Any]:
        if isinstance(site.outputs[0].type, Integers):
            return [getattr(value, name)(site["axes"], keepdims=True)]
        return [getattr(site.maths, name)(site.numbers([value])[0], site["axes"])]

    return Operator(f"reduce_{name}", "reduction", infer, run)


def _softmax(site: Site, value: Any) -> list[Any]:
    (x,), maths, axes = site.numbers([value]), site.maths, site["axes"]
    powers = maths.call("exp", x - maths.max(x, axes))
    return [maths.cast(powers / maths.sum(powers, axes), site.outputs[0].dtype)]


def _infer_softmax(site: Site) -> list[Edge]:
    return [site.output_edge(site.inputs[0].shape, Reals())]


_REDUCED_BITS = 12
"""The bits that powers lose before they are added, so that int32 holds their sum."""


def reciprocal(total: Tensor) -> Tensor:
    """Return 2^62 / (total * 2^zeros) in 31 bits, where `zeros` are the leading zeros of a sum in 32 bits.

    As `GetReciprocal` of TensorFlow Lite: three steps of Newton's method on 1 / (1 + x) in fixed point (gemmlowp,
    `one_over_one_plus_x_for_x_in_0_1`).
    """
    x = total * np.left_shift(1, leading_zeros(total)) - (1 << 31)
    half = (x + (1 << 31)) >> 1
    estimate: Tensor = 1515870810 + high_product(half, np.asarray(-1010580540))
    for _ in range(3):
        step = high_product(estimate, (1 << 29) - high_product(half, estimate))
        estimate = estimate + np.clip(4 * step, *INT32)
    doubled: Tensor = np.clip(2 * estimate, *INT32)
    return doubled


def leading_zeros(total: Tensor) -> Tensor:
    """Return the leading zeros of positive numbers in 32 bits."""
    return np.asarray(32 - np.frexp(total.astype(np.float64))[1], np.int64)


def high_product(a: Tensor, b: Tensor) -> Tensor:
    """Return a * b / 2^31 to nearest, ties up (`SaturatingRoundingDoublingHighMul` of gemmlowp)."""
    return np.asarray((a * b + (1 << 30)) >> 31)


def _softmax_codes(site: Site, value: Tensor) -> list[Tensor]:
    """Return a softmax of int8 codes, as the reference kernel of TensorFlow Lite computes it in integers.

    `powers[d]` is e^-(scale * d) in 31 bits, for a code that is `d` below the greatest of its row.
    """
    axes, low, high = site["axes"], site["low"], site["high"]
    powers = site["powers"][value.max(axes, keepdims=True) - value]
    total = ((powers + (1 << (_REDUCED_BITS - 1))) >> _REDUCED_BITS).sum(axes, keepdims=True)
    shift = _REDUCED_BITS - leading_zeros(total) + 31 - 8
    numbers = (high_product(reciprocal(total), powers) + np.left_shift(1, shift - 1)) >> shift
    return [np.clip(numbers + low, low, high)]


def _infer_softmax_codes(site: Site) -> list[Edge]:
    kind, count = site.inputs[0].type, int(np.prod([site.inputs[0].shape[k] for k in site["axes"]]))
    if not isinstance(kind, Integers) or kind.most - kind.least >= len(site["powers"]):
        raise site.fail("its input does not carry codes of 8 bits")
    if count >= 1 << _REDUCED_BITS:
        raise site.fail(f"{count:,} codes along its axis, whose powers int32 does not add up")
    return [site.output_edge(site.inputs[0].shape, Integers.between(site["low"], site["high"]))]


def _infer_rank(site: Site) -> list[Edge]:
    shape = list(site.inputs[0].shape)
    axis, count = site["axis"], site["k"]
    if not 0 < count <= shape[axis]:
        raise site.fail(f"asks for {count} of {shape[axis]}")
    places = Integers.between(0, max(0, shape[axis] - 1))
    shape[axis] = count
    kind = site.inputs[0].type
    values = kind if not isinstance(kind, Integers) or kind.has_one_grid else Reals()
    values = (
        Integers.between(values.least, values.most, values.scale, values.zero)
        if isinstance(values, Integers)
        else values
    )
    return [site.output_edge(tuple(shape), values), site.output_edge(tuple(shape), places, "int64", 1)]


def _rank(site: Site, value: Any) -> list[Any]:
    """Return the `k` greatest or least numbers along an axis, in order, and their indices.

    Of equal numbers the first is taken, or the last if the node says so.
    """
    axis, count, sign = site["axis"], site["k"], -1 if site["largest"] else 1
    keys = _sort_keys(site, value) * sign
    flipped = np.flip(keys, axis) if site["last"] else keys
    order = np.argsort(flipped, axis, kind="stable").take(range(count), axis)
    if site["last"]:
        order = keys.shape[axis] - 1 - order
    if isinstance(site.outputs[0].type, Integers):
        return [np.take_along_axis(value, order, axis), order]
    (x,) = site.numbers([value])
    return [site.maths.move(lambda a: np.take_along_axis(a, order, axis), x), order]


def _sort_keys(site: Site, value: Any) -> Tensor:
    """Return numbers in the order of the values; intervals that overlap are compared as fractions."""
    (x,) = site.numbers([value])
    if not isinstance(x, Interval):
        return np.asarray(x)
    if x.is_point:
        return x.low
    assert site.exactly is not None
    (exact,) = site.exactly(np.ones(x.shape, bool))
    _, places = np.unique(exact, return_inverse=True)
    keys: Tensor = places.reshape(x.shape)
    return keys


ROWS = (
    Operator("max_pool", "pool", _infer_max_pool, _max_pool, monotone=True),
    Operator("sum_pool", "pool", _infer_sum_pool, _sum_pool, monotone=True),
    Operator("reduce_sum", "reduction", _infer_reduce_sum, _sum),
    _extreme_operator("max"),
    _extreme_operator("min"),
    Operator("softmax", "reduction", _infer_softmax, _softmax),
    Operator("softmax_codes", "reduction", _infer_softmax_codes, _softmax_codes),
    Operator("rank", "reduction", _infer_rank, _rank),
)

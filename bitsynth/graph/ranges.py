"""Ranges of accumulators of products, channel by channel, computed from constant weights.

Example: with the weights 2 and -1, and inputs from 0 to 15, the accumulator lies between -15 and 30.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bitsynth.graph.types import Edge, Integers, Shape, Tensor, compress

if TYPE_CHECKING:
    from bitsynth.graph.operators.site import Site

_MAX_BOUND = 2.0**62


def infer_convolution(site: Site) -> Integers | None:
    """Return the type of a convolution's accumulators; None if they are real numbers.

    They are integers if both factors are, on scales that are constant along the sum. Channels of the image may have
    different scales where no sum has two of them, as in depthwise convolutions. With padding, a window may hold zeros.
    """
    kinds = site.integers()
    if kinds is None or not all(k.is_centred for k in kinds):
        return None
    x, w = kinds
    window = site["window"]
    axes = len(site.inputs[0].shape)
    of_x = _scale_by_group(x.scale, site.inputs[0].shape, site["groups"])
    if of_x is None or not _varies_along_only(w.scale, (0,), axes):
        return None
    low, high = _image_range(x, axes, padded=any(window.begins) or any(window.ends) or window.ceil)
    bounds = _weight_bounds(site, 1, w)
    sums = [bound_sums(np.broadcast_to(b, site.inputs[1].shape), low, high, site["groups"]) for b in bounds]
    of_x = of_x if of_x.size == 1 else np.repeat(of_x, site.inputs[1].shape[0] // of_x.size)
    scale = _scale_by_channel(of_x * w.scale.reshape(-1), axes)
    bounds_of_channels = np.minimum.reduce([s[0] for s in sums]), np.maximum.reduce([s[1] for s in sums])
    least, most = (compress(b.reshape(1, -1, *[1] * (axes - 2))) for b in bounds_of_channels)
    return Integers(least, most, scale)


def find_real_factor(site: Site) -> tuple[Edge | None, str]:
    """Return the factor that makes a product one of real numbers, and the reason; None if only both do together."""
    for edge, value in zip(site.inputs, site.given, strict=True):
        kind, what = edge.type, "weights" if value is not None else "activations"
        if not isinstance(kind, Integers):
            return edge, f"{what} {edge.name} are {edge.dtype}, on no grid"
        if not kind.is_centred:
            return edge, f"zero points of {edge.name} are not whole numbers"
    names = " or ".join(e.name for e in site.inputs)
    return None, f"scales of {names} differ along the sum"


def is_per_channel(bound: Tensor, rank: int) -> bool:
    """Return whether a bound of an edge of `rank` axes is one number, or differs along channels (axis 1) alone."""
    return bound.ndim == 0 or (bound.ndim == rank and all(n == 1 for k, n in enumerate(bound.shape) if k != 1))


def _image_range(x: Integers, rank: int, *, padded: bool) -> tuple[Tensor, Tensor]:
    """Return the least and the greatest element minus the zero point, for each channel or for all."""
    low, high = (x.low - x.zero).astype(np.int64), (x.high - x.zero).astype(np.int64)
    if not (is_per_channel(low, rank) and is_per_channel(high, rank)):
        low, high = np.asarray(low.min()), np.asarray(high.max())
    low, high = low.reshape(-1), high.reshape(-1)
    return (np.minimum(low, 0), np.maximum(high, 0)) if padded else (low, high)


def _weight_bounds(site: Site, index: int, kind: Integers) -> list[Tensor]:
    """Return constant weights minus their zero points; of other weights the least and the greatest."""
    value = site.given[index]
    ends = [kind.low, kind.high] if value is None else [value]
    return [(end - kind.zero).astype(np.int64) for end in ends]


def bound_sums(weights: Tensor, low: Tensor, high: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Return the least and the greatest sum for each output channel, for inputs from `low` to `high`.

    `weights` are (OC, IC / groups, ...); `low` and `high` are one number, or one for each input channel.
    """
    if low.size == high.size == 1:
        flat = weights.reshape(1, weights.shape[0], 1, -1)
    else:
        low, high = (np.broadcast_to(b, weights.shape[1] * groups).reshape(groups, 1, -1) for b in (low, high))
        flat = weights.reshape(groups, weights.shape[0] // groups, weights.shape[1], -1)
    up = np.maximum(flat, 0).sum(3)
    down = flat.sum(3) - up
    least, most = (up * a + down * b for a, b in ((low, high), (high, low)))
    return least.sum(2).reshape(-1), most.sum(2).reshape(-1)


def infer_matmul(site: Site) -> Integers | None:
    """Return the type of a matrix product's accumulators; None if they are real numbers."""
    kinds = site.integers()
    if kinds is None or not all(k.is_centred for k in kinds):
        return None
    a, b = kinds
    rows, columns = (e.shape for e in site.inputs)
    whole = min(len(rows), len(columns)) > 1
    if (
        not _is_constant_along(a.scale, -1, rows)
        or not _is_constant_along(b.scale, -2, columns)
        or (not whole and a.scale.size * b.scale.size > 1)
    ):
        return None
    first, second = site.given
    if whole and first is None and second is not None:
        least, most = _bound_columns(a, _subtract_zero(b, second, columns))
    elif whole and second is None and first is not None:
        bounds = _bound_columns(b, _subtract_zero(a, first, rows).swapaxes(-1, -2), -2)
        least, most = (bound.swapaxes(-1, -2) for bound in bounds)
    else:
        ends = [[end - k.zero for end in (k.low, k.high)] for k in (a, b)]
        products = [f(x) * g(y) for x in ends[0] for y in ends[1] for f in (np.min, np.max) for g in (np.min, np.max)]
        least, most = (_clamp(f(products) * rows[-1]) for f in (min, max))
    return Integers(compress(least), compress(most), compress(a.scale * b.scale))


def _clamp(bound: float) -> Tensor:
    """Return a bound as an integer, clamped to a range far beyond int32."""
    return np.asarray(min(max(bound, -_MAX_BOUND), _MAX_BOUND), np.int64)


def _subtract_zero(kind: Integers, value: Tensor, shape: Shape) -> Tensor:
    """Return constants minus their zero points."""
    return np.broadcast_to((value - kind.zero).astype(np.int64), shape)


def _bound_columns(a: Integers, weights: Tensor, axis: int = -1) -> tuple[Tensor, Tensor]:
    """Return bounds (..., 1, N) of sums of a factor, whose limits may differ along K, with weights (..., K, N)."""
    low, high = (a.low - a.zero).astype(np.int64), (a.high - a.zero).astype(np.int64)
    along = all(b.ndim == 0 or (b.ndim >= -axis and b.size == b.shape[axis] == weights.shape[-2]) for b in (low, high))
    if along:
        low, high = (b.reshape(-1, 1) for b in (low, high))
    else:
        low, high = np.asarray(low.min()), np.asarray(high.max())
    ends = weights * low, weights * high
    return np.minimum(*ends).sum(-2, keepdims=True), np.maximum(*ends).sum(-2, keepdims=True)


def _varies_along_only(scale: Tensor, axes: tuple[int, ...], count: int) -> bool:
    """Return whether a scale that broadcasts to `count` axes varies along `axes` alone."""
    first = count - scale.ndim
    return all(n == 1 or k + first in axes for k, n in enumerate(scale.shape))


def _is_constant_along(scale: Tensor, axis: int, shape: Shape) -> bool:
    """Return whether a scale is constant along an axis, and has as many axes as the factor or is one number."""
    return scale.size == 1 or (scale.ndim == len(shape) and scale.shape[axis] == 1)


def _scale_by_group(scale: Tensor, shape: Shape, groups: int) -> Tensor | None:
    """Return the scale of an image, one for all or one a group; None if scales differ within a group."""
    if scale.size == 1:
        return scale.reshape(1)
    if not _varies_along_only(scale, (1,), len(shape)):
        return None
    by_group = scale.reshape(groups, -1)
    return by_group[:, 0] if (by_group == by_group[:, :1]).all() else None


def _scale_by_channel(scale: Tensor, axes: int) -> Tensor:
    """Return the scales of weights (OC, 1, ...) as scales of accumulators (1, OC, ...)."""
    return scale.reshape(()) if scale.size == 1 else scale.reshape(1, -1, *[1] * (axes - 2))

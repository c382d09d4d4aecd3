"""The constants of a layer as the C runtime reads them: packed weights and arrays over output channels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.correction_terms import doublings, remaining
from bitsynth.emit.packing import packing
from bitsynth.emit.runtime_abi import ARRAYS, Number, describe
from bitsynth.errors import SpecError
from bitsynth.kernel.packing import Codes, multiply_neighbours, tiles
from bitsynth.kernel.program import Kernel
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.weight_zeros import row_scale
from bitsynth.spec.matmul import INT32_MAX, MatmulOperand, MatmulSpec, affine

ALIGN = 64


@dataclass(frozen=True, eq=False)
class Constants:
    """Numbers and arrays of `struct bs_layer`, by name."""

    numbers: Mapping[str, Number]
    arrays: Mapping[str, NDArray[Any]]

    def blob(self) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return the numbers that describe the layer (`runtime_abi.described`), int64, and the arrays' bytes, uint8."""
        starts: dict[str, int] = {}
        parts, size = [np.zeros(0, np.uint8)], 0  # A layer without weights may have no arrays.
        for name in (name for name, _ in ARRAYS if name in self.arrays):
            array, starts[name] = self.arrays[name], size
            parts.append(np.frombuffer(array.tobytes().ljust(-(-array.nbytes // ALIGN) * ALIGN, b"\0"), np.uint8))
            size += parts[-1].size
        return np.array(describe(self.numbers, starts), np.int64), np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class Offset:
    """Numbers that are added to products: `bias`, an int64 for each channel, and the zero point of activations."""

    bias: NDArray[np.int64]
    zero_point: int = 0


@dataclass(frozen=True)
class Form:
    """The properties that constants depend on: the convolution algorithm, and `unit`, the columns computed at once.

    If the epilogue `folds` the encodings' correction, it is not among the constants.
    """

    conv_algorithm: str
    unit: int = 1
    folds: bool = False


def constants(
    kernel: Kernel, spec: MatmulSpec, geometry: Geometry, weight: Codes, offset: Offset, form: Form
) -> Constants:
    """Return the constants that do not depend on the epilogue; `weight` (columns, IC / groups, KH, KW) holds codes.

    Columns are output channels, in any order within a group. Arrays over them have, in each group, room for whole tiles
    and for whole units. SpecError if sums with their offset may leave int32.
    """
    width = width_of(kernel, geometry, form.unit)
    per_tap = _by_group(geometry, weight.transpose(0, 2, 3, 1))
    joined = has_joined_taps(kernel, geometry, form.conv_algorithm)
    taken = 1 if form.conv_algorithm == "im2col" else geometry.kernel[0] if joined else per_tap.shape[2]
    runs = per_tap.reshape(*per_tap.shape[:2], taken, -1)
    arrays: dict[str, NDArray[Any]] = {
        "weights": np.concatenate([tiles(kernel, _steps(kernel, _whole_tiles(kernel, x))) for x in runs]),
        "start": _by_width(geometry, width, _starts(kernel, weight, runs)),
    }
    arrays["start"] <<= doublings(kernel, spec)
    correction, more = remaining(kernel, spec), column_terms(spec, weight, offset)
    require_int32(spec, geometry, weight, offset)
    if correction.factor == 1:
        arrays["start"] += _by_width(geometry, width, more)
    if not form.folds and not correction.is_identity:
        arrays["affine"] = _by_width(geometry, width, more if correction.factor != 1 else np.zeros_like(more))
    terms = padding_terms(spec.act, spec.wgt, geometry, offset)
    if terms.any():
        sums = padding_sums(width, terms, geometry, per_tap) << correction.shift
        arrays["padding"] = to_int32(sums // correction.factor if form.folds else sums)
    numbers = sizes(geometry, spec.act, pad_code_of(spec.act, offset.zero_point))
    numbers |= {"out_places": width, "joined_taps": int(joined)} | row_scale(kernel, spec)
    return Constants(numbers | {"factor": correction.factor, "shift": correction.shift}, arrays)


def _starts(kernel: Kernel, weight: Codes, runs: Codes) -> NDArray[np.int64]:
    """Return the terms (columns,) of weights (groups, columns, runs, codes); neighbouring codes may have products."""
    terms: NDArray[np.int64] = np.array(kernel.column_terms, np.int64)[weight].sum(axis=(1, 2, 3))
    terms += kernel.cross_terms * multiply_neighbours(runs).sum(axis=2).reshape(-1)
    return terms


def has_joined_taps(kernel: Kernel, geometry: Geometry, conv_algorithm: str) -> bool:
    """Return whether neighbouring taps of a row are packed as one run of codes.

    That takes fewer steps; or as many, but lines are then copied as a whole, where codes of a pixel fill no whole steps
    and no sums of them are wanted.
    """
    channels, wide = geometry.in_channels // geometry.groups, geometry.kernel[1]
    if conv_algorithm != "direct" or geometry.dilation[1] > 1 or kernel.bit_axis != "inner":
        return False
    if kernel.cross_terms:
        return False  # Neighbours would be of two pixels, and other pixels' codes count behind a row's own.
    joined, apart = -(-wide * channels // kernel.k_step), wide * -(-channels // kernel.k_step)
    copied = wide > 1 and channels % kernel.k_step > 0 and not any(kernel.row_terms)
    return (joined < apart or (joined == apart and copied)) and packing(kernel).is_of_codes


def width_of(kernel: Kernel, g: Geometry, unit: int) -> int:
    """Return the length of a group in arrays over output channels."""
    channels = g.out_channels // g.groups
    return max(-(-channels // size) * size for size in (kernel.columns, unit))


def added_terms(spec: MatmulSpec, weight: Codes, offset: Offset) -> NDArray[np.int64]:
    """Return the number (columns,) to add to each column's products; `weight` is (columns, IC / groups, KH, KW)."""
    of_weights: NDArray[np.int64] = values_of(spec.wgt)[weight].sum(axis=(1, 2, 3))
    return offset.bias - offset.zero_point * of_weights


def column_terms(spec: MatmulSpec, weight: Codes, offset: Offset) -> NDArray[np.int64]:
    """Return the correction (columns,) of the encodings for each column, bias and zero point included."""
    correction = affine(spec)
    terms: NDArray[np.int64] = np.array(correction.wgt_terms, np.int64)[weight].sum(axis=(1, 2, 3))
    return terms + (added_terms(spec, weight, offset) << correction.shift)


def padding_terms(act: MatmulOperand, wgt: MatmulOperand, geometry: Geometry, offset: Offset) -> NDArray[np.int64]:
    """Return what each weight code adds to a value if its tap is on padding, whose code has another value."""
    off = offset.zero_point - act.value(pad_code_of(act, offset.zero_point))
    return off * values_of(wgt) * any(geometry.padding)


def require_int32(spec: MatmulSpec, geometry: Geometry, weight: Codes, offset: Offset) -> None:
    """Raise SpecError if accumulators or their corrections may leave int32, at borders too."""
    most, room = _most_added(spec.wgt, geometry, weight, offset), INT32_MAX >> affine(spec).shift
    if most + geometry.depth * spec.max_product > room:
        raise SpecError(
            f"sums of {geometry.depth} products with a bias and zero point that add up to {most:,} may leave int32"
        )


def _most_added(wgt: MatmulOperand, g: Geometry, weight: Codes, offset: Offset) -> int:
    """Return the greatest absolute value of `added_terms` over all sets of taps that padding may leave.

    Weights that cancel each other out in the whole window need not do so at a border.
    """
    bias = offset.bias[:, None]
    if not offset.zero_point:
        return int(np.abs(bias).max())
    taps, (top, left, bottom, right) = values_of(wgt)[weight].sum(axis=1), g.padding
    cuts = [(top, bottom), (left, right)]
    ends = [(min(k, -(-a // d)), min(k, -(-b // d))) for (a, b), k, d in zip(cuts, g.kernel, g.dilation, strict=True)]
    if g.kernel[0] > g.kernel[1]:
        taps, ends = taps.swapaxes(1, 2), ends[::-1]
    before = np.pad(taps, ((0, 0), (1, 0), (1, 0))).cumsum(axis=1).cumsum(axis=2)
    (above, below), (front, behind) = ends
    high, wide = taps.shape[1:]
    most = 0
    for first in range(above + 1):
        lines = before[:, high - below :] - before[:, [first]]
        starts, stops = lines[:, :, : front + 1], lines[:, :, wide - behind :]
        least = (stops.min(axis=2) - starts.max(axis=2)).min(axis=1)
        greatest = (stops.max(axis=2) - starts.min(axis=2)).max(axis=1)
        added = bias - offset.zero_point * np.stack([least, greatest], axis=1)
        most = max(most, int(np.abs(added).max()))
    return most


def pad_code_of(act: MatmulOperand, zero_point: int) -> int:
    """Return the code of the zero point; 0 if it has none: padding is then corrected tap by tap."""
    return next((code for code in act.codes if act.value(code) == zero_point), 0)


def values_of(operand: MatmulOperand) -> NDArray[np.int64]:
    """Return the values of all codes, used or not."""
    return np.array([operand.value(code) for code in range(1 << operand.bits)], np.int64)


def sizes(g: Geometry, act: MatmulOperand, pad_code: int) -> dict[str, Number]:
    """Return channels of a group, the window, and the codes of activations and padding."""
    channels: dict[str, Number] = {
        "groups": g.groups,
        "in_channels": g.in_channels // g.groups,
        "out_channels": g.out_channels // g.groups,
    }
    return {**channels, **g.window(), "act_bits": act.bits, "pad_code": pad_code}


def _by_group(g: Geometry, weight: Codes) -> Codes:
    """Return (groups, OC / groups, taps, IC / groups) of (OC, KH, KW, IC / groups)."""
    return weight.reshape(g.groups, g.out_channels // g.groups, -1, weight.shape[-1])


def _whole_tiles(kernel: Kernel, x: NDArray[Any]) -> NDArray[Any]:
    """Return weights padded with columns of code 0 to whole tiles."""
    return np.concatenate([x, np.zeros((-len(x) % kernel.columns, *x.shape[1:]), x.dtype)])


def _steps(kernel: Kernel, codes: Codes) -> Codes:
    """Return codes (OC, runs, codes) as (OC, steps, k_step): runs padded to whole steps, in the order of packed rows.

    The padding is 0, as rows may have codes of other pixels there.
    """
    count = -(-codes.shape[2] // kernel.k_step)
    out = np.full((*codes.shape[:2], count * kernel.k_step), idle_code(kernel), np.uint8)
    out[:, :, : codes.shape[2]] = codes
    return out.reshape(len(codes), -1, kernel.k_step)[..., list(packing(kernel).order)]


def idle_code(kernel: Kernel) -> int:
    """Return the code of weights whose products are 0, which pads columns to whole steps."""
    return next((x.zero for x in kernel.passes[0].columns), 0)


def whole(x: NDArray[Any], width: int, fill: int = 0) -> NDArray[Any]:
    """Return `x` with its last axis padded to `width`."""
    return np.pad(x, [*[(0, 0)] * (x.ndim - 1), (0, width - x.shape[-1])], constant_values=fill)


def _by_width(g: Geometry, width: int, columns: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return (groups, width) of (columns,)."""
    return to_int32(whole(columns.reshape(g.groups, -1), width))


def padding_sums(width: int, terms: NDArray[np.int64], g: Geometry, per_tap: Codes) -> NDArray[np.int64]:
    """Return the correction (groups, KH + 1, KW + 1, width) of taps on padding; each code adds one of `terms`.

    Each is the sum over the taps above and left of it.
    """
    values = terms[per_tap].sum(axis=3)
    taps = values.reshape(*values.shape[:2], *g.kernel)
    sums = np.pad(taps, ((0, 0), (0, 0), (1, 0), (1, 0))).cumsum(axis=2).cumsum(axis=3)
    return whole(sums.transpose(0, 2, 3, 1), width)


def to_int32(x: NDArray[Any]) -> NDArray[np.int32]:
    """Return an array as int32, contiguous."""
    return np.ascontiguousarray(x.astype(np.int32))

"""The constants of a layer: packed weights and what belongs to its channels, as the C runtime reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.packing import packing
from bitsynth.emit.runtime_abi import ARRAYS, Number, described
from bitsynth.emit.terms import doublings, remaining
from bitsynth.errors import SpecError
from bitsynth.kernel.packing import Codes, crossed, tiles
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
        """The numbers that describe the layer (`runtime_abi.described`), int64; then the arrays' bytes, uint8."""
        starts: dict[str, int] = {}
        parts, size = [], 0
        for name in (name for name, _ in ARRAYS if name in self.arrays):
            array, starts[name] = self.arrays[name], size
            parts.append(np.frombuffer(array.tobytes().ljust(-(-array.nbytes // ALIGN) * ALIGN, b"\0"), np.uint8))
            size += parts[-1].size
        return np.array(described(self.numbers, starts), np.int64), np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class Offset:
    """What sums have besides products: `bias`, one int64 a channel, and the activations' value that stands for 0."""

    bias: NDArray[np.int64]
    zero_point: int = 0


@dataclass(frozen=True)
class Form:
    """What constants are for: a convolution algorithm, results made of `unit` columns at once.

    The correction of the encodings is not among them if what makes results `folds` it.
    """

    conv_algorithm: str
    unit: int = 1
    folds: bool = False


def constants(
    kernel: Kernel, spec: MatmulSpec, geometry: Geometry, weight: Codes, offset: Offset, form: Form
) -> Constants:
    """The constants that do not depend on the epilogue; `weight` (columns, IC / groups, KH, KW) holds codes.

    Columns are output channels, in any order within a group. Arrays over them have, in each group, room for whole tiles
    and for whole units. SpecError if sums with their offset may leave int32.
    """
    width = _width(kernel, geometry, form.unit)
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
        arrays["padding"] = _int32(sums // correction.factor if form.folds else sums)
    numbers = sizes(geometry, spec.act, pad_code_of(spec.act, offset.zero_point))
    numbers |= {"out_places": width, "joined_taps": int(joined)} | row_scale(kernel, spec)
    return Constants(numbers | {"factor": correction.factor, "shift": correction.shift}, arrays)


def _starts(kernel: Kernel, weight: Codes, runs: Codes) -> NDArray[np.int64]:
    """(columns,) terms of the codes of weights, whose neighbours are those of (groups, columns, runs, codes)."""
    terms: NDArray[np.int64] = np.array(kernel.column_terms, np.int64)[weight].sum(axis=(1, 2, 3))
    terms += kernel.cross_terms * crossed(runs).sum(axis=2).reshape(-1)
    return terms


def has_joined_taps(kernel: Kernel, geometry: Geometry, conv_algorithm: str) -> bool:
    """Whether rows take taps beside each other as one run of codes: numbers as they lie, in fewer steps than apart."""
    channels, wide = geometry.in_channels // geometry.groups, geometry.kernel[1]
    if conv_algorithm != "direct" or geometry.dilation[1] > 1 or kernel.bit_axis != "inner":
        return False
    if kernel.cross_terms:
        return False  # Neighbours would be of two pixels, and other pixels' codes count behind a row's own.
    fewer = -(-wide * channels // kernel.k_step) < wide * -(-channels // kernel.k_step)
    return fewer and packing(kernel).is_of_codes


def _width(kernel: Kernel, g: Geometry, unit: int) -> int:
    """Places for the output channels of a group in arrays over them."""
    channels = g.out_channels // g.groups
    return max(-(-channels // size) * size for size in (kernel.columns, unit))


def added_terms(spec: MatmulSpec, weight: Codes, offset: Offset) -> NDArray[np.int64]:
    """(columns,): what a sum of products is to have more than it has; `weight` (columns, IC / groups, KH, KW)."""
    of_weights: NDArray[np.int64] = values_of(spec.wgt)[weight].sum(axis=(1, 2, 3))
    return offset.bias - offset.zero_point * of_weights


def column_terms(spec: MatmulSpec, weight: Codes, offset: Offset) -> NDArray[np.int64]:
    """(columns,): what the encodings' correction adds to a column, and what is added to its values."""
    correction = affine(spec)
    terms: NDArray[np.int64] = np.array(correction.wgt_terms, np.int64)[weight].sum(axis=(1, 2, 3))
    return terms + (added_terms(spec, weight, offset) << correction.shift)


def padding_terms(act: MatmulOperand, wgt: MatmulOperand, geometry: Geometry, offset: Offset) -> NDArray[np.int64]:
    """What each code of a weight adds to a value if its tap is on padding, which has no code of its own value."""
    off = offset.zero_point - act.value(pad_code_of(act, offset.zero_point))
    return off * values_of(wgt) * any(geometry.padding)


def require_int32(spec: MatmulSpec, geometry: Geometry, weight: Codes, offset: Offset) -> None:
    """SpecError if sums of products of any values, or what is added to them, may leave int32, at borders too."""
    most, room = _most_added(spec.wgt, geometry, weight, offset), INT32_MAX >> affine(spec).shift
    if most + geometry.depth * spec.max_product > room:
        raise SpecError(
            f"sums of {geometry.depth} products with a bias and zero point that add up to {most:,} may leave int32"
        )


def _most_added(wgt: MatmulOperand, g: Geometry, weight: Codes, offset: Offset) -> int:
    """The greatest absolute value of what `added_terms` are of the taps in the image, whichever are on padding.

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
    """The code of the zero point; 0 if it has none, which is then corrected tap by tap."""
    return next((code for code in act.codes if act.value(code) == zero_point), 0)


def values_of(operand: MatmulOperand) -> NDArray[np.int64]:
    """The values of all codes, in use or not."""
    return np.array([operand.value(code) for code in range(1 << operand.bits)], np.int64)


def sizes(g: Geometry, act: MatmulOperand, pad_code: int) -> dict[str, Number]:
    """Channels of a group, the window, and the codes of activations and padding."""
    channels: dict[str, Number] = {
        "groups": g.groups,
        "in_channels": g.in_channels // g.groups,
        "out_channels": g.out_channels // g.groups,
    }
    return {**channels, **g.window(), "act_bits": act.bits, "pad_code": pad_code}


def _by_group(g: Geometry, weight: Codes) -> Codes:
    """(groups, OC / groups, taps, IC / groups) of (OC, KH, KW, IC / groups)."""
    return weight.reshape(g.groups, g.out_channels // g.groups, -1, weight.shape[-1])


def _whole_tiles(kernel: Kernel, x: NDArray[Any]) -> NDArray[Any]:
    """Columns of code 0 behind the last, until the tile is full."""
    return np.concatenate([x, np.zeros((-len(x) % kernel.columns, *x.shape[1:]), x.dtype)])


def _steps(kernel: Kernel, codes: Codes) -> Codes:
    """(OC, steps, k_step) of (OC, runs, codes): each run padded to whole steps, in the order rows are packed in.

    What pads is bytes of 0: rows may have other pixels' codes there.
    """
    count = -(-codes.shape[2] // kernel.k_step)
    zero = next((x.zero for x in kernel.passes[0].columns), 0)
    out = np.full((*codes.shape[:2], count * kernel.k_step), zero, np.uint8)
    out[:, :, : codes.shape[2]] = codes
    return out.reshape(len(codes), -1, kernel.k_step)[..., list(packing(kernel).order)]


def whole(x: NDArray[Any], width: int, fill: int = 0) -> NDArray[Any]:
    """`x` with its last axis as long as `width`."""
    return np.pad(x, [*[(0, 0)] * (x.ndim - 1), (0, width - x.shape[-1])], constant_values=fill)


def _by_width(g: Geometry, width: int, columns: NDArray[np.int64]) -> NDArray[np.int32]:
    """(groups, width) of (columns,)."""
    return _int32(whole(columns.reshape(g.groups, -1), width))


def padding_sums(width: int, terms: NDArray[np.int64], g: Geometry, per_tap: Codes) -> NDArray[np.int64]:
    """(groups, KH + 1, KW + 1, width): the correction of taps on padding, of which each code has one of `terms`.

    Each is the sum over the taps above and left of it.
    """
    values = terms[per_tap].sum(axis=3)
    taps = values.reshape(*values.shape[:2], *g.kernel)
    sums = np.pad(taps, ((0, 0), (0, 0), (1, 0), (1, 0))).cumsum(axis=2).cumsum(axis=3)
    return whole(sums.transpose(0, 2, 3, 1), width)


def _int32(x: NDArray[Any]) -> NDArray[np.int32]:
    return np.ascontiguousarray(x.astype(np.int32))

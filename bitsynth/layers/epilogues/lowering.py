"""Lowering of epilogues to specs of elementwise programs: specs, the best first, with the arrays of their inputs.

A layer's value is v = (F * s + r + c) >> h of an accumulator s, the affine term r of its row and that of its column, c.
Programs take s itself: F, c and h go into their constants where that changes no result.

For thresholds this is always possible, if `can_fold` says so: v is above T exactly if F * s + r + c >= (T + 1) << h,
so for F = 1, or r = 0, if s + r is above ceil((((T + 1) << h) - c) / F) - 1. For F = 1 accumulators start from c.

Example: with F = 2, c = 5, h = 1 and r = 0 the threshold T = 3 of values becomes ceil((8 - 5) / 2) - 1 = 1 of
accumulators: s = 2 gives v = 4, s = 1 gives v = 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.terms import remaining, row_affines
from bitsynth.errors import SpecError
from bitsynth.kernel.packing import Codes
from bitsynth.kernel.program import Kernel
from bitsynth.layers.constants import Offset, column_terms, padding_terms
from bitsynth.layers.epilogues.base import INT32, Residual, broadcast_to_channels, factors
from bitsynth.layers.epilogues.kinds import Epilogue, FixedLine, FixedPoint, Requantize, Rescale, Scale, floats_of
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.spec import LayerSpec
from bitsynth.spec.elementwise import ElementwiseSpec
from bitsynth.spec.matmul import MatmulSpec
from bitsynth.spec.rescaling import CodeForm, Sum, fixed_point, gated, requantize, requantize_any, rescale, scale
from bitsynth.spec.residual import ELEMENTS, added, rounded, scaled

ProgramInputs = Mapping[str, NDArray[Any]]
"""Arrays (channels,) of the inputs of channels, () of what all elements share."""
_MIN_HALVED_EXACTLY = np.float32(2.0**-125)
"""float32 numbers of this size or more are halved exactly."""


@dataclass(frozen=True, eq=False)
class Sums:
    """Accumulators, and the affine function that gives their values: (factor * s + row + columns) >> shift.

    `row` says whether rows have affines. `bound` limits the absolute value of an accumulator with its row's affine.
    """

    factor: int
    columns: NDArray[np.int64]
    shift: int
    row: bool
    bound: int

    @property
    def are_values(self) -> bool:
        """Whether accumulators are the values themselves."""
        return self.factor == 1 and not (self.columns.any() or self.shift or self.row)


def lower_epilogue(
    epilogue: Scale | Requantize | Rescale | FixedPoint, sums: Sums, planes: int
) -> Iterator[tuple[ElementwiseSpec, ProgramInputs]]:
    """Yield specs that compute `epilogue`, with arrays of their inputs; as packed words if `planes` is not 0.

    A spec is left out if a constant does not fit; if accumulators are the values, all fit. With a residual, specs read
    values with the residual in place of accumulators: floats for `Rescale`.
    """
    if isinstance(epilogue, FixedPoint):
        yield from () if planes else _fixed(epilogue, sums)
    elif epilogue.residual is not None and isinstance(epilogue, Rescale):
        yield from _rounded(epilogue, _codes(epilogue, planes))
    elif isinstance(epilogue, Requantize):
        yield from _requantized(epilogue, sums, _codes(epilogue, planes))
    else:
        yield from _floats(epilogue, sums, planes)


def _rounded(epilogue: Rescale, codes: CodeForm) -> Iterator[tuple[ElementwiseSpec, ProgramInputs]]:
    yield rounded(codes), _limits(epilogue, codes)


def _codes(epilogue: Requantize | Rescale, planes: int) -> CodeForm:
    kind = {"uint8": "u8", "int8": "s8", "int16": "s16"}[epilogue.out_type.name]
    return CodeForm(kind, planes, moved=kind == "s16" and epilogue.zero_point != 0)


def _limits(epilogue: Requantize | Rescale, codes: CodeForm) -> ProgramInputs:
    """Return the inputs of the codes' range, and of their zero point."""
    low, high = epilogue.codes
    given = {"l": np.array(low, epilogue.out_type), "h": np.array(high, epilogue.out_type)}
    return {**given, "z": np.array(epilogue.zero_point, np.int16)} if codes.has_zero else given


def _floats(epilogue: Scale | Rescale, sums: Sums, planes: int) -> Iterator[tuple[ElementwiseSpec, ProgramInputs]]:
    """Of (factor * s + column) >> shift: s, or s and half the column, times the scale or a half or a double of it."""
    factor, columns, power = sums.factor, sums.columns, -sums.shift
    if factor == 2 and not (columns % 2).any():
        factor, columns, power = 1, columns // 2, power + 1
    if factor != 1 or sums.bound + np.abs(columns).max(initial=0) > INT32.max:
        return
    given = floats_of(epilogue, len(columns))
    factors = given["scale"]
    moved = factors * np.float32(2.0**power)
    if (power and not ((np.abs(factors) >= _MIN_HALVED_EXACTLY) | (factors == 0)).all()) or not np.isfinite(
        moved
    ).all():
        return
    inputs = {"m": moved.view(np.uint32)}
    value = Sum(row=sums.row, column=sums.row or bool(columns.any()))
    if value.column:
        inputs["c"] = columns.astype(np.int32)
    if "bias" in given:
        inputs["b"] = given["bias"].view(np.uint32)
    if isinstance(epilogue, Scale):
        yield scale(value, bias=True), inputs
        return
    codes = _codes(epilogue, planes)
    inputs.update(_limits(epilogue, codes))
    if epilogue.gate is None:
        yield rescale(value, codes, bias="b" in inputs), inputs
    else:
        g, a = np.array(epilogue.gate, np.float32).view(np.uint32)
        yield gated(value, codes), {**inputs, "g": np.asarray(g), "a": np.asarray(a)}


def _requantized(epilogue: Requantize, sums: Sums, codes: CodeForm) -> Iterator[tuple[ElementwiseSpec, ProgramInputs]]:
    """Of products s * (factor * m) + column * m, shifted further by the value's own shift: of 32 bits, or of 64."""
    limits = _limits(epilogue, codes)
    multiplier = broadcast_to_channels("multiplier", epilogue.multiplier, len(sums.columns), np.int32)
    given = [(int(m) * sums.factor, int(m) * int(c)) for m, c in zip(multiplier, sums.columns, strict=True)]
    half, shift = (1 << epilogue.shift) >> 1 << sums.shift, epilogue.shift + sums.shift
    even = epilogue.rounding == "even" and epilogue.shift > 0
    for wide in (False, True):
        product = _Product(given, half, shift).fitted(wide)
        made = product.inputs(sums.bound, wide, even)
        if made is not None:
            yield requantize(codes, row=sums.row, wide=wide, even=even), {**made, **limits}
    if sums.are_values:
        rounds: ProgramInputs = {"g": np.array(half - even, np.int64), "n": np.array(shift, np.int32)}
        yield requantize_any(codes, even=even), {"m": multiplier, **rounds, **limits}


def _fixed(epilogue: FixedPoint, sums: Sums) -> Iterator[tuple[ElementwiseSpec, ProgramInputs]]:
    """Of sums that are values but for their row's addend; as bytes."""
    if sums.factor != 1 or sums.shift or sums.columns.any():
        return
    channels = len(sums.columns)
    (m, k), ends = _wrapped(epilogue.line, channels), epilogue.window(channels)
    inputs = {"m": m, "k": k, **{name: x.astype(np.int32) for name, x in zip("ab", ends, strict=True)}}
    if epilogue.then:
        inputs |= {name: x.reshape(()) for name, x in zip("uv", _wrapped(epilogue.then, 1), strict=True)}
    yield fixed_point(Sum(row=sums.row), twice=epilogue.then is not None), inputs


def _wrapped(line: FixedLine, channels: int) -> Iterator[NDArray[np.int32]]:
    """Multipliers and summands as C has them: what products of int32 wrap by, sums wrap back."""
    return (x.astype(np.int32) for x in line.of(channels))


@dataclass(frozen=True)
class _Product:
    """(s * m + k + half) >> shift, with (m, k) of each channel: whole numbers of any size."""

    channels: list[tuple[int, int]]
    half: int
    shift: int

    def fitted(self, wide: bool) -> _Product:
        """Return the same: shifted by 32 or more of 64 bits; of 32 bits, as little as the multipliers allow."""
        if wide:
            up = max(0, 32 - self.shift)
            return _Product([(m << up, k << up) for m, k in self.channels], self.half << up, self.shift + up)
        down = min([self.half.bit_length() - 1 if self.half else 0, *(_zeros(m) for m, _ in self.channels)])
        down = min([down, *(_zeros(k) for _, k in self.channels)])
        return _Product([(m >> down, k >> down) for m, k in self.channels], self.half >> down, self.shift - down)

    def inputs(self, bound: int, wide: bool, even: bool) -> ProgramInputs | None:
        """Return the inputs of a spec for sums up to `bound`; None if they do not fit."""
        size, by = (64, self.shift - 32) if wide else (32, self.shift)
        most = max(abs(m) * bound + abs(k) for m, k in self.channels) + self.half + 1
        fits = all(INT32.min <= m <= INT32.max for m, _ in self.channels)
        if most >= 1 << (size - 1) or not fits or not 0 <= by <= 30:
            return None
        kind = np.dtype(f"i{size // 8}")
        ends = {"k": np.array([k + (0 if even else self.half) for _, k in self.channels], kind)}
        if even:
            ends["g"] = np.full(len(self.channels), self.half - 1, kind)
        return {"m": np.array([m for m, _ in self.channels], np.int32), **ends, "n": np.array(by, np.int32)}


def _zeros(x: int) -> int:
    """Zeros below the lowest set bit; many of 0."""
    return (x & -x).bit_length() - 1 if x else 62


def can_fold(kernel: Kernel, spec: MatmulSpec, geometry: Geometry, weight: Codes, offset: Offset) -> bool:
    """Return whether thresholds of values can be thresholds of sums: whatever rows add, and at borders.

    `weight` (OC, IC / groups, KH, KW) holds codes.
    """
    terms = remaining(kernel, spec)
    if terms.factor != 1 and row_affines(kernel, spec):
        return False
    borders = padding_terms(spec.act, spec.wgt, geometry, offset)[weight].sum(axis=1) << terms.shift
    return not (borders % terms.factor).any() and bound(kernel, spec, geometry, weight, offset) < INT32.max


def bound(kernel: Kernel, spec: MatmulSpec, geometry: Geometry, weight: Codes, offset: Offset) -> int:
    """Return the greatest absolute value of a sum with its row's addend, and with what borders add."""
    core, terms = spec.core, remaining(kernel, spec)
    if terms.factor == 1:
        return greatest(spec, weight, offset) << terms.shift
    product = core.act.max_abs * core.wgt.max_abs + ((1 << spec.act.bits) - 1) * abs(row_affines(kernel, spec))
    border = int(np.abs(padding_terms(spec.act, spec.wgt, geometry, offset)).max()) << terms.shift
    return geometry.depth * (product + border)


def greatest(spec: MatmulSpec | LayerSpec, weight: Codes, offset: Offset) -> int:
    """Return the greatest absolute value for any padding; `weight` (OC, IC / groups, KH, KW) holds codes."""
    ends = [spec.act.value(code) - offset.zero_point for code in (0, spec.act.codes[-1])]
    weights = np.abs(spec.wgt.decode(weight)).sum(axis=(1, 2, 3), dtype=np.int64)
    return int((weights * max(map(abs, ends)) + np.abs(offset.bias)).max(initial=0))


def fold_thresholds(sums: Sums, thresholds: NDArray[np.int64], rising: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Return (levels, OC) sorted thresholds of sums that say what `thresholds` say of values.

    Those of a channel that is not `rising` (OC) are thresholds of -1 - sum: a value is below T exactly if its sum, with
    the row's addend, is below ceil(((T << h) - c) / F). SpecError for thresholds below all of int32 of sums that go to
    its end: programs cannot say that even the last one is above.
    """
    least = ((thresholds + rising) << sums.shift) - sums.columns
    ends = -(-least // sums.factor)
    found: NDArray[Any] = np.where(rising, ends - 1, -1 - ends)
    if sums.bound >= INT32.max and (found < INT32.min).any():
        channel = np.argwhere(found < INT32.min)[0, 1]
        raise SpecError(
            f"thresholds of channel {channel} lie beyond int32, and the residual may bring sums to its end: "
            f"give levels from {INT32.min} to {INT32.max}"
        )
    return np.sort(found, axis=0).clip(INT32.min, INT32.max).astype(np.int32)


def accumulators_of_kernel(kernel: Kernel, spec: MatmulSpec, geometry: Geometry, weight: Codes, offset: Offset) -> Sums:
    """How values follow from the sums of a layer that `can_fold`."""
    terms, row = remaining(kernel, spec), row_affines(kernel, spec) != 0
    columns = np.zeros(len(weight), np.int64) if terms.factor == 1 else column_terms(spec, weight, offset)
    return Sums(terms.factor, columns, terms.shift, row, bound(kernel, spec, geometry, weight, offset))


def values_as_accumulators(spec: LayerSpec, weight: Codes, bias: NDArray[np.int64]) -> Sums:
    """Return values in the place of sums, where those cannot be told from them: as great as the weights allow."""
    most = min(greatest(spec, weight, Offset(bias, spec.zero_point)), int(INT32.max) - 1)
    return Sums(1, np.zeros(len(bias), np.int64), 0, False, most)


_MAX_FLOAT32 = float(np.finfo(np.float32).max)


def lower_residual(residual: Residual, epilogue: Epilogue, sums: Sums) -> tuple[ElementwiseSpec, ProgramInputs, Sums]:
    """Return the spec that adds the epilogue's residual to values `sums`, its inputs, and what values are then."""
    if isinstance(epilogue, Scale | Rescale):
        spec, inputs = scaled(ELEMENTS[residual.type]), _of_floats(residual, epilogue, sums)
        return spec, {x.name: inputs[x.name] for x in spec.inputs if x.name in inputs}, sums
    factor, ends = factors(residual, len(sums.columns), integers=True).astype(np.int64), np.iinfo(residual.type)
    most = int(np.abs(factor).max(initial=0)) * max(abs(int(end) - residual.zero_point) for end in (ends.min, ends.max))
    inputs = {"c": (-factor * residual.zero_point).astype(np.int32)}
    if (factor != 1).any():
        inputs["f"] = factor.astype(np.int32)
    spec = added(ELEMENTS[residual.type], factor="f" in inputs)
    return spec, inputs, replace(sums, bound=min(sums.bound + most, -int(INT32.min)))


def _of_floats(residual: Residual, epilogue: Scale | Rescale, sums: Sums) -> dict[str, NDArray[Any]]:
    """Return the inputs of a float32 spec; raise SpecError if sums times their scale may leave float32.

    They would be infinite, and no number with an infinite residual. Without a bias, -0 is added: that changes nothing.
    """
    channels = len(sums.columns)
    given = {"bias": np.full(channels, -0.0, np.float32), **floats_of(epilogue, channels)}
    most = np.abs(given["scale"].astype(np.float64)) * sums.bound + np.abs(given["bias"].astype(np.float64))
    if (most >= _MAX_FLOAT32).any():
        raise SpecError("sums times scale may leave float32: with a residual, they may not")
    floats = {"m": given["scale"], "b": given["bias"], "f": factors(residual, channels, integers=False)}
    zero = np.array(residual.zero_point, np.int32)
    return {**{name: x.view(np.uint32) for name, x in floats.items()}, "z": zero}

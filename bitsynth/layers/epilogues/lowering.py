"""Epilogues as elementwise programs read them: specs, the best first, and the arrays of their inputs.

A layer's values are (factor * s + column) >> shift of what the microkernel gives, s, with its row's addend. Programs
take s itself: factor, column and shift go into their constants, where that changes no result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.layers.epilogues.arguments import INT32, of_channels
from bitsynth.layers.epilogues.fixed_point import FixedLine, FixedPoint
from bitsynth.layers.epilogues.requantize import Requantize
from bitsynth.layers.epilogues.scaling import Rescale, Scale, floats_of
from bitsynth.spec.elementwise import ElementwiseSpec
from bitsynth.spec.rescaling import CodeForm, Sum, fixed_point, gated, requantize, requantize_any, rescale, scale
from bitsynth.spec.residual import rounded

ProgramInputs = Mapping[str, NDArray[Any]]
"""Arrays (channels,) of the inputs of channels, () of what all elements share."""
_SMALLEST = np.float32(2.0**-125)
"""float32 numbers of this size or more are halved exactly."""


@dataclass(frozen=True, eq=False)
class Sums:
    """How values follow from sums: with a `row`'s addend they are `bound` at most, without signs."""

    factor: int
    columns: NDArray[np.int64]
    shift: int
    row: bool
    bound: int

    @property
    def are_values(self) -> bool:
        """Whether they are the values."""
        return self.factor == 1 and not (self.columns.any() or self.shift or self.row)


def lowered(
    epilogue: Scale | Requantize | Rescale | FixedPoint, sums: Sums, planes: int
) -> Iterator[tuple[ElementwiseSpec, ProgramInputs]]:
    """Specs with arrays of their inputs that give the results of `epilogue`, as words if `planes` is not 0.

    None where a constant does not fit: of sums that are the values all do. With a residual, values that have it come
    in the place of sums, floats of `Rescale`.
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
    """The inputs of the codes' range, and of their zero point."""
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
    if (power and not ((np.abs(factors) >= _SMALLEST) | (factors == 0)).all()) or not np.isfinite(moved).all():
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
    multiplier = of_channels("multiplier", epilogue.multiplier, len(sums.columns), np.int32)
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
        """The same: shifted by 32 or more of 64 bits; of 32 bits, as little as the multipliers allow."""
        if wide:
            up = max(0, 32 - self.shift)
            return _Product([(m << up, k << up) for m, k in self.channels], self.half << up, self.shift + up)
        down = min([self.half.bit_length() - 1 if self.half else 0, *(_zeros(m) for m, _ in self.channels)])
        down = min([down, *(_zeros(k) for _, k in self.channels)])
        return _Product([(m >> down, k >> down) for m, k in self.channels], self.half >> down, self.shift - down)

    def inputs(self, bound: int, wide: bool, even: bool) -> ProgramInputs | None:
        """The inputs of a spec for sums up to `bound`; None if they do not fit."""
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

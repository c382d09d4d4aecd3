"""Fixed point: one or two affine functions in 32-bit integers, shifted to the right, of a clamped accumulator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.errors import SpecError
from bitsynth.layers.epilogues.accumulators import Accumulators, AskedProgram
from bitsynth.layers.epilogues.base import CodesEpilogue, store_read_only
from bitsynth.layers.epilogues.checks import INT32, broadcast_to_channels, copy_read_only, require_whole
from bitsynth.layers.epilogues.claimed import ClaimedFixedPoint
from bitsynth.layers.epilogues.residual import Residual
from bitsynth.spec.elementwise import ElementInput, ElementwiseSpec, SpecKind
from bitsynth.spec.matmul import MAX_BITS
from bitsynth.spec.rescaling import FIXED_SHIFT, ValueTerms


def fixed_point_spec(value: ValueTerms, *, twice: bool = False) -> ElementwiseSpec:
    """Return bytes of (x * m + k) >> FIXED_SHIFT, with x the value kept from a to b; products wrap.

    Done `twice`, the same is done again with u and v, which all channels share. The result is clamped to a byte.
    """
    code = _shift(f"smin(smax({value.text}, a), b) * m + k")
    return ElementwiseSpec(
        name=f"fixed{'_twice' if twice else ''}{value.name}_u8",
        inputs=(
            *value.inputs,
            *(ElementInput(x, "s32", "channel") for x in "abmk"),
            *(ElementInput(x, "s32", "all") for x in ("uv" if twice else "")),
        ),
        meaning=f"uclamp({_shift(f'{code} * u + v') if twice else code}, 8)",
        out="u8",
        assumes=("~bit(slt(b, a))",),
        kind=SpecKind.FIXED,
    )


def _shift(product: str) -> str:
    return f"trunc(sext({product}, 64) >> {FIXED_SHIFT}, 32)"


@dataclass(frozen=True, eq=False)
class FixedPointFormula:
    """The affine function (x * multiplier + summand) >> FIXED_SHIFT; SpecError if int32 overflows before the shift.

    Args:
        multiplier: One int32 a channel, or one for all.
        summand: The same of int64: products alone may leave int32, as int32 products wrap in C.
    """

    multiplier: ArrayLike
    summand: ArrayLike

    def __post_init__(self) -> None:
        for name in ("multiplier", "summand"):
            object.__setattr__(self, name, copy_read_only(getattr(self, name), name))

    def of(self, channels: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return multipliers and summands (channels,)."""
        multiplier = broadcast_to_channels("multiplier", self.multiplier, channels, np.int32).astype(np.int64)
        return multiplier, broadcast_to_channels("summand", self.summand, channels, np.int64)

    def at(self, x: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the function of integers (..., channels)."""
        multiplier, summand = self.of(x.shape[-1])
        scaled = x * multiplier + summand
        if scaled.size and not INT32.min <= scaled.min() <= scaled.max() <= INT32.max:
            raise SpecError("multiplier and summand make numbers beyond int32")
        return np.asarray(scaled >> FIXED_SHIFT)


@dataclass(frozen=True, eq=False)
class FixedPoint(CodesEpilogue):
    """Codes: an affine function of the accumulator, clamped to `least` .. `most`, and a second one of its result.

    Args:
        least: The lower clamp of accumulators, int32: one a channel, or one for all.
        most: The upper clamp, as `least`.
        first_formula: The affine function of accumulators.
        bits: Bits of a code, 1 to 8.
        then: The affine function of the results of `first_formula`, the same for all channels, or None.
        residual: None: there is no second tensor.
    """

    least: ArrayLike
    most: ArrayLike
    first_formula: FixedPointFormula
    bits: int
    then: FixedPointFormula | None = None
    residual: Residual | None = None

    def __post_init__(self) -> None:
        store_read_only(self, least="least", most="most")
        require_whole("bits", self.bits, 1, MAX_BITS)
        if self.residual is not None:
            raise SpecError("fixed-point codes have no residual")
        given: tuple[Any, Any] = (self.first_formula, self.then)
        if not (isinstance(given[0], FixedPointFormula) and isinstance(given[1], FixedPointFormula | None)):
            raise SpecError(f"formulas of fixed-point codes are FixedPointFormula, not {given[0]!r}, {given[1]!r}")
        parts = (self.least, self.most, self.first_formula.multiplier, self.first_formula.summand)
        channels = max(1, *(int(np.size(x)) for x in parts))
        ends = self.window(channels)
        if (ends[0] > ends[1]).any() or (self.then and np.size(self.then.multiplier) + np.size(self.then.summand) > 2):
            raise SpecError("least is not above most, and the second formula is the same for all channels")
        results = self._evaluate(np.stack(ends))
        object.__setattr__(self, "_ends", (int(results.min()), int(results.max())))
        if not 0 <= self.codes[0] <= self.codes[1] < 1 << self.bits:
            raise SpecError(f"codes go from {self.codes[0]} to {self.codes[1]}, beyond {self.bits} bits")

    def window(self, channels: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the clamps (channels,) of accumulators."""
        least, most = (broadcast_to_channels(n, getattr(self, n), channels, np.int32) for n in ("least", "most"))
        return least.astype(np.int64), most.astype(np.int64)

    @property
    def codes(self) -> tuple[int, int]:
        """The least and the greatest code."""
        ends: tuple[int, int] = self._ends  # type: ignore[attr-defined]
        return ends

    @property
    def out_type(self) -> np.dtype[Any]:
        """The type of results."""
        return np.dtype(np.uint8)

    def _results(self, values: NDArray[Any]) -> NDArray[Any]:
        return self._evaluate(values.astype(np.int64).clip(*self.window(values.shape[-1]))).astype(np.uint8)

    def _evaluate(self, kept_sums: NDArray[np.int64]) -> NDArray[np.int64]:
        results = self.first_formula.at(kept_sums)
        return self.then.at(results) if self.then else results

    def lower(self, sums: Accumulators, planes: int) -> Iterator[AskedProgram]:
        """Yield the spec for `sums` that are values except for their row's addend, as bytes; none for `planes`."""
        if planes or sums.factor != 1 or sums.shift or sums.columns.any():
            return
        channels = sums.channels
        (m, k), ends = _wrap(self.first_formula, channels), self.window(channels)
        inputs = {"m": m, "k": k, **{name: x.astype(np.int32) for name, x in zip("ab", ends, strict=True)}}
        if self.then:
            inputs |= {name: x.reshape(()) for name, x in zip("uv", _wrap(self.then, 1), strict=True)}
        yield fixed_point_spec(ValueTerms(row=sums.row), twice=self.then is not None), inputs

    def formula(self, channels: int) -> ClaimedFixedPoint:
        """Return the range of inputs, multiplier and summand of each affine function, for `channels` channels."""
        formulas: list[tuple[NDArray[Any], ...]] = [(*self.window(channels), *self.first_formula.of(channels))]
        if self.then:
            ends = (np.array([int(end)]) for end in (INT32.min, INT32.max))
            formulas.append((*ends, *self.then.of(1)))
        return ClaimedFixedPoint(values=[[x.reshape(-1, 1) for x in formula] for formula in formulas])


def _wrap(formula: FixedPointFormula, channels: int) -> Iterator[NDArray[np.int32]]:
    """Return multipliers and summands as int32; the wrapping of products and of sums in C cancels."""
    return (x.astype(np.int32) for x in formula.of(channels))

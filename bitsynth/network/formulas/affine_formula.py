"""Affine formulas in float64: codes clip(rint(a * s + b + r * e)) of accumulators s and elements e of a second edge."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
import numpy as np

from bitsynth.graph.types import Tensor
from bitsynth.isa.doubles import ONE, ROUND_TO_UNITS, ZERO, bits_of
from bitsynth.layers.epilogues.claimed import ClaimedRescale
from bitsynth.layers.epilogues.floats import GateLine, apply_gate, claim_rescale, gate_bounds

GUARD = 1e-8
"""The distance to a half within which a guarded formula does not decide."""


@dataclass(frozen=True, eq=False)
class AffineFormula:
    """An affine formula in float64 for each channel, or one for all.

    Args:
        factor: (channels,), of sums.
        summand: (channels,).
        zero: The code that is added after rounding.
        limits: The least and the greatest code.
        ratio: (channels,), of elements of a second edge; None without one.
        gate: Factor and summand of a gate, as `Rescale` has it; None without one.
    """

    factor: Tensor
    summand: Tensor
    zero: int
    limits: tuple[int, int]
    ratio: Tensor | None = None
    gate: GateLine | None = None

    def codes(self, sums: Tensor, elements: Tensor | None = None) -> Tensor:
        """Return the codes of integers (points, channels) that `text` gives."""
        value = sums * self.factor + self.summand
        if elements is not None and self.ratio is not None:
            value = value + elements * self.ratio
        return self._round(apply_gate(value, self.gate))

    def decide(self, sums: Tensor, elements: Tensor) -> tuple[Tensor, Tensor]:
        """Return the codes of integers, and whether clipped values are within `GUARD` of a half.

        There is no gate.
        """
        assert self.ratio is not None
        low, high = (float(end - self.zero) for end in self.limits)
        value = sums * self.factor
        value += self.summand
        value += elements * self.ratio
        np.clip(value, low, high, out=value)
        whole = np.rint(value)
        value -= whole
        near = ~(np.abs(value, out=value) < 0.5 - GUARD)
        return whole.astype(np.int64) + self.zero, near

    def bounds(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Return bounds of the codes of accumulators from `low` to `high` (points, channels), without a second edge."""
        first, last = (sums * self.factor + self.summand for sums in (low, high))
        least, most = gate_bounds(first, last, self.gate)
        return self._round(least), self._round(most)

    def _round(self, values: Tensor) -> Tensor:
        low, high = (float(end - self.zero) for end in self.limits)
        return np.asarray(np.rint(values.clip(low, high)).astype(np.int64) + self.zero)

    @property
    def text(self) -> str:
        """The code in the lane language: the value clipped, then rounded.

        Of an accumulator s with factor f and summand b, and an element e of a second edge with ratio r.
        """
        return f"{self._whole} + {self.zero}"

    def texts_of_rows(self, *, fits: bool) -> tuple[str, str]:
        """Return texts of the rounded value, and of the code computed from it: the same code as `text` gives.

        If it `fits`, as int32 holds all values, it is clipped after it is rounded, which takes fewer operations.
        """
        whole = f"trunc({_write_rounded(self._value if fits else self._clipped)}, 32)"
        code = f"{whole} + {self.zero}"
        return whole, f"smin(smax({code}, {self.limits[0]}), {self.limits[1]})" if fits else code

    def near_half_text(self, *, fits: bool) -> str:
        """Return what is 1 if a value is within `GUARD` of a half, else 0.

        It is the sign of a difference: the greatest distance from a whole number that is not so near a half, less the
        value's. If the value `fits`, as int32 holds all values, it is not clipped first, so that compilers vectorize
        the loop.
        """
        value = self._value if fits else self._clipped
        whole = f"dsub({_write_rounded(value)}, {ROUND_TO_UNITS})"
        farthest = bits_of(float(np.nextafter(0.5 - GUARD, 0)))
        return f"dsub({farthest}, dabs(dsub({value}, {whole}))) >> 63"

    @property
    def _whole(self) -> str:
        return f"dnearest({self._clipped})"

    @property
    def _clipped(self) -> str:
        low, high = (bits_of(float(end - self.zero)) for end in self.limits)
        return f"dmin(dmax({self._value}, {low}), {high})"

    @property
    def _value(self) -> str:
        value = "dadd(dmul(double_of(s), f), b)"
        if self.ratio is not None:
            value = f"dadd({value}, dmul(double_of(e), r))"
        if self.gate is not None:
            factor, summand = map(bits_of, self.gate)
            value = f"dmul({value}, dmin(dmax(dadd(dmul({value}, {factor}), {summand}), {ZERO}), {ONE}))"
        return value

    def formula(self) -> ClaimedRescale:
        """Return the formula as a certificate claims it."""
        claim = claim_rescale(self.factor, self.summand, self.zero, self.limits, self.gate)
        return claim if self.ratio is None else msgspec.structs.replace(claim, factor=self.ratio[:, None])

    def of(self, channels: int) -> AffineFormula:
        """Return the formula with a factor and a summand for each of `channels` channels."""
        every = [None if x is None else np.broadcast_to(x, channels) for x in (self.factor, self.summand, self.ratio)]
        assert every[0] is not None
        assert every[1] is not None
        return replace(self, factor=every[0], summand=every[1], ratio=every[2])

    def repeat(self, times: int) -> AffineFormula:
        """Return the formula for the channels repeated `times` times, one after another."""
        ratio = None if self.ratio is None else np.tile(self.ratio, times)
        return replace(self, factor=np.tile(self.factor, times), summand=np.tile(self.summand, times), ratio=ratio)


def _write_rounded(value: str) -> str:
    """Return a sum whose last bits are the whole number nearest to `value`, ties to even; int32 must hold it."""
    return f"dadd({value}, {ROUND_TO_UNITS})"

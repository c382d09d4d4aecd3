"""Chains to codes as one line of float64, for codes of many bits: proved by the reference, or by how far it is off.

Of sums s and elements e of a second edge the code is rint(a * s + b + r * e), kept between two numbers, plus a zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bitsynth.graph.types import Integers, Tensor
from bitsynth.layers.epilogues.gating import GateLine, gated, gated_bounds
from bitsynth.network.formulas.forms import wanted_codes
from bitsynth.network.formulas.rescaling import Wanted
from bitsynth.network.formulas.step_functions import StepFunction
from bitsynth.spec.matmul import MatmulOperand


@dataclass(frozen=True, eq=False)
class AffineFormula:
    """A line of float64 for each channel, or one for all.

    Args:
        factor: (channels,), of sums.
        summand: Likewise.
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
        """The codes of integers (points, channels), as C computes them."""
        value = sums * self.factor + self.summand
        if elements is not None and self.ratio is not None:
            value = value + elements * self.ratio
        return self._rounded(gated(value, self.gate))

    def bounds(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Codes between which those of all sums from `low` to `high` (points, channels) lie, without a second edge."""
        first, last = (sums * self.factor + self.summand for sums in (low, high))
        least, most = gated_bounds(first, last, self.gate)
        return self._rounded(least), self._rounded(most)

    def _rounded(self, values: Tensor) -> Tensor:
        low, high = (float(end - self.zero) for end in self.limits)
        return np.asarray(np.rint(values.clip(low, high)).astype(np.int64) + self.zero)

    def of(self, channels: int) -> AffineFormula:
        """The same with a line for each of so many channels."""
        every = [None if x is None else np.broadcast_to(x, channels) for x in (self.factor, self.summand, self.ratio)]
        assert every[0] is not None
        assert every[1] is not None
        return replace(self, factor=every[0], summand=every[1], ratio=every[2])

    def repeated(self, times: int) -> AffineFormula:
        """The same for channels so many times behind each other."""
        ratio = None if self.ratio is None else np.tile(self.ratio, times)
        return replace(self, factor=np.tile(self.factor, times), summand=np.tile(self.summand, times), ratio=ratio)


def find_affine(step_function: StepFunction, operand: MatmulOperand, kind: Integers) -> AffineFormula | None:
    """The line of a step function, sought once; None if none is found that is the same at the points that decide."""
    memo = step_function.memo.affine
    if (operand, kind) not in memo:
        memo[operand, kind] = _fit_affine(wanted_codes(step_function, operand, kind))
    return memo[operand, kind]


def _fit_affine(wanted: Wanted) -> AffineFormula | None:
    for factor in wanted.fit.factors():
        for tried in (factor, factor.astype(np.float32).astype(np.float64)):
            for summand in wanted.fit.summands(tried):
                affine = AffineFormula(tried, summand, wanted.zero, wanted.limits)
                if (affine.codes(wanted.sums) == wanted.codes).all():
                    return affine
    return None

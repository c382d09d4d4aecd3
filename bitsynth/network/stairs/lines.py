"""Chains to codes as one line of float64, for codes of many bits: proved by the reference, or by how far it is off.

Of sums s and elements e of a second edge the code is rint(a * s + b + r * e), kept between two numbers, plus a zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bitsynth.graph.types import Integers, Tensor
from bitsynth.layers.epilogues.kinds import GateLine, gated, gated_bounds
from bitsynth.network.stairs.forms import wanted_codes
from bitsynth.network.stairs.rescaling import Wanted
from bitsynth.network.stairs.staircase import Staircase
from bitsynth.spec.matmul import MatmulOperand


@dataclass(frozen=True, eq=False)
class Line:
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

    def of(self, channels: int) -> Line:
        """The same with a line for each of so many channels."""
        every = [None if x is None else np.broadcast_to(x, channels) for x in (self.factor, self.summand, self.ratio)]
        assert every[0] is not None
        assert every[1] is not None
        return replace(self, factor=every[0], summand=every[1], ratio=every[2])

    def repeated(self, times: int) -> Line:
        """The same for channels so many times behind each other."""
        ratio = None if self.ratio is None else np.tile(self.ratio, times)
        return replace(self, factor=np.tile(self.factor, times), summand=np.tile(self.summand, times), ratio=ratio)


def line_of(stairs: Staircase, operand: MatmulOperand, kind: Integers) -> Line | None:
    """The line of a staircase, sought once; None if none is found that is the same at the points that decide."""
    key = line_of, operand, kind
    if key not in stairs.known:
        stairs.known[key] = _line(wanted_codes(stairs, operand, kind))
    made: Line | None = stairs.known[key]
    return made


def _line(wanted: Wanted) -> Line | None:
    for factor in wanted.lines.factors():
        for tried in (factor, factor.astype(np.float32).astype(np.float64)):
            for summand in wanted.lines.summands(tried):
                line = Line(tried, summand, wanted.zero, wanted.limits)
                if (line.codes(wanted.sums) == wanted.codes).all():
                    return line
    return None

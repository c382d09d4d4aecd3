"""Breakpoints of a function from real numbers to codes, proved between the breakpoints by interval arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitsynth.graph.types import Tensor
from bitsynth.network.formulas.oracle import Oracle
from bitsynth.spec.matmul import MatmulOperand

_EVEN_SAMPLES, _SCALED_SAMPLES = 1 << 11, 1 << 10
"""Numbers among which breakpoints are looked for: as far apart from each other, and by their size."""
_BREAKPOINT_WIDTH = 2.0**-42
"""Of the greatest number: how near breakpoints are found."""
_INTERVAL_PARTS, _MAX_DIVISIONS = 8, 24
"""How many parts intervals are divided into, and how often."""
_MAX_OPEN_INTERVALS = 1 << 17
"""Open parts at once: of functions that come near to a tie and stay there, as tanh does, each leaves some."""


@dataclass(frozen=True, eq=False)
class CodesOf:
    """Codes of real numbers (points,) behind a line."""

    oracle: Oracle
    operand: MatmulOperand

    def __call__(self, numbers: Tensor) -> Tensor:
        """The codes of numbers (points,)."""
        return self._of(self.oracle(numbers[:, None]))

    def bounds(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Codes between which those of all numbers from `low` to `high` (points,) lie."""
        least, most = self.oracle.bounds(low[:, None], high[:, None])
        return self._of(least), self._of(most)

    def _of(self, integers: Tensor) -> Tensor:
        return np.asarray((integers[:, 0] - self.operand.offset) // self.operand.scale)


@dataclass(frozen=True, eq=False)
class CodeBreakpoints:
    """Where codes of real numbers from `low` to `high` turn.

    Attributes:
        breakpoints: The numbers, ascending.
        made: The codes before, between and behind them: one more.
    """

    codes: CodesOf
    low: float
    high: float
    breakpoints: Tensor
    made: Tensor

    def holds(self, guard: float) -> bool:
        """Whether codes are `made` for all numbers farther than `guard` from breakpoints; open parts are divided."""
        ends = np.concatenate([[self.low - guard], self.breakpoints, [self.high + guard]])
        first, last, wanted = ends[:-1] + guard, ends[1:] - guard, self.made
        if (first >= last).any():
            return False
        for _ in range(_MAX_DIVISIONS):
            least, most = self.codes.bounds(first, last)
            left = (least != wanted) | (most != wanted)
            if ((most < wanted) | (least > wanted)).any() or left.sum() > _MAX_OPEN_INTERVALS:
                return False
            if not left.any():
                return True
            cuts = np.linspace(first[left], last[left], _INTERVAL_PARTS + 1)
            first, last = cuts[:-1].reshape(-1), cuts[1:].reshape(-1)
            wanted = np.tile(wanted[left], _INTERVAL_PARTS)
        return False


def find_code_breakpoints(codes: CodesOf, low: float, high: float) -> CodeBreakpoints:
    """Turns, by halving the room between numbers of other codes; what lies between is found with them."""
    size = max(abs(low), abs(high))
    by_size = np.geomspace(size * 2.0**-30, size, _SCALED_SAMPLES) if size else np.zeros(1)
    numbers = np.unique(np.concatenate([np.linspace(low, high, _EVEN_SAMPLES), by_size, -by_size]).clip(low, high))
    made = codes(numbers)
    first, last, one, other = numbers[:-1], numbers[1:], made[:-1], made[1:]
    while True:
        first, last, one, other = (x[one != other] for x in (first, last, one, other))
        if not first.size or (last - first).max() <= size * _BREAKPOINT_WIDTH:
            break
        middle = (first + last) / 2
        between = codes(middle)
        ends = (first, middle), (middle, last), (one, between), (between, other)
        first, last, one, other = (np.concatenate(pair) for pair in ends)
    order = np.argsort(first)
    return CodeBreakpoints(codes, low, high, ((first + last) / 2)[order], np.concatenate([made[:1], other[order]]))

"""Levels of floats by one multiplication or division and a rounding, where that is proved equal to their thresholds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from bitsynth.graph.types import Tensor
from bitsynth.network.formulas.step_functions import StepFunction, float_of

_MAGIC = {"float": 1.5 * 2**23, "double": 1.5 * 2**52}
"""Added to a number of few digits they leave it rounded half to even."""
_SCALE_NEIGHBOURS = 2
"""Neighbours of a scale that are tried on each side."""
_SLOPE_SPAN, _SLOPE_STEPS = 1e-5, 80
"""How far a slope is looked for, and in how many steps."""
_MAX_LOW = 1 << 20


@dataclass(frozen=True)
class RoundedLevels:
    """The level round((x - origin) * factor) - low, or over the factor, from 0 to `last`.

    All operations are in one type, in this order, none of them contracted; halves go to even numbers. Of a number that
    is none (NaN) it is 0.

    Args:
        ctype: float or double.
        origin: What is subtracted first.
        factor: The factor, or divisor.
        divides: Whether it is a divisor.
        low: What is rounded to level 0.
        last: The greatest level.
    """

    ctype: str
    origin: float
    factor: float
    divides: bool
    low: int
    last: int

    def __call__(self, x: Tensor) -> Tensor:
        """The levels of float32."""
        real: Any = np.float32 if self.ctype == "float" else np.float64
        with np.errstate(over="ignore", invalid="ignore"):
            t = x.astype(real) - real(self.origin) if self.origin else x.astype(real)
            t = t / real(self.factor) if self.divides else t * real(self.factor)
        low, high, magic = real(self.low), real(self.low + self.last), real(_MAGIC[self.ctype])
        t = np.where(t > low, t, low)
        t = np.where(t < high, t, high)
        made: Tensor = ((t + magic) - magic).astype(np.int64) - self.low
        return made

    def text(self, x: str, level: str) -> str:
        """C that declares `level`, that of the float `x`."""
        kind, number = self.ctype, f"({self.ctype}){x}"
        if self.origin:
            number = f"({number} - {self._literal(self.origin)})"
        low, high, magic = (self._literal(n) for n in (self.low, self.low + self.last, _MAGIC[kind]))
        return "\n".join(
            (
                f"{kind} t = {number} {'/' if self.divides else '*'} {self._literal(self.factor)};",
                f"t = t > {low} ? t : {low};",
                f"t = t < {high} ? t : {high};",
                f"const int32_t {level} = (int32_t)((t + {magic}) - {magic}) - ({self.low});",
            )
        )

    def _literal(self, value: float) -> str:
        """A number of its type in C, in parentheses."""
        return f"({float(value).hex()}{'f' if self.ctype == 'float' else ''})"


def fit_rounded_levels(step_function: StepFunction) -> tuple[RoundedLevels, ...]:
    """The formulas of levels, where these fall of those lost, one a channel; none if not equal at every threshold.

    They rise, as each of their operations does: what holds at a threshold and before it holds on the whole range.
    """
    points = step_function.points()
    numbers, levels = float_of(points), (step_function.at(points) - step_function.least) // step_function.step
    levels = np.where(step_function.rising, levels, step_function.levels - levels)
    found = []
    for channel in range(len(step_function.low)):
        x, want = numbers[:, channel], levels[:, channel]
        formula = next((made for made in _candidates(step_function, channel) if (made(x) == want).all()), None)
        if formula is None:
            return ()
        found.append(formula)
    return tuple(found)


def _candidates(step_function: StepFunction, channel: int) -> Iterator[RoundedLevels]:
    """Formulas of levels about as far apart as the thresholds, the cheapest first."""
    thresholds = np.sort(step_function.thresholds[channel])
    inside = (thresholds > step_function.low[channel]) & (thresholds <= step_function.high[channel])
    (levels,) = inside.nonzero()
    if len(levels) < 2:
        return
    breakpoints = thresholds[inside]
    apart, origin = _fit_line(levels + 0.5, *(float_of(t).astype(np.float64) for t in (breakpoints - 1, breakpoints)))
    if not apart > 0:
        return
    scales, low = _float32_neighbours(np.float32(apart)), round(origin / apart)
    if abs(low) < _MAX_LOW:
        for ctype, scale in product(("float", "double"), scales):
            yield RoundedLevels(ctype, 0.0, _reciprocal(scale, ctype), False, low, step_function.levels)
        for ctype, scale in product(("float", "double"), scales):
            yield RoundedLevels(ctype, 0.0, scale, True, low, step_function.levels)
    half = apart / 2
    for start, parity in product((origin, float(np.float32(origin)), round(origin / half) * half), (0, 1)):
        yield RoundedLevels("double", start - parity * apart, 1 / apart, False, parity, step_function.levels)


def _fit_line(at: Tensor, below: Tensor, above: Tensor) -> tuple[float, float]:
    """Slope and start of the line that lies most amply between two bounds at its places.

    How much room there is for a slope is concave in it, so that halving the interval finds the best.
    """

    def room(slope: float) -> float:
        return float((above - slope * at).min() - (below - slope * at).max())

    slope = (above[-1] - above[0]) / (at[-1] - at[0])
    low, high = slope * (1 - _SLOPE_SPAN), slope * (1 + _SLOPE_SPAN)
    for _ in range(_SLOPE_STEPS):
        one, other = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, other) if room(one) > room(other) else (one, high)
    slope = (low + high) / 2
    return slope, float((above - slope * at).min() + (below - slope * at).max()) / 2


def _float32_neighbours(value: np.float32) -> list[float]:
    """A float32 and those next to it, the nearest first: those that have a reciprocal, so no denormal ones."""
    found = [value]
    for way in (np.float32(np.inf), np.float32(0)):
        at = value
        for _ in range(_SCALE_NEIGHBOURS):
            at = np.nextafter(at, way)
            found.append(at)
    return sorted((float(n) for n in found if n >= np.finfo(np.float32).tiny), key=lambda n: abs(n - float(value)))


def _reciprocal(scale: float, ctype: str) -> float:
    return float(np.float32(1 / scale)) if ctype == "float" else 1 / scale

"""Levels of real sums by a line, and how near to a half it must not come: the sums are float32, with errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitsynth.graph.types import Tensor

_FLOAT32_UNIT = 2.0**-24
"""The greatest relative error of an operation in float32."""
_SUBNORMAL_ERROR = 2.0**-125
"""The greatest error of a product that float32 holds badly, or takes for 0."""
_SAFETY_FACTOR = 1.02
"""What covers the errors of these bounds themselves."""
_MAX_THRESHOLD = 2.0**99
"""Where thresholds are left to exact sums: numbers so great that sums come there decide nothing."""
_MAX_FIT_ERROR = 0.05
"""How far thresholds may be from a line, in levels."""


@dataclass(frozen=True, eq=False)
class LevelFormulas:
    """Formulas of channels: about as many thresholds are reached by a sum s as s * slope + start, cut to low and high.

    It is exactly so many, rounded, where that is no nearer to a half than margin[0] * m + margin[1], and s the sum in
    float32 of products of weights and numbers no greater than m, in any order, each rounded or fused.

    Args:
        rows: Slope, start, low and high (channels, 4), float32.
        margins: (channels, 2), float64.
    """

    rows: Tensor
    margins: Tensor


def fit_level_formulas(thresholds: Tensor, weights: Tensor) -> LevelFormulas | None:
    """The lines of ascending thresholds (channels, levels) for weights (channels, terms); None if one is no line."""
    made = [_fit_channel(t, w) for t, w in zip(thresholds, weights, strict=True)]
    found = [m for m in made if m is not None]
    if len(found) < len(made):
        return None
    lines, margins = zip(*found, strict=True)
    return LevelFormulas(np.array(lines, np.float32), np.array(margins, np.float64))


def _fit_channel(thresholds: Tensor, weights: Tensor) -> tuple[list[float], list[float]] | None:
    """Slope, start, low and high of a channel, and its margins."""
    low, high = int((thresholds <= -_MAX_THRESHOLD).sum()), int((thresholds < _MAX_THRESHOLD).sum())
    breakpoints, halves = thresholds[low:high], np.arange(low, high) + 0.5
    total, terms = float(np.abs(weights).sum()), weights.size
    slope, start = _fit_slope(breakpoints, halves, total) if len(breakpoints) else (0.0, float(low))
    slope, start = float(np.float32(slope)), float(np.float32(start))
    off = float(np.abs(breakpoints * slope + start - halves).max(initial=0.0))
    if not off <= _MAX_FIT_ERROR or not np.isfinite([slope, start]).all() or slope < 0:
        return None
    sums = _FLOAT32_UNIT * (terms + 2) / (1 - _FLOAT32_UNIT * (terms + 2))
    per_size = slope * total * (sums + 4 * _FLOAT32_UNIT) + total / _MAX_THRESHOLD
    fixed = off + 4 * _FLOAT32_UNIT * (abs(start) + high + 2) + slope * terms * _SUBNORMAL_ERROR
    return [slope, start, low, high], [_SAFETY_FACTOR * per_size, _SAFETY_FACTOR * fixed]


def _fit_slope(breakpoints: Tensor, halves: Tensor, total: float) -> tuple[float, float]:
    """Slope and start of the line through the first and last of thresholds; of one, any that is not steep."""
    rise, run = float(halves[-1] - halves[0]), float(breakpoints[-1] - breakpoints[0])
    slope = rise / run if run > 0 else 1 / max(total, 1e-30)
    above = halves - slope * breakpoints
    return slope, float(above.min() + above.max()) / 2

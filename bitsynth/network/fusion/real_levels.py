"""Levels of real numbers: by the thresholds that float64 reaches, and by an affine formula of float32 sums.

Sums in float32 have errors. `LevelFormulas` says how near to a half the formula must not come for the level to be
right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bitsynth.emit.element_loops import ElementLoops, double
from bitsynth.graph.arithmetic.fractions import FUNCTIONS
from bitsynth.graph.ir import Node
from bitsynth.graph.operators import TABLE
from bitsynth.graph.types import Integers, Tensor
from bitsynth.network.def_use import DefUse
from bitsynth.network.formulas import StepFunction, find_chain
from bitsynth.network.formulas.step_functions import double_thresholds, find_real_step_function
from bitsynth.network.fusion.codes import code_formats, codes_of, count_text, operand_of
from bitsynth.network.fusion.group import FusionGroup
from bitsynth.network.program import Buffer, Format, PlainStep, plain_format
from bitsynth.spec.layout import Layout

_MAX_LEVELS = 31
"""Thresholds that are compared one by one; for more a formula is faster."""


def match_reals(def_use: DefUse, node: Node) -> FusionGroup | None:
    """Match a chain from real numbers to codes of few levels, in exact arithmetic.

    Given:   %codes = quantize(mul(%real, scale))    %real of a node computed in float64, such as softmax
    Result:  %codes = count(%real >= thresholds)
    """
    graph, (start, *_) = def_use.graph, (*node.inputs, "")
    if graph.reference != "exact" or start not in def_use.makers or isinstance(graph.edges[start].type, Integers):
        return None
    pairs = _is_more_exact_in_pairs(def_use.makers[start])
    if pairs or def_use.only_reader(start) is not node or len(graph.edges[start].shape) < 2:
        return None
    chain = find_chain(def_use, start)
    if chain is None or not operand_of(graph.edges[chain.end]) or chain.axes[-1] != 1:
        return None
    kind = graph.edges[chain.end].integers
    if (kind.most - kind.least) // kind.step > _MAX_LEVELS or chain.axes[0] != 1:
        return None
    if graph.edges[start].shape != graph.edges[chain.end].shape:
        return None
    step_function = find_real_step_function(graph, chain)
    return RealsGroup(def_use, step_function) if step_function else None


def _is_more_exact_in_pairs(maker: Node) -> bool:
    """Return whether plain C of the maker, fused with the chain, would decide codes more exactly than by float64."""
    return TABLE[maker.op].kind == "elementwise" and maker.op not in FUNCTIONS


class RealsGroup(FusionGroup):
    """Codes of real numbers, by the thresholds that they reach.

    Args:
        def_use: The graph.
        step_function: The codes that the chain gives for float64.
    """

    def __init__(self, def_use: DefUse, step_function: StepFunction) -> None:
        chain = step_function.chain
        self.def_use, self.step_function, self.nodes = def_use, step_function, chain.nodes
        self.inputs, self.outputs = (chain.start,), (chain.end,)

    def reads(self, edge: str) -> tuple[Format, ...]:
        type_, reference = self.def_use.graph.edges[edge], self.def_use.graph.reference
        return tuple(plain_format(type_, reference, layout) for layout in (Layout.PLAIN, Layout.NHWC))

    def writes(self, edge: str) -> tuple[Format, ...]:
        return code_formats(self.def_use.graph.edges[edge], (Layout.NHWC,))

    def step(self, buffers: Mapping[str, Buffer]) -> PlainStep:
        edge, given = self.def_use.graph.edges[self.outputs[0]], buffers[self.inputs[0]]
        first, second = codes_of(self.step_function.least + np.array([0, self.step_function.step]), edge).tolist()
        batch, channels, *image = edge.shape
        pixels, levels = math.prod(image), self.step_function.levels
        inputs = {
            "x": double("in0[at]"),
            "r": double("k1[c]"),
            "t": double(f"(k0 + c * {levels})", levels),
        }
        plane = pixels if given.format.layout == Layout.PLAIN else 0
        code = code_text(levels, first, second - first)
        loops = ElementLoops(batch * pixels, channels, inputs, code, plane=plane)
        signs = np.where(self.step_function.rising, 1.0, -1.0)
        constants = [
            np.broadcast_to(x, (channels, *x.shape[1:])) for x in (_signed_thresholds(self.step_function), signs)
        ]
        result = buffers[self.outputs[0]].name
        arrays = tuple(np.ascontiguousarray(x) for x in constants)
        return PlainStep(self.names, (given.name,), (result,), loops.text(), arrays)


def code_text(levels: int, first: int, step: int) -> str:
    """Return the code in the lane language: `first`, plus `step` for each threshold t[k] that x times r reaches.

    Of `step`, which may be below 0, only the low 8 bits are used, as of the code.
    """
    return f"({count_text('dle(t[k], dmul(x, r))', levels)}) * {step % 256} + {first}"


def _signed_thresholds(step_function: StepFunction) -> Tensor:
    """Return thresholds (channels, levels) of numbers that are negated where the chain falls."""
    reached = double_thresholds(step_function)
    falling = np.where(np.isinf(reached), -reached, np.nextafter(-reached, np.inf))
    thresholds: Tensor = np.where(step_function.rising[:, None], reached, falling)
    return thresholds


_FLOAT32_UNIT = 2.0**-24
"""The greatest relative error of an operation in float32."""
_SUBNORMAL_ERROR = 2.0**-125
"""The greatest error of a product that is subnormal in float32, or 0."""
_SAFETY_FACTOR = 1.02
"""Covers the rounding of the bounds themselves."""
_MAX_THRESHOLD = 2.0**99
"""Thresholds beyond it are left to exact sums, as numbers whose float32 sums come near it decide nothing."""
_MAX_FIT_ERROR = 0.05
"""The greatest distance of thresholds from an affine function, in levels."""


@dataclass(frozen=True, eq=False)
class LevelFormulas:
    """Affine formulas: a sum s reaches round(s * slope + start) thresholds, clipped to low .. high.

    That is right unless s * slope + start is nearer to a half than margin[0] * m + margin[1], where s is the sum in
    float32, in any order, rounded or fused, of products of weights and numbers of at most m.

    Args:
        rows: Slope, start, low and high (channels, 4), float32.
        margins: (channels, 2), float64.
    """

    rows: Tensor
    margins: Tensor


def fit_level_formulas(thresholds: Tensor, weights: Tensor) -> LevelFormulas | None:
    """Fit formulas to ascending thresholds (channels, levels) and weights (channels, terms); None if not affine."""
    fits = [_fit_channel(t, w) for t, w in zip(thresholds, weights, strict=True)]
    fitted = [m for m in fits if m is not None]
    if len(fitted) < len(fits):
        return None
    lines, margins = zip(*fitted, strict=True)
    return LevelFormulas(np.array(lines, np.float32), np.array(margins, np.float64))


def _fit_channel(thresholds: Tensor, weights: Tensor) -> tuple[list[float], list[float]] | None:
    """Return slope, start, low and high of a channel, and its margins; None if its thresholds are not affine."""
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
    """Return slope and start of the affine function through both outer thresholds; of one, any that is not steep."""
    rise, run = float(halves[-1] - halves[0]), float(breakpoints[-1] - breakpoints[0])
    slope = rise / run if run > 0 else 1 / max(total, 1e-30)
    above = halves - slope * breakpoints
    return slope, float(above.min() + above.max()) / 2

"""Step functions as fixed-point formulas, found in integers and proved at their deciding points.

A line is (element * multiplier + summand) >> shift. Integerized networks compute codes of accumulators by
multipliers and shifts. Before an addition they compute codes of these codes once more: then two lines follow each
other. A formula that rounds down is monotone: if it agrees at the breakpoints of a step function, it agrees everywhere.

Example: code 1 from accumulator 3 on and code 2 from 8 on, as floor((s * 13 + 25) / 64) has for s from 0 to 12.

TensorFlow Lite rounds a product of 64 bits twice, which no line does in general: the operator `multiply_shift` is an
epilogue with the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.types import INT32, Integers, Tensor
from bitsynth.layers.epilogues import FixedPoint, FixedPointFormula, MultiplyShift
from bitsynth.network.def_use import DefUse
from bitsynth.network.formulas.chain import Chain, split_at_codes
from bitsynth.network.formulas.fitting import AffineFit
from bitsynth.network.formulas.rescaling import find_wanted_codes
from bitsynth.network.formulas.search import NEAREST, ByChannel, find_by_channel
from bitsynth.network.formulas.step_functions import StepFunction, step_function_of
from bitsynth.spec.matmul import MatmulOperand
from bitsynth.spec.rescaling import FIXED_SHIFT, MULTIPLIER_SHIFT

_MAX_PRODUCT = 1 << 52
"""Products and summands are exact in float64 below it: the checker of certificates computes them there."""


def find_fixed_point(def_use: DefUse, chain: Chain, operand: MatmulOperand) -> FixedPoint | None:
    """Find the epilogue of one or two fixed-point formulas that gives the codes of a chain; None if there is none."""
    for parts in _split(def_use, chain):
        step_function = [step_function_of(def_use, part) for part in parts]
        if fixed_point := _fit_all([x for x in step_function if x is not None], len(parts), operand):
            return fixed_point
    return None


def _split(def_use: DefUse, chain: Chain) -> Iterator[tuple[Chain, ...]]:
    """Yield the chain, then its two parts at codes inside it, if the second part treats channels alike."""
    yield (chain,)
    yield from (parts for parts in split_at_codes(def_use, chain) if not parts[1].varies)


def _fit_all(step_function: Sequence[StepFunction], count: int, operand: MatmulOperand) -> FixedPoint | None:
    """Return the formulas of step functions, each applied to the results of the one before; None if one has none."""
    if len(step_function) < count or step_function[0].low.min() <= INT32[0] or step_function[0].high.max() >= INT32[1]:
        return None
    least, most = _constant_ends(step_function[0])
    ends = (least, most), *((x.low, x.high) for x in step_function[1:])
    lines = [
        _fit_line(x, *e, operand if x is step_function[-1] else None) for x, e in zip(step_function, ends, strict=True)
    ]
    fitted = [x for x in lines if x is not None]
    if len(fitted) < count:
        return None
    try:
        return FixedPoint(least, most, fitted[0], operand.bits, then=next(iter(fitted[1:]), None))
    except SpecError:
        return None


def _constant_ends(step_function: StepFunction) -> tuple[Tensor, Tensor]:
    """Return the last element with the first integer and the first element with the last integer (channels,)."""
    points = step_function.points()
    codes, (first, last) = step_function.at(points), step_function.at(np.stack([step_function.low, step_function.high]))
    least = np.where(codes == first, points, step_function.low).max(0)
    most = np.where(codes == last, points, step_function.high).min(0)
    constant = first == last
    return np.where(constant, step_function.low, least), np.where(constant, step_function.low, most)


def _fit_line(
    step_function: StepFunction, least: Tensor, most: Tensor, operand: MatmulOperand | None
) -> FixedPointFormula | None:
    """Return the formula for a step function's integers, or codes of an operand, from `least` to `most`; or None."""
    elements = np.clip(step_function.points(), least, most)
    wanted = step_function.at(elements)
    if operand is not None:
        wanted = (wanted - operand.offset) // operand.scale
    best = AffineFit(elements.astype(np.float64), wanted, (int(wanted.min()) - 1, int(wanted.max()) + 1)).best
    nearest = np.rint(best * (1 << FIXED_SHIFT)).clip(INT32[0] + 1, INT32[1] - 1).astype(np.int64)
    most = np.abs(elements).max(0)

    def gives(fit: _FixedFit, channels: Tensor) -> Tensor:
        return np.asarray((fit.low <= fit.high) & (np.abs(fit.multiplier) * most[channels] < _MAX_PRODUCT))

    summands = find_by_channel((_fit_summands(elements, wanted, nearest + k) for k in NEAREST), gives)
    return FixedPointFormula(summands.multiplier, (summands.low + summands.high) >> 1) if summands else None


@dataclass(frozen=True, eq=False)
class _FixedFit(ByChannel):
    """Multipliers, and the least and the greatest summand with which products, rounded down, are as wanted."""

    multiplier: Tensor
    low: Tensor
    high: Tensor


def _fit_summands(elements: Tensor, wanted: Tensor, multiplier: Tensor) -> _FixedFit:
    """Return multipliers (channels,) with the bounds of their summands."""
    low = (wanted << FIXED_SHIFT) - elements * multiplier
    return _FixedFit(multiplier, low.max(0), (low + (1 << FIXED_SHIFT) - 1).min(0))


def find_multiply_shift(step_function: StepFunction, operand: MatmulOperand, kind: Integers) -> MultiplyShift | None:
    """Return the epilogue of a chain that begins with the operator `multiply_shift`; None if it gives other codes.

    The operator's own numbers are tried, with the limits of the chain's codes, and compared at the deciding points.
    """
    node = step_function.chain.nodes[0]
    inside = step_function.low.min() > INT32[0] and step_function.high.max() < INT32[1]
    if node.op != "multiply_shift" or not inside or (np.asarray(node.attributes["shift"]) != MULTIPLIER_SHIFT).any():
        return None
    multiplier, right, zero = (np.asarray(node.attributes[key]).reshape(-1) for key in ("multiplier", "right", "zero"))
    wanted = find_wanted_codes(step_function, operand, kind)
    low, high = wanted.limits
    try:
        epilogue = MultiplyShift(
            multiplier, right, operand.bits, (int(zero[0]) - operand.offset) // operand.scale, low=low, high=high
        )
        codes = epilogue.reference(wanted.sums)
    except SpecError:
        return None
    return epilogue if zero.size == 1 and (codes == wanted.codes).all() else None

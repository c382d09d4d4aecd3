"""Step functions as the float32 formula of `Rescale`: a factor, perhaps a summand, and a shift, for each channel.

Plans yield formulas from fitted factors and summands; each channel keeps the first formula that gives its codes at the
deciding points. Both functions are monotone, so equality there is equality everywhere (Lemma 3).

Example: accumulators -10 .. 10 with codes clip(rint(0.2 * s), 0, 2) have the factor 0.2 in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.types import Integers, Tensor
from bitsynth.layers.epilogues import Rescale, Residual
from bitsynth.network.formulas.fitting import AffineFit
from bitsynth.network.formulas.search import NEAREST, ByChannel, find_by_channel
from bitsynth.network.formulas.step_functions import StepFunction
from bitsynth.spec.matmul import MatmulOperand

_MAX_SHIFTS = 140
"""Integers that are tried as shifts."""
_MAX_SHIFTS_A_FACTOR = 80
"""Integers that are tried as shifts with each of several factors."""
_FLOAT32_SLACK = 2.0**-22
"""Relative to the greatest code: by so much the reference, if it computes in float32, may be off an affine function."""


@dataclass(frozen=True, eq=False)
class Wanted(ByChannel):
    """The codes that a formula has to give for accumulators (points, channels).

    Args:
        sums: Accumulators, int64.
        codes: Codes of the operand, int64.
        operand: The operand.
        limits: The least and the greatest code of all channels.
        zero: The code that stands for 0, if one does.
        elements: Elements of a residual (points, channels); None without one.
        ratio: An element's weight relative to an accumulator's, one for all or one a channel.
        residual: Type and zero point of the residual.
        written: The float32 factor that the network has, which is tried first; None if it has none.
        is_fixed_point: Whether the codes come from a fixed-point formula that rounds twice.
    """

    sums: Tensor
    codes: Tensor
    operand: MatmulOperand
    limits: tuple[int, int]
    zero: int = 0
    elements: Tensor | None = None
    ratio: Tensor = field(default_factory=lambda: np.zeros(1))
    residual: Residual | None = None
    written: Tensor | None = None
    is_fixed_point: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "ratio", np.broadcast_to(self.ratio, self.sums.shape[1]))

    @cached_property
    def fit(self) -> AffineFit:
        """The affine function that values must follow, as codes less the zero point."""
        x = self.sums.astype(np.float64)
        if self.elements is not None and self.residual:
            x = x + self.ratio * (self.elements - self.residual.zero_point)
        return AffineFit(x, self.codes - self.zero, (self.limits[0] - self.zero, self.limits[1] - self.zero))

    @property
    def typed_elements(self) -> Tensor | None:
        """Elements of the residual in their type in memory."""
        return None if self.elements is None or self.residual is None else self.elements.astype(self.residual.type)

    def at_more(self, sums: Tensor, elements: Tensor, codes: Tensor) -> Wanted:
        """Return the codes wanted at these and more points (points, channels)."""
        assert self.elements is not None
        pairs = (self.sums, sums), (self.elements, elements), (self.codes, codes)
        every = [np.concatenate([one, other]) for one, other in pairs]
        return replace(self, sums=every[0], elements=every[1], codes=every[2])


@dataclass(frozen=True, eq=False)
class Rescaling(ByChannel):
    """A float32 formula for each channel: factor * (accumulator + shift) + summand.

    Args:
        factor: (channels,).
        summand: (channels,), or None.
        shift: (channels,).
        zero: The code that is added after rounding.
    """

    factor: Tensor
    summand: Tensor | None
    shift: Tensor
    zero: int

    def epilogue(self, wanted: Wanted) -> Rescale:
        """Return the epilogue of accumulators that have the shift in them."""
        residual = wanted.residual and replace(wanted.residual, scale=(self.factor * wanted.ratio).astype(np.float32))
        low, high = wanted.limits
        return Rescale(
            self.factor, wanted.operand.bits, self.zero, low=low, high=high, bias=self.summand, residual=residual
        )

    def gives(self, wanted: Wanted) -> Tensor:
        """Return whether it gives the wanted codes, for each channel (channels,)."""
        try:
            codes = self.epilogue(wanted).reference(wanted.sums + self.shift, wanted.typed_elements)
        except SpecError:
            if self.factor.size == 1:
                return np.zeros(1, bool)
            halves = np.array_split(np.arange(self.factor.size), 2)
            return np.concatenate([self.of(half).gives(wanted.of(half)) for half in halves])
        return np.asarray((codes == wanted.codes).all(0))


def find_rescaling(wanted: Wanted) -> Rescaling | None:
    """Find the formula that gives all codes: without a summand if possible, with a shift if necessary; or None."""
    room = wanted.fit.room(wanted.fit.best)
    if room.min() < -_FLOAT32_SLACK * (1 + wanted.limits[1]):
        return None
    plans = (_try_factors, _try_with_zero, _try_with_summand, _try_shifted)[: 4 if wanted.elements is None else 3]
    plans = (*plans, _try_shifted_factors) if wanted.is_fixed_point and wanted.elements is None else plans
    hardest = wanted.of(np.array([room.argmin()]))
    return next(
        (rescaling for plan in plans if _find_first(hardest, plan) and (rescaling := _find_first(wanted, plan))), None
    )


def find_integer_rescaling(wanted: Wanted) -> Rescaling | None:
    """Find a formula with integers added to accumulators and no summand; None if there is none."""
    return _find_first(wanted, _try_with_integers)


Tries = Iterator[Rescaling]


def _try_factors(wanted: Wanted) -> Tries:
    """Yield formulas of factors alone."""
    for factor in _factors(wanted):
        yield Rescaling(factor, None, np.zeros(factor.shape, np.int64), wanted.zero)


def _factors(wanted: Wanted) -> Iterator[Tensor]:
    """Yield factors that need no summand, the network's own first."""
    if wanted.written is not None:
        yield wanted.written.copy()
    yield from wanted.fit.factors_alone()


def _try_with_zero(wanted: Wanted) -> Tries:
    """Yield formulas that add the zero point before they round, as some references do."""
    offset = wanted.operand.offset
    summand = np.float32(wanted.zero + offset)
    for factor in _factors(wanted) if summand else ():
        yield Rescaling(factor, np.full(factor.shape, summand), np.zeros(factor.shape, np.int64), -offset)


def _try_with_summand(wanted: Wanted) -> Tries:
    """Yield formulas of factors and summands."""
    fit = wanted.fit
    for factor in fit.factors():
        single = factor.astype(np.float32)
        for summand in fit.summands(single.astype(np.float64)):
            yield Rescaling(single, summand.astype(np.float32), np.zeros(factor.shape, np.int64), wanted.zero)


def _try_with_integers(wanted: Wanted) -> Tries:
    """Yield formulas that add integers to accumulators in place of a summand."""
    yield from _try_factors(wanted)
    fit = wanted.fit
    for factor in fit.factors():
        single = factor.astype(np.float32)
        for summand in fit.summands(single.astype(np.float64)):
            nearest = np.rint(summand / np.where(single == 0, 1, single)).clip(-(1 << 30), 1 << 30).astype(np.int64)
            for more in NEAREST:
                yield Rescaling(single, None, nearest + more, wanted.zero)


def _try_shifted(wanted: Wanted) -> Tries:
    """Yield formulas that shift accumulators so that the middle code is near 0, where float32 is finest."""
    centred = _around_middle(wanted)
    yield from _shift_accumulators(centred, next(centred.fit.factors()), _MAX_SHIFTS)


def _try_shifted_factors(wanted: Wanted) -> Tries:
    """Yield formulas with shifts and all other factors: the formulas of fixed point leave little room."""
    centred = _around_middle(wanted)
    for factor in centred.fit.factors():
        yield from _shift_accumulators(centred, factor, _MAX_SHIFTS_A_FACTOR)


def _around_middle(wanted: Wanted) -> Wanted:
    """Return the wanted codes with the middle code as the code of 0."""
    return replace(wanted, zero=(wanted.limits[0] + wanted.limits[1] + 1) // 2)


def _shift_accumulators(centred: Wanted, best: Tensor, count: int) -> Tries:
    """Yield formulas of a factor for `count` shifts around the one that makes the summand 0."""
    summand = next(centred.fit.summands(best))
    start = np.rint(summand / np.where(best == 0, 1, best)).clip(-(1 << 30), 1 << 30).astype(np.int64)
    factor = best.astype(np.float32)
    summands = [*centred.fit.summands(factor.astype(np.float64))]
    for k in range(count):
        shift = start + (k // 2 if k % 2 else -(k // 2))
        for part in summands:
            yield Rescaling(factor, (part - factor * shift).astype(np.float32), shift, centred.zero)


def _find_first(wanted: Wanted, plan: Callable[[Wanted], Tries]) -> Rescaling | None:
    """Return, for each channel, the first of a plan's formulas that gives its codes; None if a channel has none."""
    return find_by_channel(plan(wanted), lambda tried, channels: tried.gives(wanted.of(channels)))


def find_wanted_codes(step_function: StepFunction, operand: MatmulOperand, kind: Integers) -> Wanted:
    """Return the codes of a step function at its deciding points (Lemma 3: a formula is monotone, too). Found once."""
    memo = step_function.memo.wanted
    if (operand, kind) not in memo:
        memo[operand, kind] = _compute_wanted(step_function, operand, kind)
    return memo[operand, kind]


def _compute_wanted(step_function: StepFunction, operand: MatmulOperand, kind: Integers) -> Wanted:
    points = step_function.points()
    codes = (step_function.at(points) - operand.offset) // operand.scale
    limits, written = (int(codes.min()), int(codes.max())), _find_written_factor(step_function)
    zero = step_function.chain.nodes[-1].attributes.get("zero", kind.zero)
    fixed = step_function.chain.nodes[-1].op == "multiply_shift"
    return Wanted(
        points, codes, operand, limits, zero_code(np.asarray(zero), operand), written=written, is_fixed_point=fixed
    )


def _find_written_factor(step_function: StepFunction) -> Tensor | None:
    """Return the float32 factor (channels,) of a chain that is one requantization; None for other chains."""
    node = step_function.chain.nodes[-1]
    if node.op != "requantize" or len(step_function.chain.nodes) > 1:
        return None
    first, second, over = node.attributes["factors"]
    with np.errstate(all="ignore"):
        factor = np.asarray(first * second / over).astype(np.float32).reshape(-1)
    return factor if factor.size == len(step_function.low) else np.broadcast_to(factor[:1], step_function.low.shape)


def zero_code(zero: Tensor, operand: MatmulOperand) -> int:
    """Return the code of the integer that stands for 0; 0 if there is none, or channels differ."""
    code = (float(zero.reshape(-1)[0]) - operand.offset) / operand.scale
    inside = zero.size == 1 and code == round(code) and 0 <= code <= operand.codes[-1]
    return round(code) if inside else 0

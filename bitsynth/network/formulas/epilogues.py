"""Step functions as thresholds of a layer.

Step functions as the float32 formula of `Rescale`: found by trying, proved at the points that decide.

The cheapest epilogue that is the same as a step function: few thresholds, float32, many thresholds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, tee

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.types import INT32, Integers, Tensor
from bitsynth.layers.epilogues import FixedPoint, Rescale, Thresholds
from bitsynth.layers.epilogues.residual import Residual
from bitsynth.network.formulas.fitting import AffineFit
from bitsynth.network.formulas.step_functions import StepFunction
from bitsynth.spec.matmul import MatmulOperand

MAX_LEVELS = 255


def make_thresholds(step_function: StepFunction, operand: MatmulOperand) -> Thresholds | None:
    """The thresholds of int32 sums whose number is the code of `operand`; None if they do not fit a layer."""
    found = level_ends(step_function, operand)
    inside = step_function.low.min() > INT32[0] and step_function.high.max() < INT32[1]
    if not inside or not 1 <= found.shape[1] <= MAX_LEVELS:
        return None
    return Thresholds(sort_rows(found), step_function.rising)


def level_ends(step_function: StepFunction, operand: MatmulOperand) -> Tensor:
    """The numbers (channels, codes) above which, of falling channels below which, an element is, one for each code."""
    first, per_level = (step_function.least - operand.offset) // operand.scale, step_function.step // operand.scale
    always = np.where(step_function.rising, step_function.low, step_function.high + 1)[:, None]
    breakpoints = np.concatenate(
        [np.repeat(always, first, 1), np.repeat(step_function.thresholds, per_level, 1)], axis=1
    )
    made: Tensor = breakpoints - step_function.rising[:, None]
    return made


def sort_rows(values: Tensor) -> Tensor:
    """Each channel's numbers in order."""
    return np.sort(values, axis=1).astype(np.int32)


def fit_thresholds(values: Tensor, codes: Tensor, levels: int) -> tuple[Tensor, Tensor, Tensor]:
    """Thresholds (channels, levels) of values (points, channels) whose number is the code; rising; where they fit.

    Where codes fall with values, those above a value count.
    """
    off = (codes - codes.mean(0)) * (values - values.mean(0))
    rising = off.sum(0) >= 0
    found, fits = [], np.ones(rising.shape, bool)
    for level in range(1, levels + 1):
        reached = codes >= level
        up = np.where(reached, INT32[0], values).max(0), np.where(reached, values, INT32[1]).min(0)
        down = np.where(reached, INT32[1], values).min(0), np.where(reached, values, INT32[0]).max(0)
        found.append(np.where(rising, up[0], down[0]))
        fits &= np.where(rising, up[0] < up[1], down[0] > down[1])
    return sort_rows(np.stack(found, 1)), rising, fits


_COLUMNS_AT_ONCE = 64
"""Channels, each once for a try, whose codes are made at once."""
_CHANNELS_AT_ONCE = 8
"""Channels that go through a plan's tries together."""
_MAX_SHIFTS = 140
"""Integers that are tried as summands of sums."""
_FLOAT32_SLACK = 2.0**-22
"""Of the greatest code: a formula of float32 may be off by so much from a line, where it is the reference itself."""


@dataclass(frozen=True, eq=False)
class Wanted:
    """What a formula is to give: for sums (points, channels) codes of an operand.

    Args:
        sums: int64.
        codes: Likewise.
        operand: The operand.
        limits: The least and the greatest code of all channels.
        zero: The code that stands for 0, if one does.
        elements: Of a residual, one a point and channel; None without one.
        ratio: How much of a sum one of these is, one for all or one a channel.
        residual: Type and zero point of the residual.
        written: The float32 factor that the network has, which is tried first; None if it has none.
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

    @cached_property
    def fit(self) -> AffineFit:
        """The line that values must follow, from the zero point."""
        x = self.sums.astype(np.float64)
        if self.elements is not None and self.residual:
            x = x + self.ratio * (self.elements - self.residual.zero_point)
        return AffineFit(x, self.codes - self.zero, (self.limits[0] - self.zero, self.limits[1] - self.zero))

    @property
    def typed_elements(self) -> Tensor | None:
        """Elements of the residual as they lie in memory."""
        return None if self.elements is None or self.residual is None else self.elements.astype(self.residual.type)

    def at_more(self, sums: Tensor, elements: Tensor, codes: Tensor) -> Wanted:
        """The same at more sums and elements of the residual (points, channels)."""
        assert self.elements is not None
        pairs = (self.sums, sums), (self.elements, elements), (self.codes, codes)
        every = [np.concatenate([one, other]) for one, other in pairs]
        return replace(self, sums=every[0], elements=every[1], codes=every[2])

    def of(self, channels: Tensor) -> Wanted:
        """The same of some channels."""
        ratio = np.broadcast_to(self.ratio, self.sums.shape[1])[channels]
        elements = None if self.elements is None else self.elements[:, channels]
        written = None if self.written is None else self.written[channels]
        sums, codes = self.sums[:, channels], self.codes[:, channels]
        return replace(self, sums=sums, codes=codes, elements=elements, ratio=ratio, written=written)


@dataclass(frozen=True, eq=False)
class Rescaling:
    """A formula for each channel: float32 factors and summands, if there are any, of sums with integers `shift` added.

    Args:
        factor: (channels,).
        summand: Likewise, or None.
        shift: Likewise.
        zero: The code that is added after rounding.
    """

    factor: Tensor
    summand: Tensor | None
    shift: Tensor
    zero: int

    def of(self, channels: Tensor) -> Rescaling:
        """The same of some channels."""
        summand = None if self.summand is None else self.summand[channels]
        return Rescaling(self.factor[channels], summand, self.shift[channels], self.zero)

    def epilogue(self, wanted: Wanted) -> Rescale:
        """The epilogue of sums that have the shift in them."""
        residual = wanted.residual and replace(wanted.residual, scale=(self.factor * wanted.ratio).astype(np.float32))
        low, high = wanted.limits
        return Rescale(
            self.factor, wanted.operand.bits, self.zero, low=low, high=high, bias=self.summand, residual=residual
        )

    def gives(self, wanted: Wanted) -> Tensor:
        """Whether it gives a channel's codes (channels,)."""
        try:
            made = self.epilogue(wanted).reference(wanted.sums + self.shift, wanted.typed_elements)
        except SpecError:
            if self.factor.size == 1:
                return np.zeros(1, bool)
            halves = np.array_split(np.arange(self.factor.size), 2)
            return np.concatenate([self.of(half).gives(wanted.of(half)) for half in halves])
        return np.asarray((made == wanted.codes).all(0))


def find_rescaling(wanted: Wanted) -> Rescaling | None:
    """The formula that gives all codes, without a summand if it can, of shifted sums if it must; None if none does."""
    room = wanted.fit.room(wanted.fit.best)
    if room.min() < -_FLOAT32_SLACK * (1 + wanted.limits[1]):
        return None
    plans = (_try_factors, _try_with_zero, _try_with_summand, _try_shifted)[: 4 if wanted.elements is None else 3]
    hardest = wanted.of(np.array([room.argmin()]))
    return next((found for plan in plans if _find_first(hardest, plan) and (found := _find_first(wanted, plan))), None)


def find_integer_rescaling(wanted: Wanted) -> Rescaling | None:
    """The same, with integers added to sums and no summand."""
    return _find_first(wanted, _try_with_integers)


Tries = Iterator[Rescaling]


def _try_factors(wanted: Wanted) -> Tries:
    """Factors alone."""
    for factor in _factors(wanted):
        yield Rescaling(factor, None, np.zeros(factor.shape, np.int64), wanted.zero)


def _factors(wanted: Wanted) -> Iterator[Tensor]:
    """Factors that need no summand, that of the network first."""
    if wanted.written is not None:
        yield wanted.written.copy()
    yield from wanted.fit.factors_alone()


def _try_with_zero(wanted: Wanted) -> Tries:
    """Factors and the zero point as a float, as some references add it before they round."""
    offset = wanted.operand.offset
    summand = np.float32(wanted.zero + offset)
    for factor in _factors(wanted) if summand else ():
        yield Rescaling(factor, np.full(factor.shape, summand), np.zeros(factor.shape, np.int64), -offset)


def _try_with_summand(wanted: Wanted) -> Tries:
    """Factors and summands."""
    fit = wanted.fit
    for factor in fit.factors():
        single = factor.astype(np.float32)
        for summand in fit.summands(single.astype(np.float64)):
            yield Rescaling(single, summand.astype(np.float32), np.zeros(factor.shape, np.int64), wanted.zero)


def _try_with_integers(wanted: Wanted) -> Tries:
    """Factors of sums to which integers are added that come nearest to what would be added behind."""
    yield from _try_factors(wanted)
    fit = wanted.fit
    for factor in fit.factors():
        single = factor.astype(np.float32)
        for summand in fit.summands(single.astype(np.float64)):
            nearest = np.rint(summand / np.where(single == 0, 1, single)).clip(-(1 << 30), 1 << 30).astype(np.int64)
            for more in (0, 1, -1):
                yield Rescaling(single, None, nearest + more, wanted.zero)


def _try_shifted(wanted: Wanted) -> Tries:
    """The same of sums whose middle is brought near 0, where float32 is finest."""
    middle = (wanted.limits[0] + wanted.limits[1] + 1) // 2
    centred = replace(wanted, zero=middle)
    best = next(centred.fit.factors())
    summand = next(centred.fit.summands(best))
    start = np.rint(summand / np.where(best == 0, 1, best)).clip(-(1 << 30), 1 << 30).astype(np.int64)
    factor = best.astype(np.float32)
    summands = [*centred.fit.summands(factor.astype(np.float64))]
    for k in range(_MAX_SHIFTS):
        shift = start + (k // 2 if k % 2 else -(k // 2))
        for part in summands:
            yield Rescaling(factor, (part - factor * shift).astype(np.float32), shift, middle)


def _find_first(wanted: Wanted, plan: Callable[[Wanted], Tries]) -> Rescaling | None:
    """The first of a plan's tries for each channel that gives its codes; None if one channel has none.

    Behind the first try few channels at a time go through the others: the rest need none where one of these has none.
    """
    tries = plan(wanted)
    if (kept := next(tries, None)) is None:
        return None
    missing = np.flatnonzero(~kept.gives(wanted))
    for group in np.split(missing, range(_CHANNELS_AT_ONCE, missing.size, _CHANNELS_AT_ONCE)):
        tries, own = tee(tries)
        if not _complete(kept, wanted, group, own):
            return None
    return kept


def _complete(kept: Rescaling, wanted: Wanted, missing: Tensor, tries: Tries) -> bool:
    """Whether each of these channels has a try that gives its codes; the first such is put into `kept`."""
    while missing.size and (several := [*islice(tries, max(1, _COLUMNS_AT_ONCE // missing.size))]):
        found = _stack_tries([tried.of(missing) for tried in several]).gives(wanted.of(np.tile(missing, len(several))))
        given = found.reshape(len(several), -1)
        for tried, own in zip(several, given & (given.cumsum(0) == 1), strict=True):
            _copy_channels(kept, tried, missing[own])
        missing = missing[~given.any(0)]
    return not missing.size


def _stack_tries(tries: Sequence[Rescaling]) -> Rescaling:
    """Tries side by side, as one of so many times as many channels."""
    summands = [x.summand for x in tries if x.summand is not None]
    return Rescaling(
        np.concatenate([x.factor for x in tries]),
        np.concatenate(summands) if summands else None,
        np.concatenate([x.shift for x in tries]),
        tries[0].zero,
    )


def _copy_channels(kept: Rescaling, tried: Rescaling, where: Tensor) -> None:
    """Put the channels of another in some places of one."""
    for one, other in ((kept.factor, tried.factor), (kept.summand, tried.summand), (kept.shift, tried.shift)):
        if one is not None and other is not None:
            one[where] = other[where]


MAX_CHEAP_THRESHOLDS = 3
"""Thresholds that cost no more than float32 does; 7 cost as much where all channels rise, and twice where some fall."""
_MAX_SHORT_THRESHOLDS = 15
"""Thresholds that take no longer than a line of float64 behind the sums."""


@dataclass(frozen=True, eq=False)
class EpilogueForm:
    """An epilogue of sums to which integers `bias`, one for all or one a channel, are added first."""

    epilogue: Thresholds | Rescale | FixedPoint
    bias: Tensor = field(default_factory=lambda: np.zeros(1, np.int64))


def find_cheapest_form(step_function: StepFunction, operand: MatmulOperand, kind: Integers) -> EpilogueForm | None:
    """Return the form that gives the codes of a step function whose integers have the type `kind`; None if unproved."""
    counted = make_thresholds(step_function, operand)
    if counted is not None and counted.codes[1] <= MAX_CHEAP_THRESHOLDS:
        return EpilogueForm(counted)
    found = find_rescaling(wanted := wanted_codes(step_function, operand, kind))
    if found is None:
        return EpilogueForm(counted) if counted is not None else None
    return EpilogueForm(found.epilogue(wanted), found.shift)


def is_long(form: EpilogueForm) -> bool:
    """Whether the form counts many thresholds, which takes longer than a line of float64 behind the sums."""
    return isinstance(form.epilogue, Thresholds) and form.epilogue.codes[1] > _MAX_SHORT_THRESHOLDS


def wanted_codes(step_function: StepFunction, operand: MatmulOperand, kind: Integers) -> Wanted:
    """The codes of a step function at the points that decide (Lemma 3: a rounded line is monotone, too), found once."""
    memo = step_function.memo.wanted
    if (operand, kind) not in memo:
        memo[operand, kind] = _compute_wanted(step_function, operand, kind)
    return memo[operand, kind]


def _compute_wanted(step_function: StepFunction, operand: MatmulOperand, kind: Integers) -> Wanted:
    points = step_function.points()
    codes = (step_function.at(points) - operand.offset) // operand.scale
    limits, written = (int(codes.min()), int(codes.max())), _written_factor(step_function)
    zero = step_function.chain.nodes[-1].attributes.get("zero", kind.zero)
    return Wanted(points, codes, operand, limits, zero_code(np.asarray(zero), operand), written=written)


def _written_factor(step_function: StepFunction) -> Tensor | None:
    """The factor of float32 that a chain of one requantization multiplies sums by (channels,)."""
    node = step_function.chain.nodes[-1]
    if node.op != "requantize" or len(step_function.chain.nodes) > 1:
        return None
    first, second, over = node.attributes["factors"]
    with np.errstate(all="ignore"):
        factor = np.asarray(first * second / over).astype(np.float32).reshape(-1)
    return factor if factor.size == len(step_function.low) else np.broadcast_to(factor[:1], step_function.low.shape)


def zero_code(zero: Tensor, operand: MatmulOperand) -> int:
    """The code of the integer that stands for 0; 0 if there is none, or channels differ."""
    code = (float(zero.reshape(-1)[0]) - operand.offset) / operand.scale
    inside = zero.size == 1 and code == round(code) and 0 <= code <= operand.codes[-1]
    return round(code) if inside else 0

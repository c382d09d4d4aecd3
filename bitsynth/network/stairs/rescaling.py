"""Staircases as the float32 formula of `Rescale`: found by trying, proved at the points that decide."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, tee

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.types import Tensor
from bitsynth.layers.epilogues import Rescale
from bitsynth.layers.epilogues.base import Residual
from bitsynth.network.stairs.fitting import Lines
from bitsynth.spec.matmul import MatmulOperand

_COLUMNS = 64
"""Channels, each once for a try, whose codes are made at once."""
_TOGETHER = 8
"""Channels that go through a plan's tries together."""
_SHIFTS = 140
"""Integers that are tried as summands of sums."""
_NO_ROOM = 2.0**-22
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
    def lines(self) -> Lines:
        """The line that values must follow, from the zero point."""
        x = self.sums.astype(np.float64)
        if self.elements is not None and self.residual:
            x = x + self.ratio * (self.elements - self.residual.zero_point)
        return Lines(x, self.codes - self.zero, (self.limits[0] - self.zero, self.limits[1] - self.zero))

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


def rescaling_of(wanted: Wanted) -> Rescaling | None:
    """The formula that gives all codes, without a summand if it can, of shifted sums if it must; None if none does."""
    room = wanted.lines.room(wanted.lines.best)
    if room.min() < -_NO_ROOM * (1 + wanted.limits[1]):
        return None
    plans = (_alone, _with_zero, _with_summand, _shifted)[: 4 if wanted.elements is None else 3]
    hardest = wanted.of(np.array([room.argmin()]))
    return next((found for plan in plans if _first(hardest, plan) and (found := _first(wanted, plan))), None)


def with_integers_alone(wanted: Wanted) -> Rescaling | None:
    """The same, with integers added to sums and no summand."""
    return _first(wanted, _biased)


Tries = Iterator[Rescaling]


def _alone(wanted: Wanted) -> Tries:
    """Factors alone."""
    for factor in _factors(wanted):
        yield Rescaling(factor, None, np.zeros(factor.shape, np.int64), wanted.zero)


def _factors(wanted: Wanted) -> Iterator[Tensor]:
    """Factors that need no summand, that of the network first."""
    if wanted.written is not None:
        yield wanted.written.copy()
    yield from wanted.lines.factors_alone()


def _with_zero(wanted: Wanted) -> Tries:
    """Factors and the zero point as a float, as some references add it before they round."""
    offset = wanted.operand.offset
    summand = np.float32(wanted.zero + offset)
    for factor in _factors(wanted) if summand else ():
        yield Rescaling(factor, np.full(factor.shape, summand), np.zeros(factor.shape, np.int64), -offset)


def _with_summand(wanted: Wanted) -> Tries:
    """Factors and summands."""
    lines = wanted.lines
    for factor in lines.factors():
        single = factor.astype(np.float32)
        for summand in lines.summands(single.astype(np.float64)):
            yield Rescaling(single, summand.astype(np.float32), np.zeros(factor.shape, np.int64), wanted.zero)


def _biased(wanted: Wanted) -> Tries:
    """Factors of sums to which integers are added that come nearest to what would be added behind."""
    yield from _alone(wanted)
    lines = wanted.lines
    for factor in lines.factors():
        single = factor.astype(np.float32)
        for summand in lines.summands(single.astype(np.float64)):
            nearest = np.rint(summand / np.where(single == 0, 1, single)).clip(-(1 << 30), 1 << 30).astype(np.int64)
            for more in (0, 1, -1):
                yield Rescaling(single, None, nearest + more, wanted.zero)


def _shifted(wanted: Wanted) -> Tries:
    """The same of sums whose middle is brought near 0, where float32 is finest."""
    middle = (wanted.limits[0] + wanted.limits[1] + 1) // 2
    centred = replace(wanted, zero=middle)
    best = next(centred.lines.factors())
    summand = next(centred.lines.summands(best))
    start = np.rint(summand / np.where(best == 0, 1, best)).clip(-(1 << 30), 1 << 30).astype(np.int64)
    factor = best.astype(np.float32)
    summands = [*centred.lines.summands(factor.astype(np.float64))]
    for k in range(_SHIFTS):
        shift = start + (k // 2 if k % 2 else -(k // 2))
        for part in summands:
            yield Rescaling(factor, (part - factor * shift).astype(np.float32), shift, middle)


def _first(wanted: Wanted, plan: Callable[[Wanted], Tries]) -> Rescaling | None:
    """The first of a plan's tries for each channel that gives its codes; None if one channel has none.

    Behind the first try few channels at a time go through the others: the rest need none where one of these has none.
    """
    tries = plan(wanted)
    if (kept := next(tries, None)) is None:
        return None
    missing = np.flatnonzero(~kept.gives(wanted))
    for group in np.split(missing, range(_TOGETHER, missing.size, _TOGETHER)):
        tries, own = tee(tries)
        if not _completed(kept, wanted, group, own):
            return None
    return kept


def _completed(kept: Rescaling, wanted: Wanted, missing: Tensor, tries: Tries) -> bool:
    """Whether each of these channels has a try that gives its codes; the first such is put into `kept`."""
    while missing.size and (several := [*islice(tries, max(1, _COLUMNS // missing.size))]):
        found = _together([tried.of(missing) for tried in several]).gives(wanted.of(np.tile(missing, len(several))))
        given = found.reshape(len(several), -1)
        for tried, own in zip(several, given & (given.cumsum(0) == 1), strict=True):
            _replace(kept, tried, missing[own])
        missing = missing[~given.any(0)]
    return not missing.size


def _together(tries: Sequence[Rescaling]) -> Rescaling:
    """Tries side by side, as one of so many times as many channels."""
    summands = [x.summand for x in tries if x.summand is not None]
    return Rescaling(
        np.concatenate([x.factor for x in tries]),
        np.concatenate(summands) if summands else None,
        np.concatenate([x.shift for x in tries]),
        tries[0].zero,
    )


def _replace(kept: Rescaling, tried: Rescaling, where: Tensor) -> None:
    """Put the channels of another in some places of one."""
    for one, other in ((kept.factor, tried.factor), (kept.summand, tried.summand), (kept.shift, tried.shift)):
        if one is not None and other is not None:
            one[where] = other[where]

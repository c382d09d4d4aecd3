"""The search for formulas: for each channel the first candidate that gives all codes that are wanted of it.

A family of formulas yields candidates, the likeliest first; each holds the numbers of all channels. Few channels at a
time go through many candidates at once, so that a channel without any ends the search early.

Given:   candidates with the factors (0.2, 0.5) and (0.25, 0.6); channel 0 needs a factor above 0.21
Result:  the factors (0.25, 0.5)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice, product, tee
from typing import Self, TypeVar

import numpy as np

from bitsynth.graph.types import Tensor

NEAREST = (0, 1, -1)
"""Integers that are tried in place of one that was rounded, as differences from it."""
NEAREST_PAIRS = sorted(product(range(-2, 3), repeat=2), key=lambda x: abs(x[0]) + abs(x[1]))[:9]
"""Units in the last place by which two floats are moved, in turn, until a formula is right."""
_CHANNELS_AT_ONCE = 8
"""Channels that go through candidates together."""
_COLUMNS_AT_ONCE = 64
"""Columns whose codes are computed at once: a column is a channel with one candidate."""


@dataclass(frozen=True, eq=False)
class ByChannel:
    """Values by channel: the last axis of every array is the channels, and channels share all other fields."""

    def of(self, channels: Tensor) -> Self:
        """Return the part for some channels, which may repeat."""
        return replace(self, **{name: x[..., channels] for name, x in self.arrays().items()})

    def with_channels(self, other: Self, channels: Tensor) -> Self:
        """Return the values, with the values of `other` in some channels."""
        changed = {name: x.copy() for name, x in self.arrays().items()}
        for name, x in other.arrays().items():
            changed[name][..., channels] = x[..., channels]
        return replace(self, **changed)

    @property
    def channels(self) -> int:
        """The number of channels."""
        return int(next(iter(self.arrays().values())).shape[-1])

    def arrays(self) -> dict[str, Tensor]:
        """Return the arrays by the names of their fields."""
        return {f.name: x for f in fields(self) if isinstance(x := getattr(self, f.name), np.ndarray)}


ChannelValues = TypeVar("ChannelValues", bound=ByChannel)


def find_by_channel(
    candidates: Iterator[ChannelValues], gives: Callable[[ChannelValues, Tensor], Tensor]
) -> ChannelValues | None:
    """Return, for each channel, the first of the candidates that gives its codes; None if a channel has none.

    Args:
        candidates: Values for all channels; their shared fields are the same.
        gives: Returns, for the columns of a candidate, whether each gives the codes of its channel: `gives(candidate,
            channels)`.
    """
    if (chosen := next(candidates, None)) is None:
        return None
    missing = np.flatnonzero(~gives(chosen, np.arange(chosen.channels)))
    for group in np.split(missing, range(_CHANNELS_AT_ONCE, missing.size, _CHANNELS_AT_ONCE)):
        candidates, own = tee(candidates)
        if (completed := _complete(chosen, group, own, gives)) is None:
            return None
        chosen = completed
    return chosen


def _complete(
    chosen: ChannelValues,
    missing: Tensor,
    candidates: Iterator[ChannelValues],
    gives: Callable[[ChannelValues, Tensor], Tensor],
) -> ChannelValues | None:
    """Return `chosen` with the first right candidate of each of the missing channels; None if one has none."""
    while missing.size:
        block = [*islice(candidates, max(1, _COLUMNS_AT_ONCE // missing.size))]
        if not block:
            return None
        columns = _stack([candidate.of(missing) for candidate in block])
        right = gives(columns, np.tile(missing, len(block))).reshape(len(block), -1)
        for candidate, own in zip(block, right & (right.cumsum(0) == 1), strict=True):
            # Of several right candidates the first one counts.
            chosen = chosen.with_channels(candidate, missing[own])
        missing = missing[~right.any(0)]
    return chosen


def _stack(candidates: Sequence[ChannelValues]) -> ChannelValues:
    """Return values side by side, as values of more channels; shared fields come from the first."""
    arrays = [candidate.arrays() for candidate in candidates]
    return replace(candidates[0], **{name: np.concatenate([x[name] for x in arrays], -1) for name in arrays[0]})


def find_together(
    candidates: Iterator[ChannelValues], gives: Callable[[ChannelValues, Tensor], Tensor], max_wrong_share: float
) -> ChannelValues | None:
    """Return, for each channel, the first right candidate, where a candidate is judged for all channels together.

    Args:
        candidates: Values for all channels.
        gives: Returns whether each channel is right: `gives(candidate, missing)`; only the `missing` channels count.
        max_wrong_share: The share of wrong channels at which the search ends, after each candidate.
    """
    if (chosen := next(candidates, None)) is None:
        return None
    missing = ~gives(chosen, np.ones(chosen.channels, bool))
    while missing.any():
        if missing.mean() > max_wrong_share or (candidate := next(candidates, None)) is None:
            return None
        chosen = chosen.with_channels(candidate, np.flatnonzero(missing))
        missing &= ~gives(chosen, missing)
    return chosen

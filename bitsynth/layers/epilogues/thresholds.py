"""Thresholds of accumulators: a code is the number of them that the accumulator has passed.

The text takes thresholds of accumulators, not of values v = (F * s + r + c) >> h. That is always possible if `can_fold`
says so: v is above T exactly if F * s + r + c >= (T + 1) << h, so for F = 1, or r = 0, if s + r is above
ceil((((T + 1) << h) - c) / F) - 1. For F = 1 accumulators start from c.

Example: with F = 2, c = 5, h = 1 and r = 0 the threshold T = 3 of values becomes ceil((8 - 5) / 2) - 1 = 1 of
accumulators: s = 2 gives v = 4, s = 1 gives v = 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitsynth.errors import SpecError
from bitsynth.layers.epilogues.accumulators import Accumulators, AskedProgram
from bitsynth.layers.epilogues.base import CodesEpilogue, store_read_only
from bitsynth.layers.epilogues.checks import INT32
from bitsynth.layers.epilogues.claimed import ClaimedThresholds
from bitsynth.layers.epilogues.residual import Residual
from bitsynth.spec.elementwise import MAX_UNROLLED_LEVELS, SHORT_SUM, ElementInput, ElementwiseSpec, SpecKind
from bitsynth.spec.matmul import MAX_BITS, plain_array

_BELOW, _ABOVE = int(INT32.min) - 1, int(INT32.max) + 1
_MAX_LEVELS = (1 << MAX_BITS) - 1
_WANTED = f"thresholds must be integers (channels, 1 to {_MAX_LEVELS})"
_MAX_NARROW_LEVEL = 32766
"""The greatest threshold of programs that compare in 16 bits."""
_MAX_SHORT_SUM = 32767
"""The greatest absolute value of accumulators whose low 16 bits alone a program reads."""


def thresholds_spec(
    levels: int, *, words: bool, narrow: bool = False, row: bool = False, flip: bool = False, short: bool = False
) -> ElementwiseSpec:
    """Return the spec that counts the thresholds t of a channel below the accumulator s.

    Args:
        levels: The number of thresholds, which are sorted if there are at most MAX_UNROLLED_LEVELS.
        words: The result is bit planes in words, as many as the number takes, instead of bytes.
        narrow: Thresholds are int16, below 32767. Accumulators are int32 all the same.
        row: r of the row is added to the accumulator first; the sum wraps.
        flip: A channel whose m is -1 counts thresholds below ~(s + r): so falling step functions are negated.
        short: Accumulators fit int16.
    """
    value = f"(s{' + r' if row else ''}){' ^ m' if flip else ''}" if row or flip else "s"
    kind = "s16" if narrow else "s32"
    straight = levels <= MAX_UNROLLED_LEVELS
    if narrow and flip:
        raise SpecError("falling channels have int32 thresholds")
    if short and (row or not narrow):
        raise SpecError("short sums are alone, and have int16 thresholds")
    compared = value if not narrow else "trunc(s, 16)" if short else f"sclamp({value}, 16)"
    shared = [ElementInput("r", "s32", "row")] * row + [ElementInput("m", "s32", "channel")] * flip
    limit = "sext(t[k], 32)" if narrow else "t[k]"
    forms = ["row"] * row + ["flip"] * flip + ["short"] * short
    return ElementwiseSpec(
        name="_".join([f"thresholds{levels}", kind, *forms, "words" if words else "bytes"]),
        inputs=(ElementInput("s", "s32"), *shared, ElementInput("t", kind, "channel", levels)),
        meaning=f"sum(zext(bit(slt({limit}, {value})), 8) for k in range({levels}))",
        out="words" if words else "u8",
        planes=levels.bit_length() if words else 0,
        assumes=(
            *(f"~bit(slt(t[{k + 1}], t[{k}]))" for k in range(levels - 1) if straight),
            *([f"bit(slt(t[{levels - 1}], 32767))"] if narrow else []),
            *([SHORT_SUM] if short else []),
        ),
        nested=tuple(f"bit(slt(t[{k}], {compared}))" for k in range(levels if straight else 1)),
        alike=tuple(f"bit(slt(sext(t[{k}], 32), {value}))" for k in range(levels)) if narrow else (),
        kind=SpecKind.THRESHOLDS,
    )


@dataclass(frozen=True, eq=False)
class Thresholds(CodesEpilogue):
    """Codes: the number of thresholds below the accumulator, or above it where the channel is falling.

    Args:
        values: Whole numbers in ascending order: (levels,) or (1, levels) for all channels, or (channels, levels), 1 to
            255 levels. Channels may have fewer: masked ones, or lists of different lengths. Codes of n bits take at
            most 2**n - 1 levels.
        rising: Whether codes rise with the sum, for all channels or one by one (channels,).
        residual: A second tensor that is added to the sum, or None. If that may bring a sum to an end of int32, a level
            beyond it, which every sum passes, is refused.

    Attributes:
        bits: Bits of a code: the fewest that hold the number of levels.
    """

    values: ArrayLike
    rising: ArrayLike = True
    residual: Residual | None = None
    bits: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", parse_levels(self.values))
        object.__setattr__(self, "bits", max(1, self.codes[1].bit_length()))
        store_read_only(self, rising="rising")
        if np.asarray(self.rising).dtype != np.bool_ or np.ndim(self.rising) > 1:
            raise SpecError(f"rising is True, False or an array of them, one a channel, not {self.rising!r}")
        self._check_residual()

    @property
    def codes(self) -> tuple[int, int]:
        """The least and the greatest code."""
        return 0, int(np.shape(self.values)[1])

    @property
    def out_type(self) -> np.dtype[Any]:
        """The type of results."""
        return np.dtype(np.uint8)

    def _results(self, values: NDArray[Any]) -> NDArray[Any]:
        given, rising = self.levels(values.shape[-1])
        directions = np.where(rising, 1, -1)
        towards = values if rising.all() else values.astype(np.int64) * directions
        counts = np.zeros(values.shape, np.uint8)
        for level in (given * directions[:, None]).T:  # one at a time: sums along a last axis take four times as long
            counts += towards > level
        return counts

    def levels(self, channels: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return levels (`channels`, levels) and whether each channel is rising; raise SpecError for other channels.

        An absent level is the greatest int32, as no sum is above it, and the least in a falling channel.
        """
        given, rising = np.asarray(self.values, np.int64), np.asarray(self.rising, np.bool_)
        for count in (len(given), rising.size):
            if count not in (1, channels):
                raise SpecError(f"{count} channels of thresholds for {channels} output channels")
        every, up = np.broadcast_to(given, (channels, given.shape[1])), np.broadcast_to(rising, (channels,))
        return np.where(np.ma.getmaskarray(np.ma.asarray(self.values)) & ~up[:, None], INT32.min, every), up

    def lower(self, sums: Accumulators, planes: int) -> Iterator[AskedProgram]:
        """Yield specs that count the sorted levels below an accumulator of `sums`, in words of `planes` if not 0.

        Levels are padded to the number that a code can count, and clipped to what accumulators reach, plus 2.
        """
        given, rising = self.levels(sums.channels)
        levels, words = fold_thresholds(sums, given.T, rising), planes > 0
        least, most = max(-sums.bound - 2, int(INT32.min)), min(sums.bound, int(INT32.max))
        never = np.full(((1 << len(levels).bit_length()) - 1 - len(levels), levels.shape[1]), most, np.int32)
        every = np.concatenate([levels.clip(least, most), never])
        inputs = {"t": every} if rising.all() else {"t": every, "m": rising.astype(np.int32) - 1}
        yield thresholds_spec(len(every), words=words, row=sums.row, flip=not rising.all()), inputs
        if rising.all() and np.abs(every.astype(np.int64)).max() <= _MAX_NARROW_LEVEL:
            yield thresholds_spec(len(every), words=words, narrow=True, row=sums.row), inputs
            if sums.bound <= _MAX_SHORT_SUM and not sums.row:
                yield thresholds_spec(len(every), words=words, narrow=True, short=True), inputs

    def formula(self, channels: int) -> ClaimedThresholds:
        """Return the thresholds of `channels` channels, and whether each channel is rising."""
        values, rising = self.levels(channels)
        return ClaimedThresholds(values=values, rising=rising.astype(np.int64)[:, None])


def fold_thresholds(sums: Accumulators, thresholds: NDArray[np.int64], rising: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Return (levels, OC) sorted thresholds of sums that say what `thresholds` say of values.

    A value is below T exactly if its sum, with the row's addend, is below ceil(((T << h) - c) / F). Thresholds of a
    channel that is not `rising` (OC) are thresholds of -1 - sum. SpecError if a threshold is below all of int32 and
    sums go down to the least int32: programs cannot say that even the least sum is above it.
    """
    least = ((thresholds + rising) << sums.shift) - sums.columns
    ends = -(-least // sums.factor)
    folded: NDArray[Any] = np.where(rising, ends - 1, -1 - ends)
    if sums.bound >= INT32.max and (folded < INT32.min).any():
        channel = np.argwhere(folded < INT32.min)[0, 1]
        raise SpecError(
            f"thresholds of channel {channel} lie beyond int32, and the residual may bring sums to its end: "
            f"give levels from {INT32.min} to {INT32.max}"
        )
    return np.sort(folded, axis=0).clip(INT32.min, INT32.max).astype(np.int32)


def parse_levels(values: Any) -> NDArray[np.int64]:
    """Return thresholds (1 or channels, levels) as int64 in ascending order; absent thresholds are masked.

    `values` are integers (levels,) or (1, levels) for all channels, or (channels, levels), some of them masked; or a
    list of lists that may differ in length. A masked threshold becomes the greatest int32, which no sum is above. A
    threshold beyond int32 becomes the nearest int32, as every sum is on the same side of both.
    """
    rows = [_row(row) for row in (values if _is_ragged(values) else _table(values))]
    count = max((len(row) for row in rows), default=0)
    if not 1 <= count <= _MAX_LEVELS:
        raise SpecError(f"{_WANTED}, not {len(rows)} channels of {count}")
    out = np.full((len(rows), count), INT32.max, np.int64)
    for channel, row in enumerate(rows):
        if (np.diff(row) < 0).any():
            raise SpecError(f"thresholds of channel {channel} are out of order: {', '.join(map(str, row[:8]))}")
        out[channel, : len(row)] = row
    absent = np.arange(count) >= np.array([len(row) for row in rows])[:, None]
    absent.flags.writeable = out.flags.writeable = False
    return np.ma.MaskedArray(out, absent) if absent.any() else out


def _is_ragged(values: Any) -> bool:
    rows = values if isinstance(values, list | tuple) else []
    return bool(rows) and all(isinstance(row, list | tuple | np.ndarray) for row in rows)


def _table(values: Any) -> NDArray[Any]:
    """Return the rows of an array, with its mask."""
    given = values if isinstance(values, np.ma.MaskedArray) else plain_array(values, "thresholds")
    if given.ndim not in (1, 2):
        raise SpecError(f"{_WANTED}, not {given.dtype} {given.shape}")
    return given.reshape(1, -1) if given.ndim == 1 else given


def _row(row: Any) -> NDArray[np.int64]:
    """Return the unmasked levels of a channel, clipped to int32 and one beyond either end."""
    there = np.asarray(row.compressed() if isinstance(row, np.ma.MaskedArray) else row)
    if there.ndim != 1 or (there.size and there.dtype.kind not in "iu"):
        raise SpecError(f"{_WANTED}, not {there.dtype} {there.shape}")
    if there.dtype.kind == "u":
        there = np.minimum(there, np.array(_ABOVE, there.dtype) if there.dtype.itemsize > 4 else there)
    return there.astype(np.int64).clip(_BELOW, _ABOVE)

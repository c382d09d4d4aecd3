"""Ranges of sums of atoms: exact for bits of one column, and interval arithmetic for unknowns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.isa.domains.forms import LinearForm, Payload, as_form, is_plane

Ranges = Mapping[Hashable, tuple[int, int]]


def tightened(x: LinearForm, rows: int) -> LinearForm:
    """Return the same combination with the exact range of its bits, if they are of one column.

    Bits at one position are functions of the same codes, so their greatest joint sum may
    be less than the sum of their greatest values.
    """
    planes = [key for key in x.atoms if is_plane(key)]
    if len(planes) < len(x.atoms) or len({column for _, column in planes} - {None}) > 1:
        return x
    bits = [(key[0], c, m) for key in planes for c, m in x.atoms[key].items()]
    lo = hi = x.const
    positions = range(max((m.bit_length() for _, _, m in bits), default=0))
    for here, times in Counter(tuple((tt, c) for tt, c, m in bits if m >> p & 1) for p in positions).items():
        least, most = _extremes(here, rows)
        lo, hi = lo + times * least, hi + times * most
    return LinearForm(x.const, x.atoms, max(lo, x.lo), min(hi, x.hi))


@lru_cache(maxsize=1024)
def _extremes(bits: tuple[tuple[int, int], ...], rows: int) -> tuple[int, int]:
    """Return the least and the greatest sum over rows of truth tables, each times its coefficient."""
    sums = rows_of(bits, rows)
    return int(sums.min()), int(sums.max())


def rows_of(bits: Iterable[tuple[int, int]], rows: int) -> NDArray[Any]:
    """Return the sum of truth tables on each row, each times its coefficient; as Python's integers beyond int64."""
    bits = tuple(bits)
    dtype = np.int64 if sum(abs(times) for _, times in bits) < 1 << 63 else object
    out = np.zeros(rows, dtype)
    for table, times in bits:
        out += _unpack_table(table, rows).astype(dtype) * times
    return out


@lru_cache(maxsize=1024)
def _unpack_table(table: int, rows: int) -> NDArray[np.uint8]:
    """Return the rows of a truth table."""
    packed = np.frombuffer(table.to_bytes(max(1, rows // 8), "little"), np.uint8)
    return np.unpackbits(packed, count=rows, bitorder="little")


def ranged(x: LinearForm, ranges: Ranges) -> LinearForm:
    """Return the same combination of unknowns with the range that follows from theirs."""
    ends = [sorted((c * ranges[key][0], c * ranges[key][1])) for key, by in x.atoms.items() for c in by]
    return LinearForm(x.const, x.atoms, x.const + sum(lo for lo, _ in ends), x.const + sum(hi for _, hi in ends))


def interval(x: Payload) -> tuple[int, int]:
    """Return the least and the greatest value of a payload, as far as is known."""
    form = x if isinstance(x, LinearForm) else as_form(x)
    return form.lo, form.hi

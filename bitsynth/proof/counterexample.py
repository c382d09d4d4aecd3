"""Searches for an input on which a kernel is wrong, to explain why the checker refused it.

Inputs that break kernels come first: every pair of codes at all positions, at one position alone and in one column
alone; tails of K; K around the flush periods; codes that change where a period ends; all-ones at K = 4608. Then come
seeded random ones. Finding none proves nothing; only the checker proves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, chain, groupby
from operator import mul

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.kernel.interpreter import compute_wanted_sums, product
from bitsynth.kernel.packing import Codes
from bitsynth.kernel.program import Kernel, Pass

REGRESSION_K = 4608
"""All-ones of this length overflow the 8-bit sums of CGO 2020's A2W2 kernel."""
MAX_PERIOD_STEPS = 1 << 13
"""Steps of the longest flush period tried: longer than any of 8-bit lanes widened to 16 bits."""
MAX_PAIR_STEPS = 1 << 11
"""Steps of the longest input that is tried with every pair of codes."""
_BLOCK = 1 << 12
_SEED = 2020


@dataclass(frozen=True, eq=False)
class Counterexample:
    """Codes of one row and of one tile of columns, with a column whose sum is wrong.

    `other_row` has the codes of the other row, if two rows share one program.
    """

    swapped: bool
    row: Codes
    tile: Codes
    column: int
    got: int
    want: int
    other_row: Codes | None = None

    @property
    def k(self) -> int:
        """The number of positions of K."""
        return len(self.row)

    def __str__(self) -> str:
        of_row, of_column = ("wgt", "act") if self.swapped else ("act", "wgt")
        others = np.delete(self.tile, self.column, axis=1)
        if (self.tile == self.tile[:, :1]).all():
            tile = f"{of_column} {_text(self.tile[:, 0])} in every column"
        elif not others.any():
            tile = f"{of_column} {_text(self.tile[:, self.column])} in column {self.column}, 0 in the others"
        else:
            columns = enumerate(self.tile.T)
            tile = f"{of_column} " + "; ".join(f"{_text(codes)} in column {n}" for n, codes in columns)
        return (
            f"counterexample: K = {self.k}, {of_row} {_text(self.row)}, {self._other_row_text}{tile}: "
            f"column {self.column} gives {self.got}, want {self.want}"
        )

    @property
    def _other_row_text(self) -> str:
        return "" if self.other_row is None else f"{_text(self.other_row)} in the row next to it, "


def _text(codes: Codes) -> str:
    """Describe codes, every one of them."""
    where = np.flatnonzero(codes)
    if (codes == codes[0]).all():
        return f"code {codes[0]} at every position"
    if len(where) == 1:
        return f"code {codes[where[0]]} at position {where[0]}, 0 at the others"
    runs = [(code, len(list(same))) for code, same in groupby(codes.tolist())]
    return "codes " + " ".join(f"{code}" if times == 1 else f"{code}*{times}" for code, times in runs)


def evidence(kernel: Kernel) -> str:
    """Describe an input on which the kernel is wrong, or say that none was found."""
    try:
        example = counterexample(kernel)
    except SpecError as why:
        return f"its programs cannot be run, so there is no sum to compare: {why}"
    if example is None:
        return "no counterexample among the inputs tried: it may be right, but it is not proved, so it is refused"
    return str(example)


def counterexample(kernel: Kernel, *, thorough: bool = True) -> Counterexample | None:
    """Return the first input of the search on which a sum is wrong; None if all are right.

    Both the vector program of rows and the scalar pass are run. Only a `thorough` search tries whole flush periods.
    """
    for each in kernel.alone:
        for rows, columns in chain(_short(each), _long(each) if thorough else ()):
            if example := _first_wrong(each, rows, columns):
                return example
    return None


def _first_wrong(kernel: Kernel, rows: Codes, columns: Codes) -> Counterexample | None:
    """Return the first wrong sum; rows are run in blocks, so that memory stays small."""
    each, together = kernel.columns, kernel.together
    if together > 1:
        rows = np.concatenate(
            [np.resize(rows, (-(-len(rows) // together) * together, rows.shape[1])), rows.repeat(2, 0)]
        )
    block = max(1, _BLOCK // -(-columns.shape[1] // each) // together) * together
    for first in range(0, len(rows), block):
        some = rows[first : first + block]
        wrong = np.argwhere(product(kernel, some, columns) != compute_wanted_sums(kernel, some, columns))
        if len(wrong):
            m, n = (int(x) for x in wrong[0])
            group, member = some[m // together * together :][:together], m % together
            return _simplest(kernel, group, member, columns[:, n // each * each : (n // each + 1) * each], n % each)
    return None


def _simplest(kernel: Kernel, group: Codes, member: int, tile: Codes, column: int) -> Counterexample:
    """Return the counterexample with other rows and the other columns at 0, if the sum is wrong even so."""
    alone, row = np.zeros_like(tile), np.zeros_like(group)
    alone[:, column] = tile[:, column]
    row[member] = group[member]
    rows = (row, group) if len(group) > 1 else (group,)
    every = [_at(kernel, codes, member, t, column) for codes in rows for t in (alone, tile)]
    return next((example for example in every if example.got != example.want), every[-1])


def _at(kernel: Kernel, group: Codes, member: int, tile: Codes, column: int) -> Counterexample:
    got, want = (f(kernel, group, tile)[member, column] for f in (product, compute_wanted_sums))
    others = np.delete(group, member, axis=0)
    other_row = others[0] if others.any() else None
    return Counterexample(kernel.swapped, group[member], tile, column, int(got), int(want), other_row)


InputPair = tuple[Codes, Codes]


def _short(kernel: Kernel) -> Iterator[InputPair]:
    """Yield pairs of (R, K) row codes and (K, C) column codes of a few steps, likely ones first."""
    k, rng = kernel.k_step, np.random.default_rng(_SEED)
    yield _everywhere(kernel, k)
    yield _one_column(kernel, k)
    yield _one_position(kernel.row_bits, k), _tiles(kernel, _uniform(kernel.column_bits, k))
    yield _uniform(kernel.row_bits, k), _tiles(kernel, _one_position(kernel.column_bits, k))
    for length in sorted({1, max(1, k - 1), k + 1}):
        yield _everywhere(kernel, length)
    for length in (k, 2 * k + 5):
        yield _alternating(kernel, length)
        yield _random(kernel, rng, 32, length, 8)


def _long(kernel: Kernel) -> Iterator[InputPair]:
    """Yield inputs about the ends of the loops' periods, the greatest codes first."""
    k, rng = kernel.k_step, np.random.default_rng(_SEED)
    periods = {x for p in kernel.passes for x in _periods(p) if x <= MAX_PERIOD_STEPS}
    for steps in sorted(periods):
        yield _greatest(kernel, steps * k)
        yield _across(kernel, steps * k, k)
    for steps in sorted({min(x, MAX_PAIR_STEPS) for x in periods}):
        yield _everywhere(kernel, steps * k + 1)
        yield _random(kernel, rng, 4, max(1, steps * k - 1), 2)
        yield _greatest(kernel, (2 * steps + 1) * k)
    yield _greatest(kernel, REGRESSION_K)


def _periods(loop: Pass) -> Iterator[int]:
    """Return steps in a whole run of each loop, innermost first."""
    return accumulate((nested.trip_count for nested in loop.loops), mul)


def _greatest(kernel: Kernel, k: int) -> InputPair:
    """Return 0 and the greatest code, in every pair, at every position."""
    rows, columns = _everywhere(kernel, k)
    return rows[[0, -1]], columns[:, np.r_[: kernel.columns, -kernel.columns : 0]]


def _across(kernel: Kernel, end: int, more: int) -> InputPair:
    """Return the greatest code before position `end` or in the `more` after it, 0 in the others.

    Of any two columns there is a tile in which they take different sides.
    """
    columns = np.arange(kernel.columns)
    late = np.stack([columns >> bit & 1 for bit in range((kernel.columns - 1).bit_length() + 1)])
    sides = np.concatenate([late, 1 - late]).reshape(1, -1)
    after = (np.arange(end + more) >= end).astype(int)
    rows = np.stack([after, 1 - after]) * ((1 << kernel.row_bits) - 1)
    return rows.astype(np.uint8), ((after[:, None] == sides) * ((1 << kernel.column_bits) - 1)).astype(np.uint8)


def _uniform(bits: int, k: int) -> Codes:
    """Return a row for each code, which has the code at every position."""
    return np.repeat(np.arange(1 << bits, dtype=np.uint8)[:, None], k, axis=1)


def _one_position(bits: int, k: int) -> Codes:
    """Return a row for each code and position: the code there, 0 elsewhere."""
    codes = np.arange(1, 1 << bits, dtype=np.uint8)
    return (np.eye(k, dtype=np.uint8)[None] * codes[:, None, None]).reshape(-1, k)


def _tiles(kernel: Kernel, columns: Codes) -> Codes:
    """Return a tile for each row of `columns`, which has that row in every column."""
    return np.ascontiguousarray(np.repeat(columns, kernel.columns, axis=0).T)


def _everywhere(kernel: Kernel, k: int) -> InputPair:
    """Return every pair of codes, at every position of every column."""
    return _uniform(kernel.row_bits, k), _tiles(kernel, _uniform(kernel.column_bits, k))


def _one_column(kernel: Kernel, k: int) -> InputPair:
    """Return every pair of codes, in one column of a tile that is 0 otherwise."""
    tiles = _one_position(kernel.column_bits, kernel.columns).reshape(1, -1)
    return _uniform(kernel.row_bits, k), np.repeat(tiles, k, axis=0)


def _alternating(kernel: Kernel, k: int) -> InputPair:
    """Return the greatest code at every second position, on either side, in every second column."""
    at = np.arange(k)
    act = np.stack([(at % 2), (at + 1) % 2]) * ((1 << kernel.row_bits) - 1)
    wgt = (at[:, None] + np.arange(2 * kernel.columns)) % 2 * ((1 << kernel.column_bits) - 1)
    return act.astype(np.uint8), wgt.astype(np.uint8)


def _random(kernel: Kernel, rng: np.random.Generator, rows: int, k: int, tiles: int) -> InputPair:
    act = rng.integers(0, 1 << kernel.row_bits, (rows, k), dtype=np.uint8)
    return act, rng.integers(0, 1 << kernel.column_bits, (k, tiles * kernel.columns), dtype=np.uint8)

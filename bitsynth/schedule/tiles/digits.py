"""Digits: how a product of codes is cut into passes over K, each of some bits of the row's codes and the columns'."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bitsynth.isa.load import Isa
from bitsynth.sketches.lanes import pairs
from bitsynth.sketches.lanes.terms import ProductTerm
from bitsynth.spec.matmul import MAX_BITS

_MOST_PLANES = 2
"""Bits of columns with which pairs are tried."""


@dataclass(frozen=True)
class Digit:
    """Bits of the row's codes, times bits of the columns'."""

    row: range
    column: range

    @property
    def weight(self) -> int:
        """The power of two by which its products count."""
        return self.row.start + self.column.start

    @property
    def widths(self) -> tuple[int, int]:
        """How many bits of either it has."""
        return len(self.row), len(self.column)

    def most_of(self, positions: int) -> int:
        """The greatest sum of its products of so many positions."""
        row, column = self.widths
        return positions * ((1 << row) - 1) * ((1 << column) - 1)


def cut(isa: Isa, term: ProductTerm, row_bits: int, column_bits: int, *, signed: bool) -> Iterator[tuple[Digit, ...]]:
    """The ways to cut a product into passes: lookups take a plane of the columns and a digit of the row each.

    Products take codes whole, or one side's of 8 bits in two if they lie in bytes, but for `signed` ones of columns and
    products of sums.
    """
    if term.looks_up:
        most = (1 << isa.word.bits) - 1 if term.rows == 1 else pairs.find(isa).most
        for count in _counts(term, row_bits, column_bits):
            parts = _cuts(row_bits, count)
            if all(term.positions * ((1 << len(part)) - 1) <= most for part in parts):
                yield tuple(Digit(part, plane) for plane in _cuts(column_bits, column_bits) for part in parts)
        return
    row, column = range(row_bits), range(column_bits)
    yield (Digit(row, column),)
    if term.code_bytes > 1 or term.crosses:
        return
    if row_bits == MAX_BITS:
        yield tuple(Digit(half, column) for half in _cuts(row_bits, 2))
    if column_bits == MAX_BITS and not signed:
        yield tuple(Digit(row, half) for half in _cuts(column_bits, 2))


def _counts(term: ProductTerm, row_bits: int, column_bits: int) -> range:
    """The numbers of parts of the row's codes that lookups may be of.

    Those of two rows take codes whole, and few planes: of more bits on a side single rows have fewer passes.
    """
    if term.rows == 1:
        return range(1, row_bits + 1)
    return range(1, 1 + (column_bits <= _MOST_PLANES))


def _cuts(bits: int, parts: int) -> list[range]:
    """The bits of each part of a code."""
    return [range(low, high) for low, high in pairwise(bits * k // parts for k in range(parts + 1))]


def chained(digits: Sequence[Digit]) -> Iterator[list[tuple[Digit, ...]]]:
    """The ways to part digits into chains of passes that share accumulators.

    Each alone; then those next to each other in weight, two and more at a time, if all are as wide.
    """
    yield [(digit,) for digit in digits]
    if len({d.widths for d in digits}) == 1 and len({d.weight for d in digits}) == len(digits):
        ordered = sorted(digits, key=lambda d: -d.weight)
        for size in range(2, len(digits) + 1):
            yield [tuple(ordered[k : k + size]) for k in range(0, len(ordered), size)]

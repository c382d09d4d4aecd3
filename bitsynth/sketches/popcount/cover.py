"""The plane grid cut into blocks: the shapes of blocks, and the cheapest cover.

act * bipolar(wgt) is a sum over any partition of the act_bits x wgt_bits grid of plane
pairs into rectangles, each the same product of narrower operands, scaled. Small
rectangles are solved exactly (`gates`); the cover of least cost is found exactly too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from bitsynth.sketches.popcount.gates import BitForm

SHAPES = ((1, 1), (1, 2), (2, 1), (2, 2), (1, 3), (3, 1))
"""Block shapes (act planes, wgt planes) small enough to be solved to optimality."""

Price = tuple[int, int, int]


@dataclass(frozen=True)
class PlacedBlock:
    """`form` for act planes act_low.. and wgt planes wgt_low.., scaled by 2**(act_low + wgt_low)."""

    act_low: int
    wgt_low: int
    form: BitForm

    @property
    def scale(self) -> int:
        """The power of two by which the block counts."""
        return 1 << (self.act_low + self.wgt_low)


def shapes_within(act_bits: int, wgt_bits: int) -> list[tuple[int, int]]:
    """Return the block shapes that fit the grid."""
    return [(p, r) for p, r in SHAPES if p <= act_bits and r <= wgt_bits]


def price(form: BitForm) -> Price:
    """Return the cost, then whether a correction a row is due, then the planes to load."""
    return form.cost, int(any(form.h)), form.planes


def cheapest_cover(act_bits: int, wgt_bits: int, forms: Mapping[tuple[int, int], BitForm]) -> tuple[PlacedBlock, ...]:
    """Return the partition of the grid into blocks of `forms` with the least total price."""
    full = (1 << (act_bits * wgt_bits)) - 1

    @cache
    def best(covered: int) -> tuple[Price, tuple[tuple[int, tuple[int, int]], ...]]:
        if covered == full:
            return (0, 0, 0), ()
        cell = (~covered & (covered + 1)).bit_length() - 1
        options = []
        for shape, form in forms.items():
            cells = _cells(cell, shape, act_bits, wgt_bits)
            if cells and not cells & covered:
                rest, blocks = best(covered | cells)
                total = tuple(a + b for a, b in zip(price(form), rest, strict=True))
                options.append((total, ((cell, shape), *blocks)))
        return min(options)  # type: ignore[return-value]

    _, blocks = best(0)
    return tuple(PlacedBlock(cell % act_bits, cell // act_bits, forms[shape]) for cell, shape in blocks)


def _cells(cell: int, shape: tuple[int, int], act_bits: int, wgt_bits: int) -> int:
    """Return the grid cells of a block whose lowest planes are at `cell`; 0 if it does not fit."""
    act, wgt = cell % act_bits, cell // act_bits
    if act + shape[0] > act_bits or wgt + shape[1] > wgt_bits:
        return 0
    row = ((1 << shape[0]) - 1) << act
    return sum(row << (act_bits * (wgt + k)) for k in range(shape[1]))

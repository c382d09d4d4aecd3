"""Inputs to try an instruction on: all, if an output lane depends on 16 bits, else families of values.

Lanes of 8 and 16 bits take every value, wider ones every value of each byte and the `landmarks`, once with all other
bits 0, once 1, once random; lanes that meet in an output lane take all pairs of landmarks. A wrong value of a sampled
form that lies outside of these families is not found.

A batch of inputs is one uint64 array of shape (lanes, records) an operand.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from bitsynth.conformance.lanes import (
    LaneGroup,
    OperandLane,
    choose_groups,
    crosses_lanes,
    exhaustive_places,
    find_read_lanes,
    group_independent_lanes,
    list_group_pairs,
)
from bitsynth.conformance.values import (
    EXHAUSTIVE_BITS,
    FILLS,
    U64,
    Fill,
    float_landmarks,
    landmarks,
    mask,
    random_values,
    sweep,
)
from bitsynth.isa.instr import Instr
from bitsynth.isa.types import VecType

_RANDOM = 512
_SMALL = 128
_STEP = 37
_BATCH = 1 << 16
"""Records a batch has at least, but for the first and the last."""


@dataclass(frozen=True, order=True)
class Coverage:
    """The share tried of the `bits` an output lane depends on: all values, or families over lanes of `widths`.

    Lanes are swept one by one, or all lanes of an operand together. The greater of two covers less.
    """

    bits: int
    widths: tuple[int, ...] = ()
    one_by_one: bool = True

    @property
    def exhaustive(self) -> bool:
        """Whether all values are tried."""
        return not self.widths

    def __str__(self) -> str:
        if self.exhaustive:
            return f"exhaustive  every value of the {self.bits} bits that a lane depends on"
        each, pairs = ("each lane", "") if self.one_by_one else ("all lanes of an operand at once", " of two operands")
        narrow, wide = ([w for w in self.widths if (w <= EXHAUSTIVE_BITS) == small] for small in (True, False))
        parts = [f"every value of {_or(narrow)} bits"] if narrow else []
        parts += [f"of {_or(wide)} bits every value of each byte, and landmarks"] if wide else []
        return f"sampled     {each}: {'; '.join(parts)}; all pairs of landmarks{pairs}; random ones"


def _or(widths: Sequence[int]) -> str:
    return " or ".join(map(str, widths))


class FormTrial:
    """The inputs that a form with one immediate is tried on, the same ones every time."""

    def __init__(self, instr: Instr, imm: int) -> None:
        self._instr, self._imm = instr, imm
        self._types = tuple(o.type for o in instr.operands)
        self._seen = tuple(find_read_lanes(instr, imm))
        self._places = exhaustive_places(self._types, self._seen)
        self._groups = () if self._places is not None else choose_groups(self._types, self._seen, len(instr.imms))

    @property
    def coverage(self) -> Coverage:
        """The coverage of all batches together."""
        bits = max((sum(self._types[k].bits for k, _ in pieces) for pieces in self._seen), default=0)
        widths = sorted({self._types[group[0][0]].bits for group in self._groups})
        return Coverage(bits, tuple(widths), self._groups == group_independent_lanes(self._types, self._seen))

    def batches(self) -> Iterator[list[U64]]:
        """Yield the inputs, a small batch first that finds most mistakes."""
        rng = np.random.default_rng(zlib.crc32(f"{self._instr.isa} {self._instr.name} {self._imm}".encode()))
        if first := list(self._few(rng)):
            yield _join_batches(first)
        waiting: list[list[U64]] = []
        for family in self._families(rng):
            waiting.append(family)
            if sum(parts[0].shape[1] for parts in waiting) >= _BATCH:
                yield _join_batches(waiting)
                waiting = []
        if waiting:
            yield _join_batches(waiting)

    def _few(self, rng: np.random.Generator) -> Iterator[list[U64]]:
        if crosses_lanes(self._seen):
            yield from _one_hot(self._types, rng)
        if self._places is None:
            yield _edges(self._types)
            yield [random_values(rng, t.bits, (t.lanes, _RANDOM)) for t in self._types]
            yield [random_values(rng, 5, (t.lanes, _SMALL)) for t in self._types]

    def _families(self, rng: np.random.Generator) -> Iterator[list[U64]]:
        if self._places is not None:
            yield _exhaustive(self._types, self._places)
            return
        for group, fill in product(self._groups, FILLS):
            yield _sweep(self._types, group, fill, rng)
        for one, other in list_group_pairs(self._groups, self._seen):
            yield _pairs(self._types, one, other, rng)
        if self._instr.floats:
            yield self._float_pairs(rng)

    def _float_pairs(self, rng: np.random.Generator) -> list[U64]:
        """Return inputs in which operands that are float32 numbers take all pairs of float32 landmarks."""
        marks = float_landmarks()
        row, column = np.divmod(np.arange(len(marks) ** 2), len(marks))
        out = [random_values(rng, t.bits, (t.lanes, len(row))) for t in self._types]
        for k, operand in enumerate(self._instr.operands):
            if operand.name in self._instr.floats:
                out[k] = np.stack(
                    [np.roll(marks[column if k else row], -_start(0, i)) for i in range(operand.type.lanes)]
                )
        return out


def _sweep(types: Sequence[VecType], group: LaneGroup, fill: Fill, rng: np.random.Generator) -> list[U64]:
    """Return inputs in which the lanes of `group` take all values of their family, the others as `fill` makes them."""
    values = sweep(types[group[0][0]].bits, fill, rng)
    out = [fill(rng, t.bits, (t.lanes, len(values))) for t in types]
    for k, lane in group:
        out[k][lane] = np.roll(values, -_start(k, lane))
    return out


def _pairs(types: Sequence[VecType], one: LaneGroup, other: LaneGroup, rng: np.random.Generator) -> list[U64]:
    """Return inputs in which lanes of `one` and `other` meet with all pairs of landmarks; other lanes are random."""
    x, y = (landmarks(types[group[0][0]].bits) for group in (one, other))
    row, column = np.divmod(np.arange(len(x) * len(y)), len(y))
    out = [random_values(rng, t.bits, (t.lanes, len(row))) for t in types]
    for values, at, group in ((x, row, one), (y, column, other)):
        for k, lane in group:
            out[k][lane] = np.roll(values, -_start(k, lane))[at]
    return out


def _exhaustive(types: Sequence[VecType], places: dict[OperandLane, int]) -> list[U64]:
    """Return all values of a counter as wide as the placed lanes."""
    bits = max((p + types[k].bits for (k, _), p in places.items()), default=1)
    counter = np.arange(1 << bits, dtype=np.uint64)
    out = []
    for k, t in enumerate(types):
        lanes = [(counter >> np.uint64(places.get((k, j), 0))) + np.uint64(_start(k, j)) for j in range(t.lanes)]
        out.append(np.stack(lanes) & mask(t.bits))
    return out


def _start(k: int, lane: int) -> int:
    """Return the start of a lane: each elsewhere, and no two operands at a constant distance."""
    return _STEP * lane * (2 * k + 1)


def _edges(types: Sequence[VecType]) -> list[U64]:
    """Return every choice of edge values for the operands, once with equal lanes and once with different ones."""
    values = [np.array(_edge_values(t), dtype=np.uint64) for t in types]
    combos = np.array(list(product(*(range(len(v)) for v in values)))).T
    out = []
    for v, combo, t in zip(values, combos, types, strict=True):
        shifts = [np.arange(t.lanes)[:, None] * step for step in (0, 3)]
        out.append(np.concatenate([v[(combo[None] + shift) % len(v)] for shift in shifts], axis=1))
    return out


def _edge_values(t: VecType) -> list[int]:
    sign = 1 << (t.bits - 1)
    values = {0, 1, 15, 16, 127, 128, sign - 1, sign, 2 * sign - 2, 2 * sign - 1}
    return sorted(v for v in values if v < 2 * sign)


def _one_hot(types: Sequence[VecType], rng: np.random.Generator) -> Iterator[list[U64]]:
    """Yield inputs in which one lane of all is set and the others are 0, or random while it alone is 0."""
    total = sum(t.lanes for t in types)
    first = 0
    bits: list[U64] = []
    holes: list[U64] = []
    for t in types:
        hot = np.zeros((t.lanes, total), dtype=np.uint64)
        hot[np.arange(t.lanes), first + np.arange(t.lanes)] = 1
        bits.append(hot)
        holes.append(random_values(rng, t.bits, (t.lanes, total)) * (np.uint64(1) - hot))
        first += t.lanes
    yield bits
    yield [hot * mask(t.bits) for hot, t in zip(bits, types, strict=True)]
    yield holes


def _join_batches(batches: Sequence[list[U64]]) -> list[U64]:
    return [np.concatenate(parts, axis=1) for parts in zip(*batches, strict=True)]

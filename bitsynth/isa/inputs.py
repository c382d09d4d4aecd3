"""What an instruction is tried on: everything where a lane sees 16 bits, else a sample.

An input set is one uint64 array of shape (lanes, records) an operand.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from bitsynth.isa.domains.reads import ReadsDomain
from bitsynth.isa.instr import Instr
from bitsynth.isa.types import VecType

U64 = NDArray[np.uint64]
Piece = tuple[int, int]
"""An operand's number and one of its lanes."""

_EXHAUSTIVE_BITS = 16
_RANDOM = 512
_SMALL = 128
_STEP = 37


def reads(instr: Instr, imm: int) -> list[frozenset[Piece]]:
    """The input lanes that each output lane depends on."""
    args = [[frozenset({(k, lane)}) for lane in range(o.type.lanes)] for k, o in enumerate(instr.operands)]
    return instr(ReadsDomain(), args, imm)


def crosses_lanes(seen: Sequence[frozenset[Piece]]) -> bool:
    """Whether an output lane sees an input lane of another number."""
    return any(lane != i for i, pieces in enumerate(seen) for _, lane in pieces)


def inputs(instr: Instr, imm: int) -> list[U64]:
    """The inputs `instr` is tried on: the same ones every time."""
    rng = np.random.default_rng(zlib.crc32(f"{instr.isa} {instr.name} {imm}".encode()))
    batches = list(_batches(instr, imm, rng))
    return [np.concatenate(parts, axis=1) for parts in zip(*batches, strict=True)]


def _batches(instr: Instr, imm: int, rng: np.random.Generator) -> Iterator[list[U64]]:
    types = [o.type for o in instr.operands]
    seen = reads(instr, imm)
    places = exhaustive_places(types, seen)
    if places is not None:
        yield _exhaustive(types, places)
    else:
        yield _edges(types)
        yield from _sweeps(types, rng)
        yield _each(types, lambda t: _random(rng, t, _RANDOM))
        yield _each(types, lambda t: _random(rng, VecType("u", 8, t.lanes), _SMALL) & np.uint64(31))
    if crosses_lanes(seen):
        yield from _one_hot(types, rng)


def exhaustive_places(types: Sequence[VecType], seen: Sequence[frozenset[Piece]]) -> dict[Piece, int] | None:
    """Where in a 16-bit counter each input lane lies, so that every output lane sees all its inputs.

    None where an output lane sees more than 16 bits, or the lanes cannot be placed.
    """
    places: dict[Piece, int] = {}
    for pieces in seen:
        free = (1 << _EXHAUSTIVE_BITS) - 1
        for piece in sorted(pieces, key=lambda p: (p not in places, p)):
            width = types[piece[0]].bits
            spots = [places[piece]] if piece in places else range(0, _EXHAUSTIVE_BITS, width)
            place = next((s for s in spots if free >> s & (1 << width) - 1 == (1 << width) - 1), None)
            if place is None:
                return None
            places[piece] = place
            free &= ~(((1 << width) - 1) << place)
    return places


def _exhaustive(types: Sequence[VecType], places: dict[Piece, int]) -> list[U64]:
    """All values of a counter as wide as the placed lanes.

    Each lane starts elsewhere, and no two operands at a constant distance.
    """
    bits = max((p + types[k].bits for (k, _), p in places.items()), default=1)
    counter = np.arange(1 << bits, dtype=np.uint64)
    out = []
    for k, t in enumerate(types):
        starts = [np.uint64(_STEP * j * (2 * k + 1)) for j in range(t.lanes)]
        lanes = [(counter >> np.uint64(places.get((k, j), 0))) + start for j, start in enumerate(starts)]
        out.append(np.stack(lanes) & _mask(t))
    return out


def _edges(types: Sequence[VecType]) -> list[U64]:
    """Every choice of edge values for the operands, once with equal lanes and once with different ones."""
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


def _sweeps(types: Sequence[VecType], rng: np.random.Generator) -> Iterator[list[U64]]:
    """All values of a byte in every lane of one operand, the others random."""
    for swept in range(len(types)):
        out = _each(types, lambda t: _random(rng, t, 256))
        lanes = np.arange(types[swept].lanes, dtype=np.uint64)[:, None] * np.uint64(_STEP)
        out[swept] = (np.arange(256, dtype=np.uint64)[None] + lanes) & np.uint64(255)
        yield out


def _one_hot(types: Sequence[VecType], rng: np.random.Generator) -> Iterator[list[U64]]:
    """One lane of all is set and the others are 0, or random while it alone is 0."""
    total = sum(t.lanes for t in types)
    first = 0
    ones: list[U64] = []
    holes: list[U64] = []
    for t in types:
        hot = np.zeros((t.lanes, total), dtype=np.uint64)
        hot[np.arange(t.lanes), first + np.arange(t.lanes)] = 1
        ones.append(hot)
        holes.append(_random(rng, t, total) * (np.uint64(1) - hot))
        first += t.lanes
    yield ones
    yield [hot * _mask(t) for hot, t in zip(ones, types, strict=True)]
    yield holes


def _each(types: Sequence[VecType], make: Callable[[VecType], U64]) -> list[U64]:
    return [make(t) for t in types]


def _random(rng: np.random.Generator, t: VecType, records: int) -> U64:
    return rng.integers(0, _mask(t), size=(t.lanes, records), dtype=np.uint64, endpoint=True)


def _mask(t: VecType) -> np.uint64:
    return np.uint64((1 << t.bits) - 1)

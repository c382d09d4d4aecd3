"""The input lanes that an output lane depends on, and the lanes that are swept together.

To sweep a lane is to try it with all values of a family (`values.py`) while the other lanes are filled with 0, 1 or
random bits. Lanes that no output lane depends on together may be swept in the same records, which saves most of them:

Given:   an addition of 4 lanes: output lane i depends on lane i of operand 0 and lane i of operand 1
Result:  two groups, the lanes of operand 0 and the lanes of operand 1; they are one pair of groups, as every output
         lane depends on a lane of each, so pairs of landmarks are tried in them
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations

from bitsynth.conformance.values import EXHAUSTIVE_BITS, FILLS, count_swept, landmarks
from bitsynth.isa.domains.reads import ReadsDomain
from bitsynth.isa.instr import Instr
from bitsynth.isa.types import VecType

OperandLane = tuple[int, int]
"""An operand's number and one of its lanes."""
LaneGroup = tuple[OperandLane, ...]
"""Lanes of one width that take the values of a family in the same records, each from another start."""
_MAX_RECORDS = 1 << 21
"""Lanes are swept one by one if a form then has no more, all immediates counted."""


def find_read_lanes(instr: Instr, imm: int) -> list[frozenset[OperandLane]]:
    """Return the input lanes that each output lane depends on."""
    args = [[frozenset({(k, lane)}) for lane in range(o.type.lanes)] for k, o in enumerate(instr.operands)]
    return instr(ReadsDomain(), args, imm)


def crosses_lanes(seen: Sequence[frozenset[OperandLane]]) -> bool:
    """Return whether an output lane sees an input lane of another number."""
    return any(lane != i for i, pieces in enumerate(seen) for _, lane in pieces)


def exhaustive_places(
    types: Sequence[VecType], seen: Sequence[frozenset[OperandLane]]
) -> dict[OperandLane, int] | None:
    """Return the place of each input lane in a 16-bit counter, such that every output lane sees all its inputs.

    None if an output lane sees more than 16 bits, or the lanes cannot be placed.
    """
    places: dict[OperandLane, int] = {}
    for pieces in seen:
        free = (1 << EXHAUSTIVE_BITS) - 1
        for piece in sorted(pieces, key=lambda p: (p not in places, p)):
            width = types[piece[0]].bits
            spots = [places[piece]] if piece in places else range(0, EXHAUSTIVE_BITS, width)
            place = next((s for s in spots if free >> s & (1 << width) - 1 == (1 << width) - 1), None)
            if place is None:
                return None
            places[piece] = place
            free &= ~(((1 << width) - 1) << place)
    return places


def choose_groups(
    types: tuple[VecType, ...], seen: tuple[frozenset[OperandLane], ...], cases: int
) -> tuple[LaneGroup, ...]:
    """Return the lanes that are swept together: as few as can be, or all lanes of an operand if too many."""
    alone = group_independent_lanes(types, seen)
    if cases * _records(types, alone, seen) <= _MAX_RECORDS:
        return alone
    together = (tuple(p for group in alone for p in group if p[0] == k) for k in range(len(types)))
    return tuple(group for group in together if group)


@lru_cache
def group_independent_lanes(
    types: tuple[VecType, ...], seen: tuple[frozenset[OperandLane], ...]
) -> tuple[LaneGroup, ...]:
    """Return all lanes that are seen, in groups of one width; no output lane sees two lanes of a group."""
    met: dict[OperandLane, set[OperandLane]] = {}
    for pieces in seen:
        for piece in pieces:
            met.setdefault(piece, set()).update(pieces)
    groups: list[list[OperandLane]] = []
    for piece, others in sorted(met.items()):
        width = types[piece[0]].bits
        fitting = (g for g in groups if types[g[0][0]].bits == width and others.isdisjoint(g))
        home = next(fitting, None)
        if home is None:
            groups.append([piece])
        else:
            home.append(piece)
    return tuple(map(tuple, groups))


def list_group_pairs(
    groups: Sequence[LaneGroup], seen: Sequence[frozenset[OperandLane]]
) -> list[tuple[LaneGroup, LaneGroup]]:
    """Return the pairs of groups that some output lane sees lanes of."""
    home = {piece: n for n, group in enumerate(groups) for piece in group}
    pairs = {pair for pieces in set(seen) for pair in combinations(sorted({home[p] for p in pieces}), 2)}
    return [(groups[x], groups[y]) for x, y in sorted(pairs)]


def _records(types: Sequence[VecType], groups: Sequence[LaneGroup], seen: Sequence[frozenset[OperandLane]]) -> int:
    """Return the number of inputs of the families of these groups."""
    bits = {group: types[group[0][0]].bits for group in groups}
    sweeps = sum(len(FILLS) * count_swept(bits[g]) for g in groups)
    return sweeps + sum(len(landmarks(bits[x])) * len(landmarks(bits[y])) for x, y in list_group_pairs(groups, seen))

"""The arena: one block of memory for all buffers of a network, planned by their live ranges before anything runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from random import Random

import numpy as np
from numpy.typing import NDArray

from bitsynth.network.program import NetworkProgram, alias_root

ALIGN = 64
_MAX_EXCHANGES, _MAX_STEPS = 300, 1 << 21
"""The most orders tried, and roughly the most pairs of buffers compared in all."""


@dataclass(frozen=True)
class Lifetime:
    """The live range of memory: the first and the last step that use it, and its bytes."""

    first: int
    last: int
    bytes: int

    def meets(self, other: Lifetime) -> bool:
        """Return whether some step needs both."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class ArenaPlan:
    """The place of each buffer in the arena.

    Args:
        offsets: Where the memory of each buffer that is no alias begins, in bytes, a multiple of `ALIGN`.
        lifetimes: When it is in use.
        bytes: Bytes of the arena.
    """

    offsets: Mapping[str, int]
    lifetimes: Mapping[str, Lifetime]
    bytes: int

    @property
    def bound(self) -> int:
        """The fewest bytes of any plan: the most in use at one step."""
        return lower_bound(self.lifetimes.values())


def plan_arena(program: NetworkProgram, *, apart: bool = False) -> ArenaPlan:
    """Return the plan of a program's arena: greedy by size or, with `apart`, each buffer in a place of its own."""
    lives = lifetimes(program)
    if apart:
        lives = {name: Lifetime(0, len(program.steps), life.bytes) for name, life in lives.items()}
    return by_size(lives)


def lifetimes(program: NetworkProgram) -> dict[str, Lifetime]:
    """Return the live ranges of buffers in the arena. A use of an alias counts as a use of its memory's buffer."""
    used = uses(program)
    roots = {name: program.buffers[name] for name in used if program.buffers[name].role == "arena"}
    return {name: Lifetime(used[name][0], used[name][-1], align_up(b.bytes)) for name, b in roots.items()}


def uses(program: NetworkProgram) -> dict[str, list[int]]:
    """Return the steps that read or write each buffer, in order; aliases count as the buffer they share."""
    used: dict[str, list[int]] = {}
    for place, step in enumerate(program.steps):
        for name in (*step.inputs, *step.outputs):
            used.setdefault(alias_root(program.buffers, name), []).append(place)
    return used


def by_size(lives: Mapping[str, Lifetime]) -> ArenaPlan:
    """Return a plan, the largest buffers first: each gets the lowest place that no buffer uses in its live range.

    If that is more than the bound, some orders in which two are exchanged are tried, and the best is kept.
    """
    order = sorted(lives, key=lambda n: -lives[n].bytes)
    best, bound, dice = _in_order(lives, order), lower_bound(lives.values()), Random(0)
    for _ in range(min(_MAX_EXCHANGES, _MAX_STEPS // max(1, len(order)) ** 2)):
        if best.bytes == bound:
            break
        i, j = (dice.randrange(len(order)) for _ in range(2))
        order[i], order[j] = order[j], order[i]
        plan = _in_order(lives, order)
        if plan.bytes <= best.bytes:
            best = plan
        else:
            order[i], order[j] = order[j], order[i]
    return best


def _in_order(lives: Mapping[str, Lifetime], order: Iterable[str]) -> ArenaPlan:
    names = list(order)
    given = np.array([(lives[n].first, lives[n].last, lives[n].bytes) for n in names], np.int64).reshape(-1, 3)
    first, last, size = given.T
    start = np.zeros(len(names), np.int64)
    for k in range(len(names)):
        meets = (first[:k] <= last[k]) & (first[k] <= last[:k])
        start[k] = _lowest(size[k], start[:k][meets], (start + size)[:k][meets])
    end = int((start + size).max(initial=0))
    return ArenaPlan(dict(zip(names, start.tolist(), strict=True)), lives, end)


def lower_bound(lives: Iterable[Lifetime]) -> int:
    """Return the most bytes in use at one step: it is a step at which a live range begins."""
    changes: Counter[int] = Counter()
    for life in lives:
        changes[life.first] += life.bytes
        changes[life.last + 1] -= life.bytes
    return max(accumulate(change for _, change in sorted(changes.items())), default=0)


def _lowest(size: np.int64, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> np.int64:
    """Return the lowest offset with `size` free bytes; `starts` and `ends` of the blocks taken come in any order."""
    order = np.argsort(starts)
    # The start of the gap before each block, and of the free memory after the last.
    places = np.maximum.accumulate(np.concatenate([np.zeros(1, np.int64), ends[order]]))
    fits = places[:-1] + size <= starts[order]
    lowest: np.int64 = places[fits.argmax() if fits.any() else -1]
    return lowest


def align_up(size: int) -> int:
    """Return `size` rounded up to a multiple of `ALIGN`."""
    return -(-size // ALIGN) * ALIGN

"""The scoreboard on blocks of instructions that run again and again: what a block does to a processor is kept.

A processor's state, seen from the cycle it is in, recurs: a block that meets one that it met before takes as long, and
leaves the same one. So cycles are exactly those of `scoreboard` on all instructions in a row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import deepcopy

from bitsynth.isa.scoreboard import InOrder, Issued, OutOfOrder, processor
from bitsynth.isa.tables import IssueTable

Block = Sequence[Issued]
"""Instructions in a row. One that runs again is the same object."""


def cycles(rules: IssueTable, blocks: Iterable[Block]) -> int:
    """The cycles from the start of the first instruction to that of one behind the last, all results there."""
    now, core = run(rules, blocks)
    return now + core.done


def run(rules: IssueTable, blocks: Iterable[Block]) -> tuple[int, InOrder | OutOfOrder]:
    """The cycle in which the last instruction starts (in order) or comes, and the processor then, seen from it."""
    core = processor(rules)
    states, numbers = [core], {settle(core)[1]: 0}
    known: dict[tuple[int, int], tuple[int, int]] = {}
    kept = dict[int, Block]()
    now = state = 0
    for block in blocks:
        step = state, id(kept.setdefault(id(block), block))
        if step not in known:
            after = deepcopy(states[state], {id(rules): rules})
            for x in block:
                after.issue(x)
            elapsed, key = settle(after)
            number = numbers.setdefault(key, len(states))
            if number == len(states):
                states.append(after)
            known[step] = number, elapsed
        state, elapsed = known[step]
        now += elapsed
    return now, states[state]


def settle(core: InOrder | OutOfOrder) -> tuple[int, Hashable]:
    """Count a processor's cycles from the one it is in, and forget what is over; how many these were, and its state."""
    return _in_order(core) if isinstance(core, InOrder) else _out_of_order(core)


def _in_order(core: InOrder) -> tuple[int, Hashable]:
    now, core.now = core.now, 0
    core.ready = _later(core.ready, now)
    core.early = {r: max(0, at - now) for r, at in core.early.items() if at > now or r in core.ready}
    core.made = {r: at - now for r, at in core.made.items() if at >= now}
    free = _later(core.free, now)
    core.free.clear()
    core.free.update(free)
    return now, (core.started, *map(_sorted, (core.ready, core.early, core.made, free)))


def _out_of_order(core: OutOfOrder) -> tuple[int, Hashable]:
    now = core.now
    core.entered = deque((max(-1, at - now) for at in core.entered), core.entered.maxlen)
    core.left = deque((max(0, at - now) for at in core.left), core.left.maxlen)
    core.ready, core.early = _later(core.ready, now), _later(core.early, now)
    used = {pipe: {at - now for at in slots if at >= now} for pipe, slots in core.used.items()}
    core.used.clear()
    core.used.update(used)
    slots = tuple(sorted((pipe, *sorted(taken)) for pipe, taken in used.items() if taken))
    return now, (tuple(core.entered), tuple(core.left), _sorted(core.ready), _sorted(core.early), slots)


def _later(times: Mapping[str, int], now: int) -> dict[str, int]:
    return {name: at - now for name, at in times.items() if at > now}


def _sorted(times: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(times.items()))

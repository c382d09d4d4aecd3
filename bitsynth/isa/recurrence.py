"""The scoreboard on blocks of instructions that run again and again: what a block does to a processor is kept.

A processor's state, seen from the cycle it is in, recurs: a block that meets one that it met before takes as long, and
leaves the same one. So cycles are exactly those of `scoreboard` on all instructions in a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    states, numbers = [core], {core.settle()[1]: 0}
    memo: dict[tuple[int, int], tuple[int, int]] = {}
    kept = dict[int, Block]()
    now = state = 0
    for block in blocks:
        step = state, id(kept.setdefault(id(block), block))
        if step not in memo:
            after = deepcopy(states[state], {id(rules): rules})
            for x in block:
                after.issue(x)
            elapsed, key = after.settle()
            number = numbers.setdefault(key, len(states))
            if number == len(states):
                states.append(after)
            memo[step] = number, elapsed
        state, elapsed = memo[step]
        now += elapsed
    return now, states[state]

"""Runs the scoreboard on blocks of instructions that repeat, with a memo of what a block does to a processor.

Relative to the current cycle, the state of a processor recurs. A block that meets a state again takes as many cycles as
before and leaves the same state, so it need not run again. The result is exactly that of `scoreboard.py` on all
instructions in a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy

from bitsynth.isa.scoreboard import InOrder, Issued, OutOfOrder, processor
from bitsynth.isa.tables import IssueTable

Block = Sequence[Issued]
"""Instructions in a row. One that runs again is the same object."""


def cycles(rules: IssueTable, blocks: Iterable[Block]) -> int:
    """Return the cycles from the start of the first instruction to that of one behind the last, all results there."""
    now, core = run(rules, blocks)
    return now + core.done


def run(rules: IssueTable, blocks: Iterable[Block]) -> tuple[int, InOrder | OutOfOrder]:
    """Return the cycle in which the last instruction starts (in order) or enters, and the processor then."""
    core = processor(rules)
    states, numbers = [core], {core.settle()[1]: 0}
    memo: dict[tuple[int, int], tuple[int, int]] = {}
    blocks_by_id = dict[int, Block]()
    now = state = 0
    for block in blocks:
        step = state, id(blocks_by_id.setdefault(id(block), block))
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

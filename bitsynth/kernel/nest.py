"""Executes a pass's nest of loops on numbers, many runs at once: the accumulators after runs of steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import Any

import numpy as np

from bitsynth.isa.step import Step
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.value import Value
from bitsynth.kernel.machine import ConcreteMachine, Registers
from bitsynth.kernel.operands import Inputs, Runs
from bitsynth.kernel.program import Loop, Pass

CHUNK = 1 << 14
"""Most elements of a lane that are kept at a time: steps x runs x rows x tiles."""


@dataclass(frozen=True)
class LoopNest:
    """The loops of one pass over its inputs; lanes are (runs, G, tiles) for a `shape` of (G, tiles) groups of rows."""

    machine: ConcreteMachine
    loop: Pass
    inputs: Inputs
    shape: tuple[int, int]

    def accumulate(self, level: int, runs: Runs, start: Registers | None = None) -> Registers:
        """Return the accumulators of loop `level` after each of `runs`, from `start` or zero.

        Runs of the loop inside start from zero, so those of all `runs` are done at once.
        """
        if level == 0:
            return self._innermost(self.loop.step, runs)
        nested, inner, count = self.loop.loops[level], self._steps_of_run(level), len(runs.starts)
        accs = start or self.machine.zeros(nested, (count, *self.shape))
        for inside in self._inside(runs, inner):
            done = self.accumulate(level - 1, inside)
            for j in range(len(inside.starts) // count):
                once = {**nth(done, slice(j * count, (j + 1) * count)), **accs}
                accs = self.machine.after(nested, self.machine.run(nested.steps, once))
        return accs

    def _steps_of_run(self, level: int) -> int:
        """Return steps in one run of loop `level`."""
        return prod(x.trip_count for x in self.loop.loops[:level])

    def _inside(self, runs: Runs, inner: int) -> Iterator[Runs]:
        """Yield the runs of `inner` steps in all of `runs`, as many of one length as memory allows.

        The last are shorter.
        """
        for some in blocks(range(-(-runs.length // inner)), self.room(len(runs.starts))):
            lengths = [min(inner, runs.length - j * inner) for j in some]
            for length, times in groupby(lengths):
                first = some.start + lengths.index(length)
                offsets = inner * np.arange(first, first + len(list(times)))
                yield Runs((runs.starts + offsets[:, None]).reshape(-1), length)

    def room(self, runs: int) -> int:
        """Return how many steps fit memory at once for that many runs."""
        return max(1, CHUNK // (max(1, prod(self.shape)) * runs))

    def _innermost(self, loop: Loop, runs: Runs) -> Registers:
        accs: Registers = self.machine.zeros(loop, (len(runs.starts), *self.shape))
        times = range(runs.length)
        if loop.first and times:
            accs, times = self._first(loop, runs), times[1:]
        before, after = _parted(loop)
        for some in blocks(times, self.room(len(runs.starts))):
            done = self.machine.run(before, self.inputs.registers(runs, some))
            for t in range(len(some)):
                accs = self._one_step(loop, done, after, accs, t)
        return accs

    def _first(self, loop: Loop, runs: Runs) -> Registers:
        """Return the accumulators after the first run, which has a program of its own."""
        trace = self.machine.run(loop.first, self.inputs.registers(runs, range(1)))
        shape, out = (len(runs.starts), *self.shape), dict[Value, Register]()
        for acc in loop.accs:
            value = self.machine.accumulator(acc, acc.start, trace)
            out[acc.name] = Register(value.type, tuple(np.broadcast_to(_at(x, 0), shape) for x in value.lanes))
        return out

    def _one_step(self, loop: Loop, done: Trace, after: Sequence[Step], accs: Registers, t: int) -> Registers:
        """Run what depends on the accumulators; the rest was done for many steps at once."""
        trace = Trace(done.isa, done.domain, dict(accs))
        for name in {a for s in after for a in s.args} | {acc.next for acc in loop.accs}:
            if name in done.registers:
                have = done.registers[name]
                trace.bind(name, Register(have.type, tuple(_at(x, t) for x in have.lanes)))
        for step in after:
            trace.run(step)
        return self.machine.after(loop, trace)


def blocks(steps: range, size: int) -> list[range]:
    """Return `steps` in blocks of `size`, the last one perhaps shorter."""
    return [steps[k : k + size] for k in range(0, len(steps), size)]


def nth(many: Registers, n: int | slice) -> Registers:
    """Return one of many runs, or a range of them."""
    return {name: Register(r.type, tuple(x if np.ndim(x) < 3 else x[n] for x in r.lanes)) for name, r in many.items()}


def _parted(loop: Loop) -> tuple[list[Step], list[Step]]:
    """Return the step's program: what no accumulator flows into, then the rest. Each value has one definition."""
    late = {acc.name for acc in loop.accs}
    before, after = [], []
    for step in loop.steps:
        if late & set(step.args):
            late.add(step.dst)
            after.append(step)
        else:
            before.append(step)
    return before, after


def _at(x: Any, t: int) -> Any:
    """Return the value of time `t`; constants have no axis of times."""
    return x[t] if np.ndim(x) == 4 else x

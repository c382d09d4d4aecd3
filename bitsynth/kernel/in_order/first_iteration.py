"""The first iteration of a pipelined loop: it sets accumulators, so that they need no zeroing before the loop.

A step has two programs: one adds to accumulators, the other, its first run, sets them. Where a loop is entered once a
block, its first iteration takes the instructions of the first run, each in the place of its counterpart:

Given                     Result of the first iteration
    t = and a w               t = and a w
    a(k + 1) = load           a(k + 1) = load
    acc = add acc t           (nothing: t itself is the accumulator)

So pointers and counters stay in their places, and the C of both iterations has the same shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import msgspec

from bitsynth.isa.load import load
from bitsynth.isa.step import Step
from bitsynth.isa.value import Value
from bitsynth.kernel.in_order import loop_control
from bitsynth.kernel.in_order.pipelining import PipelinedLoop, peels, write_step
from bitsynth.kernel.program import Kernel, Loop, Pass


@dataclass(frozen=True)
class FirstIteration:
    """The first iteration of a loop.

    Attributes:
        body: For each instruction of the loop's body, in its place: the one to run instead, None for none; and whether
            it is issued ahead.
        flat: The instructions of the iteration's own step, with the accumulators as they are behind it.
    """

    body: tuple[tuple[Step | None, bool], ...]
    flat: Loop


@lru_cache(maxsize=1 << 10)
def begin_loop(kernel: Kernel, loop: Pass, pipelined: PipelinedLoop) -> FirstIteration | None:
    """Return the first iteration of a loop that is entered once a block, as one that goes on across segments is.

    None if it does not differ from the others, if it differs in more than what accumulators start from, or if passes
    carry accumulators to the next pass.
    """
    if peels(kernel) or not loop.step.first or any(p.carries for p in kernel.passes):
        return None
    if loop_control.place_counters(kernel, pipelined).segment is None:
        return None
    isa = load(kernel.isa)
    first = _with_names_of(*(write_step(isa, kernel, loop, step) for step in (loop.step.first_run, loop.step)))
    if first is None or not _makes_each_accumulator(first, pipelined):
        return None
    by_name = {step.dst: step for step in first.steps}
    body = tuple((step if ahead else by_name.get(step.dst), ahead) for step, ahead in pipelined.body)
    own = [*pipelined.prologue, *(step for step, ahead in body if step and not ahead)]
    flat = msgspec.structs.replace(pipelined.flat, steps=tuple(own), accs=first.accs)
    return FirstIteration(body, flat)


def _with_names_of(first: Loop, step: Loop) -> Loop | None:
    """Return the first run with the names of `step` for values that both compute.

    An accumulator that the two compute by different instructions takes the name that it has in `step`. None if other
    values differ.
    """
    names_in_step = {(s.op, s.imm, s.args or s.dst): s.dst for s in step.steps}
    accumulators = {one.next: every.next for one, every in zip(first.accs, step.accs, strict=True)}
    names, program = dict[Value, Value](), list[Step]()
    for s in first.steps:
        args = tuple(names.get(a, a) for a in s.args)
        name = names_in_step.get((s.op, s.imm, args or s.dst)) or accumulators.get(s.dst)
        if name is None:
            return None
        names[s.dst] = name
        program.append(Step(name, s.op, args, s.imm))
    accs = tuple(msgspec.structs.replace(acc, next=names[acc.next]) for acc in first.accs)
    return msgspec.structs.replace(first, steps=tuple(program), accs=accs)


def _makes_each_accumulator(first: Loop, pipelined: PipelinedLoop) -> bool:
    """Return whether the iteration computes each accumulator as a value of its own, and issues none of them ahead."""
    results = {acc.next for acc in first.accs}
    return len(results) == len(first.accs) and results.isdisjoint(step.dst for step in pipelined.prologue)

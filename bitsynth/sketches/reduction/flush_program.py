"""Writes the flush of a reduction plan, with one write-back for each multiple of its sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from bitsynth.errors import NoKernel
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Metric
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.isa.trace import ConstantPool, Register, Trace
from bitsynth.sketches.reduction.plan import ReductionPlan, accumulated, held_sum, start
from bitsynth.sketches.reduction.writeback import WriteBack, bind_tile, cheapest_write_back, take_from_tile


def flush_trace(isa: Isa, plan: ReductionPlan, names: Sequence[str], constants: ConstantPool, first: int) -> Trace:
    """Return a trace in which `names` hold what the plan's accumulators hold at a flush."""
    trace, counted = start(isa, replace(plan.given, most=1, least=min(0, plan.given.least)))
    for level in plan.pre:
        counted = level.apply(trace, counted)
    added = accumulated(trace, counted, isa[plan.accumulate])
    if added is None:
        raise NoKernel(f"{isa.name}: {plan.accumulate} does not accumulate")
    flush = Trace(isa, LinearDomain(1), constants=constants, first=first)
    for r, (name, lanes) in enumerate(zip(names, added, strict=True)):
        flush.bind(name, Register(plan.acc_type, tuple(held_sum(x, (r, i), 1) for i, x in enumerate(lanes))))
    bind_tile(flush, isa.tile)
    return flush


def flush_program(
    isa: Isa, plan: ReductionPlan, classes: Mapping[int, Sequence[str]], constants: ConstantPool, metric: Metric
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return instructions and final tile registers: for each class of accumulators the tile minus coef * sum."""
    tile = [f"c{r}" for r in range(len(plan.slots) // isa.tile.lanes)]
    program: list[Step] = []
    for coef, names in classes.items():
        trace = flush_trace(isa, plan, names, constants, len(program))
        for k, name in enumerate(tile):
            trace.registers[name] = trace.registers[f"c{k}"]
        sums: Sequence[str] = names
        for level in plan.post:
            sums = level.apply(trace, sums)
        tile = take_from_tile(trace, _best_write_back(isa, plan, coef, metric), sums, coef, tile)
        program += trace.steps
    return tuple(map(str, program)), tuple(tile)


@lru_cache
def _best_write_back(isa: Isa, plan: ReductionPlan, coef: int, metric: Metric) -> WriteBack:
    """Return the cheapest write-back of the plan's sums for `coef`."""
    trace = flush_trace(isa, plan, [f"acc{r}" for r in range(plan.accs)], {}, 0)
    sums: Sequence[str] = [f"acc{r}" for r in range(plan.accs)]
    for level in plan.post:
        sums = level.apply(trace, sums)
    if (best := cheapest_write_back(trace, sums, coef, metric, isa.tile)) is None:
        raise NoKernel(f"{isa.name}: no instruction takes {coef} times a sum from the tile")
    return best[1]

"""Cost models of one instruction: one operation each, or cycles of a processor."""

from __future__ import annotations

from functools import lru_cache

from bitsynth.errors import SpecError
from bitsynth.isa.instr import Instr, Metric
from bitsynth.isa.load import Isa, load

COUNTS = ("ops", "length")
"""Models that count instructions: run for 128 multiply-accumulates, or written in the programs."""


def names(isa: Isa) -> list[str]:
    """Return the names of the cost models of `isa`, as `--cost` takes them."""
    return [*COUNTS, *isa.table.cpu]


@lru_cache
def metric(isa_name: str, model: str) -> Metric:
    """Return the cost of one instruction under `model`: 1, or cycles of throughput on a CPU."""
    isa = load(isa_name)
    if model not in names(isa):
        raise SpecError(f"unknown cost model {model!r}; {isa_name} knows {', '.join(names(isa))}")
    if model in COUNTS:
        return _one
    return lambda instr: 1.0 / min(instr.cost[model].per_cycle, isa.table.cpu[model].vector_per_cycle)


def _one(instr: Instr) -> float:
    return float(instr.instructions)

"""The C that makes the tables of a row: one after the other, or several at once where a processor waits for results."""

from __future__ import annotations

from collections.abc import Container, Iterator
from functools import partial
from itertools import product
from typing import Any

from bitsynth.emit.packing import packing
from bitsynth.emit.statements import Scope, constant_arrays, load_constants
from bitsynth.isa.load import Isa, load
from bitsynth.kernel.inputs import Build, Table
from bitsynth.kernel.program import ORDERS, Kernel

_AT_ONCE = 4
"""Runs of the program whose lines an in-order processor takes in turn: as many as their latencies, in cycles."""

_TAKEN_CODES, _TAKEN_BITS = 4, 4
"""Codes of a table that is taken from those of all codes, and the most bits of each: sums are bytes."""


def takes_tables(kernel: Kernel) -> bool:
    """Whether rows that are made of words take tables, each a register, from those of all codes of two bits.

    Of all instruction sets those whose tables fill registers: others make several at a time.
    """
    made = packing(kernel)
    if made.rows != "tables" or kernel.row_bits > _TAKEN_BITS:
        return False
    bits = next(x.bits for p in kernel.passes for x in p.rows if isinstance(x, Table))
    return bits == _TAKEN_CODES and load(kernel.isa).word.lanes == 1 << bits


def tables(isa: Isa, kernel: Kernel, build: Build, macros: dict[str, str]) -> dict[str, Any]:
    """Constants and statements that make tables of staged values, by one run of the program and by `at_once`."""
    bits = next(x.bits for p in kernel.passes for x in p.rows if isinstance(x, Table))
    codes, padded = build.tables * bits, -1 in build.stage
    waits = kernel.order not in ORDERS and not padded and packing(kernel).rows == "tables"
    return {
        "constants": constant_arrays(build.constants, "lanes"),
        "lines": _one(Scope(isa, macros=macros), isa, build),
        "several": list(_several(Scope(isa, macros=macros), isa, build, codes)) if waits else [],
        "at_once": _AT_ONCE,
        "tables": build.tables,
        "codes": codes,
        "stage": ["SIZE_MAX" if n < 0 or n >= bits else str(n) for n in build.stage],
        "padded": padded,
    }


def _one(scope: Scope, isa: Isa, build: Build) -> list[str]:
    lines = load_constants(scope, isa, build.constants, "lanes")
    lines += [scope.load(build.load, "x0", "stage"), *scope.steps(build.steps)]
    return [*lines, scope.store(build.store, build.table, "to")]


def _several(scope: Scope, isa: Isa, build: Build, codes: int) -> Iterator[str]:
    """Every line of each run before the next line of any."""
    yield from load_constants(scope, isa, build.constants, "lanes")
    shared = {c.name for c in build.constants}
    runs = [partial(_of_run, shared, run) for run in range(_AT_ONCE)]
    for run, named in enumerate(runs):
        yield scope.load(build.load, named("x0"), scope.address(f"codes + {run * codes}"))
        yield from scope.hold(named("x0"))
    for step, named in product(build.steps, runs):
        yield scope.step(step, named)
        yield from scope.hold(named(step.dst))
    for run, named in enumerate(runs):
        yield scope.store(build.store, named(build.table), f"to + {run} * TABLES * ENTRIES")


def _of_run(shared: Container[str], run: int, name: str) -> str:
    """The C name of a value of one of several runs of a program; what they share has its own."""
    return name if name in shared else f"{name}_{run}"

"""C that builds the lookup tables of a row: one after the other, or several interleaved to hide latencies."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

from bitsynth.emit.packing import packing
from bitsynth.emit.statements import Scope, constant_arrays, load_constants
from bitsynth.isa.load import Isa, load
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.inputs import Build, Table
from bitsynth.kernel.program import ORDERS, Kernel

STAGED = Value.of(Role.STAGED, 0)

_AT_ONCE = 4
"""Tables whose instructions are interleaved on an in-order processor: as many as a latency has cycles."""

_TAKEN_CODES, _TAKEN_BITS = 4, 4
"""Codes of a table that is copied from a table of all codes, and the most bits of each: entries are bytes."""


def takes_tables(kernel: Kernel) -> bool:
    """Return whether rows packed from words copy their tables from precomputed tables of all 2-bit codes.

    That is for instruction sets whose tables fill a register; others compute several tables at a time.
    """
    rows = packing(kernel)
    if rows.rows != "tables" or kernel.row_bits > _TAKEN_BITS:
        return False
    bits = next(x.bits for p in kernel.passes for x in p.rows if isinstance(x, Table))
    return bits == _TAKEN_CODES and load(kernel.isa).word.lanes == 1 << bits


def tables(isa: Isa, kernel: Kernel, build: Build, macros: dict[str, str]) -> dict[str, Any]:
    """Return constants and statements that build tables of staged values, one and `at_once` at a time."""
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
    lines += [scope.load(build.load, STAGED, "stage"), *scope.steps(build.steps)]
    return [*lines, scope.store(build.store, build.table, "to")]


def _several(scope: Scope, isa: Isa, build: Build, codes: int) -> Iterator[str]:
    """Interleave the statements of several runs: statement k of each run before statement k + 1 of any."""
    yield from load_constants(scope, isa, build.constants, "lanes")
    runs = [partial(_of_run, run) for run in range(_AT_ONCE)]
    for run, named in enumerate(runs):
        yield scope.load(build.load, named(STAGED), scope.address(f"codes + {run * codes}"))
        yield from scope.hold(named(STAGED))
    for step, named in product(build.steps, runs):
        yield scope.step(step, named)
        yield from scope.hold(named(step.dst))
    for run, named in enumerate(runs):
        yield scope.store(build.store, named(build.table), f"to + {run} * TABLES * ENTRIES")


def _of_run(run: int, value: Value) -> str:
    """Return the C name of a value of run `run`; constants keep their names."""
    return value.of_row(run)

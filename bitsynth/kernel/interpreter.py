"""Executes a microkernel on concrete codes, step by step, as its C text does.

The machine's meaning of every instruction comes from the numpy domain; passes, flush
periods, tile starts and padding follow `emit/microkernel.py`. Nothing is assumed
about the kernel beyond its being well formed, so a wrong one gives its wrong sums: from
those counterexamples are made. Z3 is not imported.

A pass's nest of loops is executed for many runs at once, which gives the accumulators after runs of steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.isa.load import load
from bitsynth.isa.step import Step
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.interpreter_memory import ConcreteMachine, Inputs, Operands, Registers, Runs
from bitsynth.kernel.packing import Codes, multiply_neighbours
from bitsynth.kernel.program import Kernel, Loop, Pass, period
from bitsynth.kernel.wellformed import check_shape

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

        Runs of the loop inside start from zero, so all `runs` of them are done at once.
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
        before, after = _split_program(loop)
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


def _split_program(loop: Loop) -> tuple[list[Step], list[Step]]:
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


def product(kernel: Kernel, rows: Codes, columns: Codes) -> NDArray[np.int32]:
    """Return the sums the kernel computes for codes `rows` (R, K) and `columns` (K, C); SpecError if it is malformed.

    Rows are activations and columns weights, or the other way round if it is swapped.
    """
    check_shape(load(kernel.isa), kernel)
    with np.errstate(over="ignore"):
        machine = ConcreteMachine(kernel)
        return _Tiles(machine, Operands(machine, rows, columns.T)).sums()


def compute_wanted_sums(kernel: Kernel, rows: Codes, columns: Codes) -> NDArray[np.int32]:
    """Return the sums it should compute: act codes times the core product's weights, modulo 2**32."""
    weights = kernel.core.wgt
    left, right = rows.astype(np.int64), columns.astype(np.int64)
    if kernel.swapped:
        left = weights.scale * left + weights.offset
    else:
        right = weights.scale * right + weights.offset
    return _int32(left @ right)


def _int32(x: NDArray[Any]) -> NDArray[np.int32]:
    return (x.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


@dataclass(frozen=True)
class _Tiles:
    """The int32 tiles of one product: rows down, column tiles across, all at once; a tile is a list of its lanes."""

    machine: ConcreteMachine
    operands: Operands

    def sums(self) -> NDArray[np.int32]:
        """Return the tile starts at its row's term plus its column's; every pass adds to it."""
        rows, columns, kernel = len(self.operands.rows), len(self.operands.columns), self.machine.kernel
        (groups, _), together = self.operands.shape, kernel.together
        tile = self._start()
        for chain in kernel.chains:
            tile = self._chain(chain, tile)
        lanes = np.stack([np.broadcast_to(x, self.operands.shape) for x in tile], axis=2)
        lanes = lanes.reshape(*self.operands.shape, together, kernel.columns).swapaxes(1, 2)
        return _int32(lanes.reshape(groups * together, -1)[:rows, :columns])

    def _start(self) -> list[Any]:
        """Return the tile before the first pass."""
        kernel, (_, tiles) = self.machine.kernel, self.operands.shape
        g = np.zeros(tiles * kernel.columns, np.int64)
        g[: len(self.operands.columns)] = _terms(kernel.column_terms, kernel.cross_terms, self.operands.columns)
        h = np.zeros(self.operands.shape[0] * kernel.together, np.int64)
        h[: len(self.operands.rows)] = _terms(kernel.row_terms, kernel.cross_terms, self.operands.rows)
        starts = list(_word32(g).reshape(1, tiles, kernel.columns).transpose(2, 0, 1))
        members, lanes = range(kernel.together), self.machine.isa.tile.lanes
        of_rows = (h[member :: kernel.together] for member in members)
        parts = (self._start_register(starts[k:], of) for of in of_rows for k in range(0, kernel.columns, lanes))
        return [x for part in parts for x in part]

    def _start_register(self, g: list[Any], h: NDArray[np.int64]) -> Sequence[Any]:
        """Return the next register of the tile, in memory, before the first pass."""
        machine, memory = self.machine, self.machine.kernel.memory
        start, more = Value.of(Role.TILE, 0), Value.of(Role.TERM)
        trace = machine.trace({start: machine.load(memory.load_tile, g, 32)})
        if machine.kernel.has_row_terms:
            trace.bind(more, machine.load(memory.broadcast_tile, [_word32(h)[:, None]], 32))
            trace.apply(memory.add_tile, [start, more], dst=start)
        return machine.store(memory.store_tile, trace.registers[start], machine.isa.tile)

    def _chain(self, chain: Sequence[Pass], tile: list[Any]) -> list[Any]:
        nests = [LoopNest(self.machine, loop, self.operands.inputs(loop), self.operands.shape) for loop in chain]
        for runs in self._runs(nests[0], period(chain)):
            accs: Registers = {}
            for nest in nests:
                accs = nest.accumulate(len(nest.loop.loops) - 1, runs, accs)
                accs = self._carry(nest.loop, accs) if nest.loop.carries else accs
            for n in range(len(runs.starts)):
                tile = self._flush(chain[-1], nth(accs, n), tile)
        return tile

    def _carry(self, loop: Pass, accs: Registers) -> Registers:
        """Return the accumulators of the next pass as it starts."""
        return self.machine.after(loop.carried, self.machine.run(loop.flush, accs))

    def _runs(self, nest: LoopNest, length: int) -> Iterator[Runs]:
        """Yield blocks of `length` steps, as many at once as memory allows; the last may end early."""
        end = self.operands.steps
        starts = np.arange(0, end, min(length, max(1, end)), dtype=np.int64)
        whole = [int(s) for s in starts if s + length <= end]
        for some in blocks(range(len(whole)), nest.room(1)):
            yield Runs(np.array(whole[some.start : some.stop], np.int64), length)
        yield from (Runs(np.array([s], np.int64), int(end - s)) for s in starts if s + length > end)

    def _flush(self, loop: Pass, accs: Registers, tile: list[Any]) -> list[Any]:
        machine, memory, each = self.machine, self.machine.kernel.memory, self.machine.isa.tile.lanes
        names = [Value.of(Role.TILE, r) for r in range(len(tile) // each)]
        loaded = {name: machine.load(memory.load_tile, tile[r * each :], 32) for r, name in enumerate(names)}
        trace = machine.run(loop.flush, {**accs, **loaded})
        stored = [machine.store(memory.store_tile, trace.registers[n], machine.isa.tile) for n in loop.tile]
        return [x for lanes in stored for x in lanes]


def _terms(table: Sequence[int], cross: int, codes: Codes) -> NDArray[np.int64]:
    """Return (N,) terms of codes (N, K): of each code, and `cross` times the products of neighbours."""
    summed: NDArray[np.int64] = np.array(table, np.int64)[codes].sum(axis=1)
    return summed + cross * multiply_neighbours(codes)


def _word32(x: NDArray[Any]) -> NDArray[np.uint64]:
    """Return the low 32 bits."""
    return x.astype(np.uint64) & np.uint64(0xFFFFFFFF)

"""Execution of a microkernel on concrete codes, step by step, as its C text does.

The machine's meaning of every instruction comes from the numpy domain; passes, flush
periods, tile starts and padding follow `emit/templates/kernel.c.j2`. Nothing is assumed
about the kernel beyond its being well formed, so a wrong one gives its wrong sums: from
those counterexamples are made. Z3 is not imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import SpecError
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.load import Isa, load
from bitsynth.isa.step import Constant, Step
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.kernel.packing import Codes, packed
from bitsynth.kernel.program import Kernel, Loop, Pass, Table, period
from bitsynth.kernel.wellformed import check_shape

_CHUNK = 1 << 14
"""Most elements of a lane that are kept at a time: steps x runs x rows x tiles."""


def product(kernel: Kernel, rows: Codes, columns: Codes) -> NDArray[np.int32]:
    """The sums the kernel computes for codes `rows` (R, K) and `columns` (K, C); SpecError if it is malformed.

    Rows are activations and columns weights, or the other way round if it is swapped.
    """
    check_shape(load(kernel.isa), kernel)
    with np.errstate(over="ignore"):
        return _Run(kernel, rows, columns.T).tile_sums()


def wanted(kernel: Kernel, rows: Codes, columns: Codes) -> NDArray[np.int32]:
    """The sums it should compute: unsigned act codes times bipolar wgt codes, modulo 2**32."""
    most = (1 << kernel.w_bits) - 1
    left, right = rows.astype(np.int64), columns.astype(np.int64)
    return _int32((2 * left - most) @ right if kernel.swapped else left @ (2 * right - most))


def _int32(x: NDArray[Any]) -> NDArray[np.int32]:
    return (x.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


@dataclass(frozen=True)
class Runs:
    """Stretches of `length` steps, done side by side."""

    starts: NDArray[np.int64]
    length: int


@dataclass
class _Run:
    """One product of `rows` (R, K) and `columns` (C, K) codes: rows down, column tiles across, all at once."""

    kernel: Kernel
    rows: Codes
    columns: Codes
    isa: Isa = field(init=False)
    domain: ConcreteDomain = field(init=False, default_factory=ConcreteDomain)

    def __post_init__(self) -> None:
        self.isa = load(self.kernel.isa)

    @cached_property
    def steps(self) -> int:
        return int(-(-self.rows.shape[1] // self.kernel.k_step))

    @cached_property
    def tiles(self) -> int:
        return int(-(-len(self.columns) // self.kernel.columns))

    def tile_sums(self) -> NDArray[np.int32]:
        """The tile starts at its row's term plus its column's; every pass adds to it."""
        m, n = len(self.rows), len(self.columns)
        tile = self._start()
        for chain in self.kernel.chains:
            tile = self._chain(chain, tile)
        sums = np.stack([np.broadcast_to(x, (m, self.tiles)) for x in tile], axis=2)
        return _int32(sums.reshape(m, -1)[:, :n])

    def _start(self) -> list[Any]:
        """Lanes of the int32 tile before the first pass."""
        columns = self.kernel.columns
        g = np.zeros(self.tiles * columns, np.int64)
        g[: len(self.columns)] = np.array(self.kernel.column_terms, np.int64)[self.columns].sum(axis=1)
        h = np.array(self.kernel.row_terms, np.int64)[self.rows].sum(axis=1)
        starts = list((_word32(g).reshape(1, self.tiles, columns)).transpose(2, 0, 1))
        memory, trace = self.kernel.memory, self._trace()
        out: list[Any] = []
        for first in range(0, columns, self.isa.tile.lanes):
            trace.bind("start", self._loaded(memory.load_tile, starts[first:], 32))
            if self.kernel.has_row_terms:
                trace.bind("more", self._loaded(memory.broadcast_tile, [_word32(h)[:, None]], 32))
                trace.apply(memory.add_tile, ["start", "more"], dst="start")
            out += self._stored(memory.store_tile, trace.registers["start"], self.isa.tile)
        return out

    def _loaded(self, op: str, memory: Sequence[Any], bits: int) -> Register:
        """The register that `op` loads from `memory`, cells of `bits` bits; beyond its end are zeros."""
        instr = self.isa[op]
        if not instr.is_load:
            raise SpecError(f"{op} loads nothing from memory")
        kind = instr.operands[0].type
        cells = VecType("u", bits, -(-kind.total_bits // bits))
        lanes = tuple((*memory, *[np.uint64(0)] * cells.lanes)[: cells.lanes])
        return Register(
            instr.out, tuple(instr(self.domain, [Register(cells, lanes).viewed_as(self.domain, kind).lanes]))
        )

    def _stored(self, op: str, register: Register, cells: VecType) -> tuple[Any, ...]:
        """The cells that are in memory after a store."""
        instr = self.isa[op]
        if not instr.store:
            raise SpecError(f"{instr.name} stores nothing to memory")
        lanes = instr(self.domain, [register.viewed_as(self.domain, instr.operands[0].type).lanes])
        return Register(instr.out, tuple(lanes)).viewed_as(self.domain, cells).lanes

    def _chain(self, chain: Sequence[Pass], tile: list[Any]) -> list[Any]:
        inputs = [(self._row_bytes(loop), self._column_bytes(loop)) for loop in chain]
        every = period(chain)
        for runs in self._runs(_starts(self.steps, every), self.steps, every):
            many: dict[str, Register] = {}
            for loop, (rows, columns) in zip(chain, inputs, strict=True):
                many = self._accumulate(loop, len(loop.loops) - 1, rows, columns, runs, many)
                many = self._carried(loop, many) if loop.carries else many
            for n in range(len(runs.starts)):
                tile = self._flush(chain[-1], _nth(many, n), tile)
        return tile

    def _carried(self, loop: Pass, accs: dict[str, Register]) -> dict[str, Register]:
        """The accumulators of the next pass as it starts."""
        trace = self._trace()
        trace.registers.update(accs)
        for step in loop.flush_steps:
            trace.run(step)
        return self._next(loop.carried, trace)

    def _runs(self, starts: NDArray[np.int64], end: int, length: int) -> Iterator[Runs]:
        """The blocks of `length` steps at `starts`, as many at once as memory allows; the last may end early."""
        whole = [int(s) for s in starts if s + length <= end]
        for some in _blocks(range(len(whole)), max(1, _CHUNK // self._elements)):
            yield Runs(np.array(whole[some.start : some.stop], np.int64), length)
        yield from (Runs(np.array([s], np.int64), int(end - s)) for s in starts if s + length > end)

    @property
    def _elements(self) -> int:
        """Elements of a lane in one step."""
        return max(1, len(self.rows) * self.tiles)

    def _trace(self, constants: Sequence[Constant] | None = None) -> Trace:
        trace = Trace(self.isa, self.domain)
        trace.bind_constants(self.kernel.constants if constants is None else constants)
        return trace

    def _accumulate(
        self, loop: Pass, level: int, rows: Any, columns: Any, runs: Runs, start: dict[str, Register] | None = None
    ) -> dict[str, Register]:
        """The accumulators of loop `level` after each of `runs`, from `start` or zero: lanes (runs, R, tiles).

        Runs of the loop inside start from zero, so those of all `runs` are done at once.
        """
        if level == 0:
            return self._innermost(loop.step, rows, columns, runs)
        nested, inner = loop.loops[level], prod(x.trip_count for x in loop.loops[:level])
        accs = start or self._zeros(nested, len(runs.starts))
        count = len(runs.starts)
        for some in _blocks(range(-(-runs.length // inner)), max(1, _CHUNK // (self._elements * count))):
            lengths = [min(inner, runs.length - j * inner) for j in some]
            for length, times in groupby(lengths):
                # The loop inside, for all of these runs at once.
                first = some.start + lengths.index(length)
                offsets = inner * np.arange(first, first + len(list(times)))
                inside = Runs((runs.starts + offsets[:, None]).reshape(-1), length)
                done = self._accumulate(loop, level - 1, rows, columns, inside)
                # This loop's program takes in one after the other.
                for j in range(len(offsets)):
                    trace = self._trace()
                    trace.registers.update(_nth(done, slice(j * count, (j + 1) * count)))
                    trace.registers.update(accs)
                    for step in nested.steps:
                        trace.run(step)
                    accs = self._next(nested, trace)
        return accs

    def _zeros(self, loop: Loop, runs: int) -> dict[str, Register]:
        kinds = {acc.name: VecType.parse(acc.type) for acc in loop.accs}
        zero = np.zeros((runs, len(self.rows), self.tiles), np.uint64)
        return {name: Register(kind, (zero,) * kind.lanes) for name, kind in kinds.items()}

    def _next(self, loop: Loop, trace: Trace) -> dict[str, Register]:
        return {
            acc.name: trace.registers[acc.next].viewed_as(self.domain, VecType.parse(acc.type)) for acc in loop.accs
        }

    def _innermost(self, loop: Loop, rows: Any, columns: Any, runs: Runs) -> dict[str, Register]:
        accs = self._zeros(loop, len(runs.starts))
        times = range(runs.length)
        if loop.first and times:
            accs, times = self._first(loop, rows, columns, runs), times[1:]
        before, after = _parted(loop)
        for some in _blocks(times, max(1, _CHUNK // (self._elements * len(runs.starts)))):
            trace = self._trace()
            self._bind_inputs(trace, [_span(x, runs, some) for x in rows], [_span(x, runs, some) for x in columns])
            for step in before:
                trace.run(step)
            for t in range(len(some)):
                accs = self._one_step(loop, trace, after, accs, t)
        return accs

    def _first(self, loop: Loop, rows: Any, columns: Any, runs: Runs) -> dict[str, Register]:
        """The accumulators after the first run, which has a program of its own."""
        trace, once = self._trace(), range(1)
        self._bind_inputs(trace, [_span(x, runs, once) for x in rows], [_span(x, runs, once) for x in columns])
        for line in loop.first_steps:
            trace.run(line)
        kinds = {acc.name: VecType.parse(acc.type) for acc in loop.accs}
        shape = len(runs.starts), len(self.rows), self.tiles
        out = {}
        for acc in loop.accs:
            lanes = trace.registers[acc.start].viewed_as(self.domain, kinds[acc.name]).lanes
            out[acc.name] = Register(kinds[acc.name], tuple(np.broadcast_to(_at(x, 0), shape) for x in lanes))
        return out

    def _one_step(
        self, loop: Loop, done: Trace, after: Sequence[Step], accs: dict[str, Register], t: int
    ) -> dict[str, Register]:
        """Run what depends on the accumulators; the rest was done for many steps at once."""
        trace = Trace(self.isa, self.domain, dict(accs))
        for name in {a for s in after for a in s.args} | {acc.next for acc in loop.accs}:
            if name in done.registers:
                have = done.registers[name]
                trace.bind(name, Register(have.type, tuple(_at(x, t) for x in have.lanes)))
        for step in after:
            trace.run(step)
        return self._next(loop, trace)

    def _flush(self, loop: Pass, accs: dict[str, Register], tile: list[Any]) -> list[Any]:
        trace = self._trace()
        trace.registers.update(accs)
        each = self.isa.tile.lanes
        for r in range(len(tile) // each):
            trace.bind(f"c{r}", self._loaded(self.kernel.memory.load_tile, tile[r * each :], 32))
        for step in loop.flush_steps:
            trace.run(step)
        stored = [self._stored(self.kernel.memory.store_tile, trace.registers[n], self.isa.tile) for n in loop.tile]
        return [x for lanes in stored for x in lanes]

    def _bind_inputs(self, trace: Trace, rows: list[Any], columns: list[Any]) -> None:
        """Inputs lie one behind the other, so that a load may read beyond its own."""
        cells = [x[..., b] for x in rows for b in range(x.shape[-1])]
        at = 0
        for i, x in enumerate(rows):
            trace.bind(f"a{i}", self._loaded(self.kernel.memory.broadcast, cells[at:], 8))
            at += x.shape[-1]
        lanes = self.isa.word.lanes
        cells = [x[..., b] for x in columns for b in range(x.shape[-1])]
        for i, x in enumerate(columns):
            for g in range(x.shape[-1] // lanes):
                at = i * x.shape[-1] + g * lanes
                trace.bind(f"w{g}_{i}", self._loaded(self.kernel.memory.load, cells[at:], 8))

    def _row_bytes(self, loop: Pass) -> list[Any]:
        """(steps, R, 1, bytes) of every input of the rows."""
        codes, bits, size = self._by_step(self.rows, len(self.rows)), self.kernel.row_bits, self.kernel.slot_bytes
        made = [self._table(x, codes) if isinstance(x, Table) else packed(x, codes, bits, size) for x in loop.rows]
        return [np.moveaxis(x, 1, 0)[:, :, None] for x in made]

    def _column_bytes(self, loop: Pass) -> list[Any]:
        """(steps, 1, tiles, slots x bytes) of every input of the columns."""
        columns, size = self.kernel.columns, self.kernel.slot_bytes
        codes = self._by_step(self.columns, self.tiles * columns)
        out = []
        for x in loop.columns:
            made = packed(x, codes, self.kernel.column_bits, size)
            made = made.reshape(self.tiles, columns, self.steps, size)[:, list(self.kernel.slots)]
            out.append(np.moveaxis(made, 2, 0).reshape(self.steps, 1, self.tiles, -1))
        return out

    def _by_step(self, codes: Codes, count: int) -> Codes:
        """(count, steps, k_step) codes, 0 if there are none."""
        out = np.zeros((count, self.steps * self.kernel.k_step), np.uint8)
        out[: len(codes), : codes.shape[1]] = codes
        return out.reshape(count, self.steps, self.kernel.k_step)

    def _table(self, table: Table, codes: Codes) -> Any:
        """(R, steps, entries) bytes, by the kernel's own table program."""
        build = self.kernel.build
        assert build is not None
        staged = np.array(table.values, np.uint64)[codes[..., table.first : table.first + table.bits]]
        cells = [staged[..., n] if 0 <= n < table.bits else np.uint64(0) for n in build.stage]
        trace = self._trace(build.constants)
        trace.bind("x0", self._loaded(build.load, cells, 8))
        for step in build.steps:
            trace.run(step)
        stored = self._stored(build.store, trace.registers[build.table], self.isa.word)
        return np.stack([np.broadcast_to(x, codes.shape[:2]) for x in stored[: table.entries]], axis=-1)


def _blocks(steps: range, size: int) -> list[range]:
    """`steps` in blocks of `size`, the last one perhaps shorter."""
    return [steps[k : k + size] for k in range(0, len(steps), size)]


def _starts(steps: int, length: int) -> NDArray[np.int64]:
    """The starts of blocks of `length` steps."""
    return np.arange(0, steps, min(length, max(1, steps)), dtype=np.int64)


def _span(x: Any, runs: Runs, times: range) -> Any:
    """The values read in each of `times` of every run: (times, runs, ...)."""
    return x[runs.starts + np.arange(times.start, times.stop)[:, None]].astype(np.uint64)


def _nth(many: dict[str, Register], n: int | slice) -> dict[str, Register]:
    """One of many runs, or several."""
    return {name: Register(r.type, tuple(x if np.ndim(x) < 3 else x[n] for x in r.lanes)) for name, r in many.items()}


def _word32(x: NDArray[Any]) -> NDArray[np.uint64]:
    """The low 32 bits."""
    return x.astype(np.uint64) & np.uint64(0xFFFFFFFF)


def _parted(loop: Loop) -> tuple[list[Step], list[Step]]:
    """The step's program: what no accumulator flows into, then the rest. Each value has one definition."""
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
    """The value of time `t`; constants have no axis of times."""
    return x[t] if np.ndim(x) == 4 else x

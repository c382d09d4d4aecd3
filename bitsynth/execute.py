"""Run a microkernel on concrete codes, step by step, as its C text does.

The machine's meaning of every instruction comes from the numpy domain; passes, flush
periods, tile starts and padding follow `emit/templates/kernel.c.j2`. Nothing is assumed
about the kernel beyond its being well formed, so a wrong one gives its wrong sums: that is
what counterexamples are made of. Z3 is not imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.errors import SpecError
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.load import Isa, load
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.program import WORD_BYTES, Kernel, Pass, Step
from bitsynth.wellformed import check_shape

Codes = NDArray[np.uint8]
_CHUNK = 1 << 14
"""Most elements of a lane that are kept at a time: steps x rows x tiles."""


def product(kernel: Kernel, act: Codes, wgt: Codes) -> NDArray[np.int32]:
    """What the kernel computes for `act` (M, K) and `wgt` (K, N) codes; SpecError if it is malformed."""
    check_shape(load(kernel.isa), kernel)
    with np.errstate(over="ignore"):
        return _Run(kernel, act, wgt).tile_sums()


def wanted(kernel: Kernel, act: Codes, wgt: Codes) -> NDArray[np.int32]:
    """What it should compute: unsigned act codes times bipolar wgt codes, modulo 2**32."""
    values = 2 * wgt.astype(np.int64) - ((1 << kernel.w_bits) - 1)
    return _int32(act.astype(np.int64) @ values)


def _int32(x: NDArray[Any]) -> NDArray[np.int32]:
    return (x.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


@dataclass
class _Run:
    """One product: rows down, column tiles across, all at once."""

    kernel: Kernel
    act: Codes
    wgt: Codes
    isa: Isa = field(init=False)
    domain: ConcreteDomain = field(init=False, default_factory=ConcreteDomain)

    def __post_init__(self) -> None:
        self.isa = load(self.kernel.isa)

    @cached_property
    def steps(self) -> int:
        return int(-(-self.act.shape[1] // self.kernel.k_step))

    @cached_property
    def tiles(self) -> int:
        return int(-(-self.wgt.shape[1] // self.kernel.columns))

    def tile_sums(self) -> NDArray[np.int32]:
        """The tile starts at g[n] + h[m]; every pass adds to it."""
        m, n = self.act.shape[0], self.wgt.shape[1]
        tile = self._start()
        for loop in self.kernel.passes:
            tile = self._pass(loop, tile)
        sums = np.stack([np.broadcast_to(x, (m, self.tiles)) for x in tile], axis=2)
        return _int32(sums.reshape(m, -1)[:, :n])

    def _start(self) -> list[Any]:
        """Lanes of the int32 tile before the first pass."""
        columns, n = self.kernel.columns, self.wgt.shape[1]
        g = np.zeros(self.tiles * columns, np.int64)
        g[:n] = np.array(self.kernel.g_table, np.int64)[self.wgt].sum(axis=0)
        h = np.array(self.kernel.h_table, np.int64)[self.act].sum(axis=1)
        starts = list((_word32(g).reshape(1, self.tiles, columns)).transpose(2, 0, 1))
        memory, trace = self.kernel.memory, self._trace()
        out: list[Any] = []
        for first in range(0, columns, self.isa.tile.lanes):
            trace.bind("start", self._loaded(memory.load_tile, starts[first:], 32))
            if self.kernel.has_row_terms:
                trace.bind("more", self._loaded(memory.broadcast_tile, [_word32(h)[:, None]], 32))
                trace.apply(memory.add_tile, ["start", "more"], dst="start")
            out += self._stored(trace.registers["start"])
        return out

    def _loaded(self, op: str, memory: Sequence[Any], bits: int) -> Register:
        """What `op` loads from `memory`, cells of `bits` bits; beyond its end are zeros."""
        instr = self.isa[op]
        if len(instr.operands) != 1 or not instr.reads_memory or instr.store:
            raise SpecError(f"{op} loads nothing from memory")
        kind = instr.operands[0].type
        cells = VecType("u", bits, -(-kind.total_bits // bits))
        lanes = tuple((*memory, *[np.uint64(0)] * cells.lanes)[: cells.lanes])
        return Register(
            instr.out, tuple(instr(self.domain, [Register(cells, lanes).viewed_as(self.domain, kind).lanes]))
        )

    def _stored(self, register: Register) -> tuple[Any, ...]:
        """The int32 lanes that are in memory after a store."""
        instr = self.isa[self.kernel.memory.store_tile]
        if not instr.store:
            raise SpecError(f"{instr.name} stores nothing to memory")
        lanes = instr(self.domain, [register.viewed_as(self.domain, instr.operands[0].type).lanes])
        return Register(instr.out, tuple(lanes)).viewed_as(self.domain, self.isa.tile).lanes

    def _pass(self, loop: Pass, tile: list[Any]) -> list[Any]:
        acts, wgts = self._act_planes(loop), self._wgt_planes(loop)
        for first in range(0, self.steps, loop.flush_every):
            count = min(loop.flush_every, self.steps - first)
            accs = self._accumulate(loop, acts, wgts, range(first, first + count))
            tile = self._flush(loop, accs, tile)
        return tile

    def _trace(self) -> Trace:
        trace = Trace(self.isa, self.domain)
        trace.bind_constants(self.kernel.constants)
        return trace

    def _accumulate(self, loop: Pass, acts: Any, wgts: Any, steps: range) -> dict[str, Register]:
        """The accumulators after `steps`, from zero."""
        accs = {}
        for acc in loop.accs:
            kind = VecType.parse(acc.type)
            accs[acc.name] = Register(kind, (np.zeros((self.act.shape[0], self.tiles), np.uint64),) * kind.lanes)
        before, after = _parted(loop)
        chunk = max(1, _CHUNK // max(1, self.act.shape[0] * self.tiles))
        for first in range(steps.start, steps.stop, chunk):
            some = slice(first, min(first + chunk, steps.stop))
            trace = self._trace()
            self._bind_planes(trace, acts[:, some].astype(np.uint64), wgts[:, some].astype(np.uint64))
            for step in before:
                trace.run(step)
            for t in range(some.stop - some.start):
                accs = self._one_step(loop, trace, after, accs, t)
        return accs

    def _one_step(
        self, loop: Pass, done: Trace, after: Sequence[Step], accs: dict[str, Register], t: int
    ) -> dict[str, Register]:
        """Run what depends on the accumulators; the rest was done for many steps at once."""
        trace = Trace(self.isa, self.domain, dict(accs))
        for name in {a for s in after for a in s.args} | {acc.next for acc in loop.accs}:
            if name in done.registers:
                have = done.registers[name]
                trace.bind(name, Register(have.type, tuple(_at(x, t) for x in have.lanes)))
        for step in after:
            trace.run(step)
        kinds = [VecType.parse(acc.type) for acc in loop.accs]
        return {
            acc.name: trace.registers[acc.next].viewed_as(self.domain, kind)
            for acc, kind in zip(loop.accs, kinds, strict=True)
        }

    def _flush(self, loop: Pass, accs: dict[str, Register], tile: list[Any]) -> list[Any]:
        trace = self._trace()
        trace.registers.update(accs)
        each = self.isa.tile.lanes
        for r in range(len(tile) // each):
            trace.bind(f"c{r}", self._loaded(self.kernel.memory.load_tile, tile[r * each :], 32))
        for step in loop.flush_program:
            trace.run(step)
        return [x for name in loop.tile for x in self._stored(trace.registers[name])]

    def _bind_planes(self, trace: Trace, acts: Any, wgts: Any) -> None:
        words = [plane[..., b] for plane in acts for b in range(WORD_BYTES)]
        for p in range(len(acts)):
            trace.bind(f"a{p}", self._loaded(self.kernel.memory.broadcast, words[p * WORD_BYTES :], 8))
        per_plane = range(self.kernel.columns * WORD_BYTES)
        cells = [plane[..., b // WORD_BYTES, b % WORD_BYTES] for plane in wgts for b in per_plane]
        registers = len(per_plane) // self.isa.word.lanes
        for p in range(len(wgts)):
            for g in range(registers):
                at = (p * registers + g) * self.isa.word.lanes
                trace.bind(f"w{g}_{p}", self._loaded(self.kernel.memory.load, cells[at:], 8))

    def _act_planes(self, loop: Pass) -> Any:
        """(planes, steps, M, 1, bytes) bytes of the packed activations."""
        m, k = self.act.shape
        codes = np.zeros((m, self.steps * self.kernel.k_step), np.uint8)
        codes[:, :k] = self.act
        bits = _planes(loop.act_planes, self.kernel.act_bits)[:, codes]
        packed = self._packed(bits.reshape(len(bits), m, self.steps, WORD_BYTES, -1))
        return np.moveaxis(packed, 2, 1)[:, :, :, None]

    def _wgt_planes(self, loop: Pass) -> Any:
        """(planes, steps, 1, tiles, slots, bytes) bytes of the packed weights."""
        k, n = self.wgt.shape
        columns = self.kernel.columns
        codes = np.zeros((self.steps * self.kernel.k_step, self.tiles * columns), np.uint8)
        codes[:k, :n] = self.wgt
        bits = _planes(loop.wgt_planes, self.kernel.w_bits)[:, codes]
        bits = bits.reshape(len(bits), self.steps, WORD_BYTES, -1, self.tiles, columns)
        packed = self._packed(np.moveaxis(bits, 3, 5))
        return np.moveaxis(packed, 2, 4)[:, :, None][..., list(self.kernel.slots), :]

    def _packed(self, bits: Any) -> Any:
        """Bytes of the bits on the last axis, lowest first; what is left of a byte is 0."""
        return np.packbits(bits, axis=-1, bitorder="little")[..., 0]


def _word32(x: NDArray[Any]) -> NDArray[np.uint64]:
    """The low 32 bits."""
    return x.astype(np.uint64) & np.uint64(0xFFFFFFFF)


def _planes(tables: Sequence[int], bits: int) -> Any:
    """For each plane and code, the bit that is packed."""
    return np.array([[t >> code & 1 for code in range(1 << bits)] for t in tables], np.uint8)


def _parted(loop: Pass) -> tuple[list[Step], list[Step]]:
    """The step's program: what no accumulator flows into, then the rest. Each value has one definition."""
    late = {acc.name for acc in loop.accs}
    before, after = [], []
    for step in loop.step_program:
        if late & set(step.args):
            late.add(step.dst)
            after.append(step)
        else:
            before.append(step)
    return before, after


def _at(x: Any, t: int) -> Any:
    """The value of step `t`; constants have no axis of steps."""
    return x[t] if np.ndim(x) == 3 else x

"""Kernels with K in lanes: bits of successive positions of K lie in a register, and popcounts add them up.

For the popcount method. Codes are stored as bit planes; for 1-bit activations a and bipolar weights w:

    column register w0      64 bits of column 0, 64 bits of column 1       (64 positions of K each)
    row input a0            64 bits of the row, repeated
    acc0 += popcount(a0 ^ w0), byte by byte; a flush adds up the bytes of each column

With more bits, blocks of planes are multiplied by gates and popcounts that the sketch finds (`sketches/popcount/`).
Candidates differ in the rows of the tile, the column registers of a plane, the passes, and how terms share
accumulators. All that fit the registers are built; the first by `cost.price` wins. The reduction of each is minimal in
its sketch (`sketches/reduction/plan.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import msgspec

from bitsynth.errors import BitsynthError, NoKernel
from bitsynth.isa import cost_models
from bitsynth.isa.load import Isa
from bitsynth.isa.trace import ConstantPool
from bitsynth.kernel.program import Kernel, Pass
from bitsynth.schedule import cost, predicted
from bitsynth.schedule.flush import maximize_flush_period, with_trip_count
from bitsynth.schedule.memory import memory
from bitsynth.schedule.passes import PassBuilder, max_increment
from bitsynth.schedule.quickest import ROWS, fits_registers
from bitsynth.schedule.tiles.in_words import with_last_row
from bitsynth.sketches.popcount import counts
from bitsynth.sketches.popcount.cover import PlacedBlock
from bitsynth.sketches.reduction import plan as reduction
from bitsynth.sketches.reduction.plan import ReductionPlan
from bitsynth.spec.matmul import MatmulSpec

GROUPS = (2, 4)
WIDE_GROUPS = (*GROUPS, 8)
"""Numbers of column registers where the scoreboard chooses: the more, the less broadcasts of rows weigh."""
MORE_ROWS = (*ROWS, 5)
"""Numbers of rows where the scoreboard chooses: between idle registers and spilled accumulators."""
DEEP_ROWS = (*ROWS, 14)
"""Numbers of rows where columns have more bytes than usual and accumulators fewer registers.

Image rows of 14, 28 and 56 pixels are multiples of 14.
"""
MAX_FUSED = 6
WORD_BYTES = 8
"""Bytes of a column in a register, unless `k_step` asks for others."""
SLOT_BYTES = (WORD_BYTES, 16)
"""Bytes that a column can have: the more, the less inputs of rows are repeated and the rarer are flushes."""

Fused = tuple[tuple[PlacedBlock, ...], ...]
Priced = tuple[tuple[float, ...], Kernel]
"""A kernel behind its sort key."""


@dataclass(frozen=True)
class PassLayout:
    """Choices all passes share."""

    groups: int
    count: counts.Count
    weighted: bool
    slot_bytes: int = WORD_BYTES

    @property
    def k_step(self) -> int:
        """Positions of K that a step takes."""
        return self.slot_bytes * self.count.bits_per_byte


def cheapest_kernel(
    isa: Isa, spec: MatmulSpec, cover: Sequence[PlacedBlock], model: str, channels: int = 0, k_step: int = 0
) -> Kernel:
    """Return the cheapest kernel for `cover` under cost model `model`; NoKernel if none fits.

    With `channels` a tile has at most that many columns; with `k_step` a step takes that many positions of K.
    """
    best: Priced | None = None
    chosen = predicted.chooses(isa, model)
    # A port that one instruction alone takes is no worse than others: reductions of fewest instructions too.
    tried = _of_steps(isa, layouts(isa, WIDE_GROUPS if chosen or k_step else GROUPS), k_step)
    for layout, counted in product(tried, (model, "ops")[: 1 + chosen]):
        try:
            key, kernel = _best_in(_Builder(isa, spec, layout, model, counted), cover, channels)
        except NoKernel:
            continue
        if kernel.columns <= (channels or kernel.columns) and (best is None or key < best[0]):
            best = (key, kernel)
    if best is None:
        raise NoKernel(f"{isa.name}: no tile for {spec.act} x {spec.wgt} fits {isa.table.registers} registers")
    return with_last_row(isa, maximize_flush_period(isa, best[1]))


def _price(isa: Isa, kernel: Kernel, model: str, channels: int) -> tuple[float, ...]:
    """Return the sort key: `cost.price`, behind the cycles of a tile by itself where the scoreboard has them."""
    price = cost.price(isa, kernel, model, in_layer=channels > 0)
    return (predicted.tile_cycles_per_128_mac(isa, kernel, model), *price) if predicted.chooses(isa, model) else price


def layouts(isa: Isa, groups_tried: Sequence[int] = GROUPS) -> Iterator[PassLayout]:
    """Yield the layouts of every counting instruction, with and without coefficients in its table."""
    for count in counts.find(isa):
        for groups in groups_tried:
            for weighted in (False, True) if count.table is not None else (False,):
                yield PassLayout(groups, count, weighted)


def _of_steps(isa: Isa, layouts: Iterable[PassLayout], k_step: int) -> list[PassLayout]:
    """Return the layouts whose steps take `k_step` positions of K; NoKernel if there are none."""
    if k_step == 0:
        return list(layouts)
    sizes = [size for size in SLOT_BYTES if size <= isa.word.lanes]
    sized = [replace(x, slot_bytes=size) for x in layouts for size in sizes]
    if not (fitting := [x for x in sized if x.k_step == k_step]):
        steps = " or ".join(map(str, sorted({x.k_step for x in sized})))
        raise NoKernel(f"{isa.name}: steps of popcounts take {steps} positions of K, not {k_step}")
    return fitting


def _best_in(builder: _Builder, cover: Sequence[PlacedBlock], channels: int) -> Priced:
    isa, model = builder.isa, builder.model
    best: Priced | None = None
    usual = MORE_ROWS if predicted.chooses(isa, model) else ROWS
    for rows in usual if builder.layout.slot_bytes == WORD_BYTES else DEEP_ROWS:
        passes = _partition(builder, cover, rows)
        if passes is None:
            continue
        kernel = builder.kernel(rows, passes)
        key = _price(isa, kernel, model, channels)
        if best is None or key < best[0]:
            best = (key, kernel)
    if best is None:
        raise NoKernel(f"{isa.name}: no tile fits")
    return best


def _partition(builder: _Builder, cover: Sequence[PlacedBlock], rows: int) -> Fused | None:
    """Return consecutive blocks fused into passes: least cost, each within the register file."""

    @cache
    def best(start: int) -> tuple[tuple[float, ...], Fused] | None:
        if start == len(cover):
            return (0.0, 0.0), ()
        options = []
        for end in range(start + 1, min(len(cover), start + MAX_FUSED) + 1):
            blocks = tuple(cover[start:end])
            tail, here = best(end), builder.price_pass(blocks, rows)
            if tail is not None and here is not None:
                total = tuple(round(a + b, 6) for a, b in zip(here, tail[0], strict=True))
                options.append((total, (blocks, *tail[1])))
        return min(options, key=lambda o: o[0]) if options else None

    cheapest = best(0)
    return cheapest[1] if cheapest else None


class _Builder:
    """Builds and prices passes of one layout, each once; reductions are the cheapest as `counted`."""

    def __init__(self, isa: Isa, spec: MatmulSpec, layout: PassLayout, model: str, counted: str) -> None:
        self.isa, self.spec, self.layout, self.model = isa, spec, layout, model
        self.metric = cost_models.metric(isa.name, counted)
        self.slots: tuple[int, ...] = ()
        self._single: dict[tuple[PlacedBlock, ...], Kernel | None] = {}

    def kernel(self, rows: int, passes: Sequence[Sequence[PlacedBlock]]) -> Kernel:
        """Return a kernel of these passes, flushed as often as their plans say."""
        constants: ConstantPool = {}
        built = tuple(self._pass(blocks, constants) for blocks in passes)
        blocks = [b for p in passes for b in p]
        one_row = _kernel(
            self.isa,
            self.spec,
            (self.layout.slot_bytes, self.layout.k_step),
            self.slots,
            constants,
            built,
            (_table(blocks, self.spec.wgt.bits, "wgt"), _table(blocks, self.spec.act.bits, "act")),
        )
        return msgspec.structs.replace(one_row, rows=rows)

    def _pass(self, blocks: Sequence[PlacedBlock], constants: ConstantPool) -> Pass:
        layout = self.layout
        most = max_increment(blocks, layout.weighted, layout.count.most)
        steps = -(-cost.AMORTISED_K // layout.k_step)
        given = reduction.ReductionInput(layout.groups, most, bits=layout.count.kind.bits, slot_bytes=layout.slot_bytes)
        plan = reduction.plan(self.isa, given, steps, self.metric)
        if self.slots not in ((), plan.slots):
            raise NoKernel(f"{self.isa.name}: passes disagree on the order of columns")
        self.slots = plan.slots
        bits = self.spec.act.bits, self.spec.wgt.bits
        builder = PassBuilder(self.isa, *bits, blocks, layout.count, layout.weighted, plan, constants)
        return with_trip_count(builder.build(self.metric), 0, -(-steps // plan.flushes))

    def price_pass(self, blocks: tuple[PlacedBlock, ...], rows: int) -> tuple[float, ...] | None:
        """Return (figure, loads) of a pass alone; None if it does not fit the registers."""
        if blocks not in self._single:
            try:
                self._single[blocks] = self.kernel(1, [blocks])
            except BitsynthError:
                self._single[blocks] = None
        alone = self._single[blocks]
        if alone is None:
            return None
        kernel = msgspec.structs.replace(alone, rows=rows)
        if not fits_registers(self.isa, kernel, kernel.passes[0]):
            return None
        return cost.figure(self.isa, kernel, self.model), cost.loads_per_128_mac(self.isa, kernel)


def _kernel(
    isa: Isa,
    spec: MatmulSpec,
    sizes: tuple[int, int],
    slots: tuple[int, ...],
    constants: ConstantPool,
    passes: tuple[Pass, ...],
    tables: tuple[tuple[int, ...], tuple[int, ...]],
) -> Kernel:
    """Return a kernel of one row whose lanes are positions of K; `sizes`: bytes of a column, positions of a step."""
    slot_bytes, k_step = sizes
    return Kernel(
        isa=isa.name,
        act_bits=spec.act.bits,
        w_bits=spec.wgt.bits,
        rows=1,
        swapped=False,
        columns=len(slots),
        k_step=k_step,
        slot_bytes=slot_bytes,
        slots=slots,
        memory=memory(isa, slot_bytes),
        constants=tuple(constants.values()),
        build=None,
        passes=passes,
        column_terms=tables[0],
        row_terms=tables[1],
    )


def single_pass_kernel(isa: Isa, spec: MatmulSpec, built: tuple[Pass, ReductionPlan, ConstantPool]) -> Kernel:
    """Return a kernel of one row and one pass, without corrections, flushed as rarely as the proof allows."""
    loop, plan, constants = built
    tables = (0,) * (1 << spec.wgt.bits), (0,) * (1 << spec.act.bits)
    return maximize_flush_period(
        isa, _kernel(isa, spec, (WORD_BYTES, 8 * WORD_BYTES), plan.slots, constants, (loop,), tables)
    )


def _table(blocks: Sequence[PlacedBlock], bits: int, side: str) -> tuple[int, ...]:
    """Return the corrections of all blocks, summed, as a table over codes."""
    out = [0] * (1 << bits)
    for block in blocks:
        table, low = (block.form.g, block.wgt_low) if side == "wgt" else (block.form.h, block.act_low)
        for code in range(1 << bits):
            out[code] += block.scale * table[code >> low & (len(table) - 1)]
    return tuple(out)

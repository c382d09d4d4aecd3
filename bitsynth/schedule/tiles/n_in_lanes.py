"""Kernels with output channels in lanes: the columns of the tile lie side by side in the lanes of a register.

For the methods lookup, pairs, multiply, fip, dot and matrix. A row's input, a code or a table, is repeated over a
register, and one instruction (a "term") multiplies it with every column of a column register:

    column register w0      w[0] w[1] ... w[15]        weights of 16 output channels at one position of K
    row input a0            a    a    ... a            one activation, repeated
    acc0 += a0 * w0         16 sums, one for each output channel

Weights that are multiplied are packed, as many in a byte as fit; all rows share the instructions that unpack them. If
one side has 8 bits, each weight is a byte: as it is if an instruction takes signed bytes and adds in lanes as wide as
the tile, else as its code.

`cheapest_kernel` tries the shapes of tiles (`shapes.py`) in the order of what their steady loop costs at least, until
no other can be cheaper. Of each it builds the kernel of one row (steps in `lane_steps.py`; the way of the sums to the
int32 tile in `sketches/reduction/`), then as many rows as registers hold, and takes the cheapest by `cost.price`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from bitsynth.errors import NoKernel
from bitsynth.isa import cost_models
from bitsynth.isa.instr import Metric
from bitsynth.isa.load import Isa
from bitsynth.isa.trace import ConstantPool
from bitsynth.kernel.inputs import STAGE_BYTES, Input, Planes, Table
from bitsynth.kernel.packing import bit_tables, byte_tables
from bitsynth.kernel.program import MATRIX, Kernel, Pass
from bitsynth.kernel.wellformed import MAX_MATRIX_ROWS
from bitsynth.schedule import cost, predicted
from bitsynth.schedule.flush import maximize_flush_period
from bitsynth.schedule.memory import memory, repeats, stores
from bitsynth.schedule.quickest import ROWS, fits_registers
from bitsynth.schedule.tiles.lane_steps import rows_one_after_the_other, write_step
from bitsynth.schedule.tiles.shapes import Digit, TileShape, chain_digits, tile_shapes
from bitsynth.sketches.lanes import tables, terms, unpack
from bitsynth.sketches.lanes.terms import ProductTerm
from bitsynth.sketches.reduction import stages
from bitsynth.sketches.reduction.stages import LaneSums, Nest, SumLanes, WideningPath, loop_nest
from bitsynth.solver.budget import Budget
from bitsynth.spec.matmul import MAX_BITS, Encoding, MatmulOperand, MatmulSpec
from bitsynth.spec.options import PREDICTED

MORE_ROWS = (*ROWS, 16, 24)
"""Numbers of rows of a tile that are tried: the more rows share an unpacked column, the less unpacking costs."""
_PREDICTED_SLACK, _MAX_PREDICTED = 1.1, 8
"""The scoreboard chooses among tiles whose price is at most this many times the least, and among the cheapest 8."""


@dataclass(frozen=True)
class ScheduledKernel:
    """The kernel chosen, with claims that nothing in the sketch is cheaper.

    `bound` is the least that a steady loop of a tile costs, in operations per 128 multiply-accumulates.
    """

    kernel: Kernel
    term: ProductTerm
    claims: tuple[str, ...]
    bound: float


PricedTile = tuple[tuple[float, ...], int, TileShape, Kernel]
"""A tile: price, number (which decides between equal prices), shape, kernel."""


def cheapest_kernel(
    isa: Isa, spec: MatmulSpec, method: str, model: str, budget: Budget, channels: int = 0
) -> ScheduledKernel:
    """Return the cheapest kernel of `method` under cost model `model`; NoKernel if none fits.

    With `channels`, for layers of that many output channels, rows are activations and a tile has at most that many
    columns; tiles of row pairs must divide them.
    """
    tiles: list[PricedTile] = []
    bound = float("inf")
    wide = spec.act.bits == spec.wgt.bits == MAX_BITS
    # Weights of two bytes are quick on in-order processors alone, and cost a layer the memory that few bits save.
    product_terms = terms.find(isa, method, wide, slots=not channels and predicted.compares(isa, model))
    slack = _slack(isa, method, model)
    # Every tile shape that may still be the cheapest, with every number of rows that fits.
    for least, shape in sorted(tile_shapes(isa, spec, product_terms, model), key=lambda x: x[0]):
        if tiles and least > slack * min(tiles)[0][0]:
            break
        kernel = _build_kernel(isa, spec, shape, model) if not (channels and shape.swapped) else None
        if kernel is None or not _suits_channels(kernel, channels):
            continue
        for rows in _row_counts(isa, kernel):
            tiled = msgspec.structs.replace(kernel, rows=rows)
            if all(fits_registers(isa, tiled, p) for p in tiled.passes):
                bound = min(bound, cost.loop_ops_per_128_mac(isa, tiled))
                key = cost.price(isa, tiled, model, in_layer=channels > 0)
                tiles.append((key, len(tiles), shape, tiled))
    if not tiles:
        raise NoKernel(f"{isa.name}: no tile of the {method} method for {spec.act} x {spec.wgt} fits")
    _, _, shape, kernel = min(tiles) if slack == 1 else _quickest_tile(isa, tiles, slack, model)
    # The claims, and for lookups the program that makes tables.
    of = ", ".join(dict.fromkeys(map(str, product_terms)))
    claims = [f"{method}: no tile of {of} is cheaper"]
    if slack > 1:
        claims = [f"{method}: of the {_MAX_PREDICTED} cheapest tiles of {of} none is predicted to be quicker"]
    if shape.term.looks_up:
        rounds = tables.solve(shape.term.positions, budget)
        build = tables.build(isa, shape.term, repeats(isa, STAGE_BYTES), stores(isa, isa.word), rounds)
        kernel = msgspec.structs.replace(kernel, build=build)
        claims += rounds.claims
    return ScheduledKernel(maximize_flush_period(isa, kernel), shape.term, tuple(claims), bound)


def _row_counts(isa: Isa, kernel: Kernel) -> list[int]:
    """Return the numbers of rows that are tried: whole groups, and whole matrix registers."""
    if kernel.in_matrices:
        return list(range(isa.matrices.rows, MAX_MATRIX_ROWS + 1, isa.matrices.rows))
    return [n for n in MORE_ROWS if n % kernel.together == 0]


def _suits_channels(kernel: Kernel, channels: int) -> bool:
    """Return whether a tile suits layers of `channels`: no wider, and for pairs of rows a divisor.

    For other methods tiles of 48 columns ship too, with others of 32 for the rest.
    """
    return not channels or (kernel.columns <= channels and (kernel.together == 1 or channels % kernel.columns == 0))


def _slack(isa: Isa, method: str, model: str) -> float:
    """Return up to how many times the least price predicted cycles choose among tiles; 1: prices alone choose."""
    return _PREDICTED_SLACK if method in PREDICTED and predicted.chooses(isa, model) else 1


def _quickest_tile(isa: Isa, tiles: Sequence[PricedTile], slack: float, cpu: str) -> PricedTile:
    """Return the tile with the fewest predicted cycles of those within `slack` of the least price."""

    def cycles(tile: PricedTile) -> tuple[float, int]:
        return round(predicted.tile_cycles_per_128_mac(isa, maximize_flush_period(isa, tile[3]), cpu), 4), tile[1]

    least = min(tiles)[0][0]
    return min((tile for tile in sorted(tiles)[:_MAX_PREDICTED] if tile[0][0] <= slack * least), key=cycles)


def _build_kernel(isa: Isa, spec: MatmulSpec, shape: TileShape, model: str) -> Kernel | None:
    """Return the kernel of one row, or pair, of a shape, without its table program; None if no instructions serve."""
    constants: ConstantPool = {}
    metric = cost_models.metric(isa.name, model)
    bits = (spec.wgt.bits, spec.act.bits) if shape.swapped else (spec.act.bits, spec.wgt.bits)
    try:
        moving = memory(isa, _row_bytes(shape.term))
        tile_access = metric(isa[moving.load_tile]) + metric(isa[moving.store_tile])
        step = write_step(isa, shape, unpack.find(isa, bits[1], shape.per_byte, metric), constants)
        chains = _chains(isa, shape, spec, metric, tile_access)
    except NoKernel:
        return None
    slots_of_paths = {_slots(path.order, len(step.accs) // shape.term.rows) for path, _ in chains}
    if len(slots_of_paths) > 1:
        return None
    slots = slots_of_paths.pop()
    passes = [
        _write_pass(
            shape, bits, digit, loop_nest(isa, path, step, constants, number), carries=number < len(path.shifts)
        )
        for path, digits in chains
        for number, digit in enumerate(digits)
    ]
    row_terms, column_terms = _terms(spec, shape)
    return Kernel(
        isa=isa.name,
        act_bits=spec.act.bits,
        w_bits=spec.wgt.bits,
        swapped=shape.swapped,
        rows=shape.term.rows,
        columns=len(slots),
        k_step=shape.k_step,
        slot_bytes=shape.term.slot_bytes,
        slots=slots,
        memory=moving,
        constants=tuple(constants.values()),
        build=None,
        passes=tuple(passes),
        row_terms=row_terms,
        column_terms=column_terms,
        order=MATRIX if shape.term.in_matrices else "steps" if shape.term.slots > 1 else "rows",
        code_bytes=shape.term.code_bytes,
        together=shape.term.rows,
        cross_terms=-spec.core.wgt.scale if shape.term.crosses else 0,
    )


def _row_bytes(term: ProductTerm) -> int:
    """Return the bytes of a row's input: a table, or slots."""
    return 1 << term.positions if term.looks_up else term.slot_bytes * term.slots


def _terms(spec: MatmulSpec, shape: TileShape) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the terms of rows and of columns, which are added to the tile at the start.

    On codes, act * weight = scale * act * wgt + offset * act: the last is the term. Signed weights have none.
    """
    offset = 0 if shape.signed else spec.core.wgt.offset
    act = tuple(offset * code for code in range(1 << spec.act.bits))
    wgt = (0,) * (1 << spec.wgt.bits)
    return (wgt, act) if shape.swapped else (act, wgt)


PassChain = tuple[WideningPath, tuple[Digit, ...]]
"""How sums go to the tile, and the digits whose passes share accumulators, the heaviest first."""


def _chains(isa: Isa, shape: TileShape, spec: MatmulSpec, metric: Metric, moving: float) -> list[PassChain]:
    """Return the cheapest grouping of digits into chains; NoKernel if no instructions bring the sums to the tile."""
    steps = -(-cost.AMORTISED_K // shape.k_step)
    span = terms.pairing_of(isa, shape.term).span if shape.term.rows > 1 else 1

    def chain(digits: tuple[Digit, ...]) -> PassChain:
        increment = max(map(shape.max_increment, digits))
        shifts = tuple(more.weight - less.weight for more, less in pairwise(digits))
        coef = -(spec.core.wgt.scale << digits[-1].weight)
        term = shape.term
        start = SumLanes(term.acc_type, shape.signed and term.sum_lanes > 1, term.sum_lanes)
        sums = LaneSums(start, increment, steps, coef, shifts)
        path = stages.cheapest(isa, sums, metric, moving)
        return stages.unmix_first(isa, path, span, metric) if shape.term.rows > 1 else path, digits

    best: list[PassChain] = []
    for parts in chain_digits(shape.digits):
        try:
            chains = [chain(digits) for digits in parts]
        except NoKernel:
            continue
        if not best or sum(path.cost for path, _ in chains) < sum(path.cost for path, _ in best):
            best = chains
    if not best:
        raise NoKernel(f"{isa.name}: sums of {shape.term} have no way to the tile")
    return best


def _write_pass(shape: TileShape, bits: tuple[int, int], digit: Digit, nest: Nest, *, carries: bool) -> Pass:
    """Return the pass of a digit with the loops `nest`; `carries`: the next pass goes on from its accumulators."""
    loops, flush, given = nest if carries or shape.term.rows == 1 else rows_one_after_the_other(nest, shape.registers)
    rows = tuple(_row_input(shape, digit, bits[0], n) for n in range(shape.terms // shape.term.slots))
    columns = tuple(_column_input(shape, digit, bits[1], u) for u in range(shape.unroll))
    return Pass(rows, columns, loops, flush, given, carries=carries)


def _slots(order: tuple[int, ...], accs: int) -> tuple[int, ...]:
    """Return the column in every slot: one accumulator's columns after another's, each in its `order`."""
    return tuple(k * len(order) + place for k in range(accs) for place in order)


def _row_input(shape: TileShape, digit: Digit, bits: int, n: int) -> Input:
    """Return the row's input for term `n` of the step: a table, codes in slots, or one code of each byte."""
    term = shape.term
    if term.looks_up:
        mask = (1 << len(digit.row)) - 1
        values = tuple(code >> digit.row.start & mask for code in range(1 << bits))
        return Table(values, n * term.positions, term.positions)
    u, number = divmod(n, shape.per_byte)
    tables = bit_tables(bits)[digit.row.start : digit.row.stop]
    if term.slots > 1:
        return Planes(tables, n * term.slots * term.positions, 1, 1, slots=term.slots)
    return Planes(tables, u * term.positions * shape.per_byte + number, shape.per_byte, 1)


def _column_input(shape: TileShape, digit: Digit, bits: int, u: int) -> Planes:
    """Return input `u` of a column."""
    first = u * shape.term.positions * shape.per_byte
    tables = bit_tables(bits)[digit.column.start : digit.column.stop]
    if shape.term.looks_up:
        return Planes(tables, first, 0, shape.term.positions)
    if shape.signed:
        values = MatmulOperand(bits, Encoding.SIGNED)
        tables = byte_tables([values.value(code) for code in values.codes], shape.term.code_bytes)
        return Planes(tables, first, 1, 1, signed=True)
    if shape.term.slots > 1:
        return Planes(tables, first, 1, shape.per_byte, apart=shape.term.positions)
    return Planes(tables, first, shape.per_byte, shape.per_byte)

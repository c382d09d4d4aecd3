"""Output channels (columns of the tile) in lanes: kernels of the lookup, pairs, multiply, fip and dot methods.

Candidates differ in which operand's vectors are columns, how the row's codes are cut into
digits, how many positions a step covers, columns and rows of the tile. They are built from
the cheapest steady loop on, until none can be cheaper; the first by `cost.price` wins.

Weights that are multiplied lie as many in a byte as fit: they are columns, so that all rows
share what unpacks them. With 8 bits on a side each is a byte: as it is if an instruction takes
signed bytes and adds as wide as the tile, else its code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import msgspec

from bitsynth.errors import NoKernel
from bitsynth.isa import cost_models
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Metric
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.isa.trace import ConstantPool, Register, Trace
from bitsynth.kernel.inputs import STAGE_BYTES, Input, Planes, Table
from bitsynth.kernel.program import Acc, Kernel, Loop, Pass
from bitsynth.kernel.truth_tables import bit_tables, byte_tables
from bitsynth.schedule import cost, predicted
from bitsynth.schedule.flush import maximize_flush_period
from bitsynth.schedule.memory import memory, repeats, stores
from bitsynth.schedule.registers import ROWS, fits_registers
from bitsynth.schedule.tiles import fast_products, row_pairs
from bitsynth.schedule.tiles.digits import Digit, chained, cut
from bitsynth.sketches.lanes import pairs, tables, terms, unpack
from bitsynth.sketches.lanes.terms import ProductTerm
from bitsynth.sketches.lanes.unpack import Unpack
from bitsynth.sketches.reduction import stages
from bitsynth.sketches.reduction.nest import Nest, loop_nest
from bitsynth.sketches.reduction.stages import LaneSums, WideningPath
from bitsynth.solver.budget import Budget
from bitsynth.spec.matmul import MAX_BITS, Encoding, MatmulOperand, MatmulSpec
from bitsynth.spec.options import PREDICTED

MORE_ROWS = (*ROWS, 16, 24)
"""Rows of a tile here: the more share what unpacks their columns, the less it takes."""
REGISTERS = (1, 2, 3, 4)
"""Column registers of a tile."""
UNROLL = (1, 2, 4)
"""Inputs a step takes for every column, of no more terms than the last, unless one input has more."""
_UNROLL_OF_PAIRS = (1, 2, 3, 4)
_SLACK = 1.1
_MOST_PREDICTED = 8
"""The scoreboard chooses among those whose figure is up to so many times the least, and among no more of the first."""


@dataclass(frozen=True)
class TileShape:
    """One candidate, but for its rows."""

    term: ProductTerm
    swapped: bool
    signed: bool
    digits: tuple[Digit, ...]
    per_byte: int
    unroll: int
    registers: int

    @property
    def terms(self) -> int:
        """The number of terms a step takes for every column."""
        return self.unroll * self.per_byte

    @property
    def k_step(self) -> int:
        """The number of positions of K a step covers."""
        return self.terms * self.term.positions

    def most_of(self, digit: Digit) -> int:
        """The most that a step adds to a lane of an accumulator."""
        if self.term.crosses:
            return self.terms // fast_products.NEIGHBOURS * fast_products.most_of(digit)
        return self.terms * digit.most_of(self.term.positions)


@dataclass(frozen=True)
class ScheduledKernel:
    """The kernel chosen, and the claims that nothing in the sketch is cheaper."""

    kernel: Kernel
    term: ProductTerm
    claims: tuple[str, ...]
    bound: float


PricedTile = tuple[tuple[float, ...], int, TileShape, Kernel]
"""A tile with its price; its number parts those of one price."""


def cheapest_kernel(
    isa: Isa, spec: MatmulSpec, method: str, model: str, budget: Budget, channels: int = 0
) -> ScheduledKernel:
    """The cheapest kernel of `method` under cost model `model`; NoKernel if none fits.

    With `channels` rows are activations, and a tile has at most so many columns; of pairs their number divides it.
    """
    tiles: list[PricedTile] = []
    bound = float("inf")
    wide = spec.act.bits == spec.wgt.bits == MAX_BITS
    # In layers weights of two bytes would take the memory that few bits save; and they are quick in order alone.
    found = terms.find(isa, method, wide, lanes=not channels and predicted.compares(isa, model))
    slack = _slack(isa, method, model)
    # Every tile shape that may still be the cheapest, with every number of rows that fits.
    for least, shape in sorted(_shapes(isa, spec, found, model), key=lambda x: x[0]):
        if tiles and least > slack * min(tiles)[0][0]:
            break
        kernel = _kernel(isa, spec, shape, model) if not (channels and shape.swapped) else None
        if kernel is None or not _suits(kernel, channels):
            continue
        for rows in (n for n in MORE_ROWS if n % kernel.together == 0):
            tiled = msgspec.structs.replace(kernel, rows=rows)
            if all(fits_registers(isa, tiled, p) for p in tiled.passes):
                bound = min(bound, cost.loop_ops_per_128_mac(isa, tiled))
                key = cost.price(isa, tiled, model, in_layer=channels > 0)
                tiles.append((key, len(tiles), shape, tiled))
    if not tiles:
        raise NoKernel(f"{isa.name}: no tile of the {method} method for {spec.act} x {spec.wgt} fits")
    _, _, shape, kernel = min(tiles) if slack == 1 else _quickest(isa, tiles, slack, model)
    # The claims, and for lookups the program that makes tables.
    of = ", ".join(dict.fromkeys(map(str, found)))
    claims = [f"{method}: no tile of {of} is cheaper"]
    if slack > 1:
        claims = [f"{method}: of the {_MOST_PREDICTED} cheapest tiles of {of} none is predicted to be quicker"]
    if shape.term.looks_up:
        rounds = tables.solve(shape.term.positions, budget)
        made = tables.build(isa, shape.term, repeats(isa, STAGE_BYTES), stores(isa, isa.word), rounds)
        kernel = msgspec.structs.replace(kernel, build=made)
        claims += rounds.claims
    return ScheduledKernel(maximize_flush_period(isa, kernel), shape.term, tuple(claims), bound)


def _suits(kernel: Kernel, channels: int) -> bool:
    """Whether a tile is for layers of `channels`: of pairs only if whole tiles fill them.

    Of other methods tiles of 48 columns ship too, beside some of 32.
    """
    return not channels or (kernel.columns <= channels and (kernel.together == 1 or channels % kernel.columns == 0))


def _slack(isa: Isa, method: str, model: str) -> float:
    """The share of the least figure up to which predicted cycles choose among tiles of a method."""
    return _SLACK if method in PREDICTED and predicted.chooses(isa, model) else 1


def _quickest(isa: Isa, tiles: Sequence[PricedTile], slack: float, cpu: str) -> PricedTile:
    """Of the tiles within `slack` of the least figure that of the fewest predicted cycles."""

    def cycles(tile: PricedTile) -> tuple[float, int]:
        return round(predicted.tile_cycles_per_128_mac(isa, maximize_flush_period(isa, tile[3]), cpu), 4), tile[1]

    least = min(tiles)[0][0]
    return min((tile for tile in sorted(tiles)[:_MOST_PREDICTED] if tile[0][0] <= slack * least), key=cycles)


def _shapes(isa: Isa, spec: MatmulSpec, found: Sequence[ProductTerm], model: str) -> Iterator[tuple[float, TileShape]]:
    """Every candidate, with the least its steady loop can cost under the model."""
    for term in found:
        # A byte each, too, where half the products are saved: unpacking would take as much.
        alone = term.looks_up or term.crosses or term.code_bytes > 1 or spec.core.wgt.encoding is Encoding.SIGNED
        packed = 1 if alone else 8 // spec.wgt.bits
        # Where one register of a row serves several instructions, unpacking weighs: a byte each may be cheaper.
        per_bytes = dict.fromkeys((packed, 1)) if term.slots > 1 else (packed,)
        for per_byte, swapped in product(per_bytes, (False, True) if packed == 1 and not term.crosses else (False,)):
            bits = (spec.wgt.bits, spec.act.bits) if swapped else (spec.act.bits, spec.wgt.bits)
            signed = not swapped and _takes_signed(isa, term, spec.core.wgt)
            for digits in cut(isa, term, *bits, signed=signed):
                if not all(_holds(isa, term, len(d.row), 1 if signed else len(d.column)) for d in digits):
                    continue
                for registers, unroll in product(REGISTERS, _unrolls(term, per_byte)):
                    shape = TileShape(term, swapped, signed, digits, per_byte, unroll, registers)
                    yield round(sum(_loop_cost(isa, shape, digit, model) for digit in digits), 6), shape


def _unrolls(term: ProductTerm, per_byte: int) -> list[int]:
    """Inputs of a column that a step may take: of rows that fill registers of slots as many as these have."""
    if term.slots > 1:
        few = [max(1, term.slots // per_byte)]
    else:
        many = _UNROLL_OF_PAIRS if term.rows > 1 else UNROLL
        few = [n for n in many if n == 1 or n * per_byte <= UNROLL[-1]]
    return [n for n in few if not term.crosses or n * per_byte % fast_products.NEIGHBOURS == 0]


def _takes_signed(isa: Isa, term: ProductTerm, core: MatmulOperand) -> bool:
    """Whether weights below 0 may be columns as they are: sums below 0 are added in lanes of the tile's width alone."""
    if term.looks_up or core.encoding is not Encoding.SIGNED:
        return False
    return isa[term.op].operands[term.column].type.sign == "s" and term.acc_type.bits == isa.tile.bits


def _holds(isa: Isa, term: ProductTerm, row_bits: int, column_bits: int) -> bool:
    """Whether codes fit the operands that multiply them, a signed byte has one bit less, and their sum the result."""
    if term.looks_up:
        return True
    if term.crosses:
        most = fast_products.most_sum(row_bits, column_bits)
        return most < 1 << isa.word.bits and most**2 < 1 << term.acc_type.bits
    operands, most = isa[term.op].operands, term.positions * ((1 << row_bits) - 1) * ((1 << column_bits) - 1)
    given = ((term.row, row_bits), (term.column, column_bits))
    fits = all(bits < operands[k].type.bits or operands[k].type.sign == "u" for k, bits in given)
    return fits and most < 1 << term.acc_type.bits - (term.acc_type.sign == "s")


def _loop_cost(isa: Isa, shape: TileShape, digit: Digit, model: str) -> float:
    """The least 128 multiply-accumulates of a pass take: every instruction on all ports, or the busiest port class."""
    term = shape.term
    each = 1 / fast_products.NEIGHBOURS if term.crosses else 1.0
    ops = dict.fromkeys(term.halves, each)
    if term.add:
        ops[term.add] = len(term.halves) * each
    if term.crosses:
        ops[term.add_codes] = ops.get(term.add_codes, 0.0) + 1
    if term.rows > 1:
        ops[pairs.find(isa).add_high] = -(-shape.terms // row_pairs.gathered(isa, term, len(digit.row))) / shape.terms
    least = sum(isa[op].instructions * times for op, times in ops.items())
    if model in isa.table.cpu:
        busy: defaultdict[str, float] = defaultdict(float)
        for op, times in ops.items():
            busy[isa[op].cost[model].port] += times / isa[op].cost[model].per_cycle
        least = max(least / isa.table.cpu[model].vector_per_cycle, *busy.values())
    return 128 * least * term.slot_bytes / (isa.word.lanes * term.positions * term.rows)


def _kernel(isa: Isa, spec: MatmulSpec, shape: TileShape, model: str) -> Kernel | None:
    """One row of the candidate, without its table program; None if it has no way to the tile."""
    constants: ConstantPool = {}
    metric = cost_models.metric(isa.name, model)
    bits = (spec.wgt.bits, spec.act.bits) if shape.swapped else (spec.act.bits, spec.wgt.bits)
    try:
        moving = memory(isa, _row_bytes(shape.term))
        to_and_fro = metric(isa[moving.load_tile]) + metric(isa[moving.store_tile])
        step = _step_of(isa, shape, unpack.find(isa, bits[1], shape.per_byte, metric), constants)
        chains = _chains(isa, shape, spec, metric, to_and_fro)
    except NoKernel:
        return None
    orders = {_slots(path.order, len(step.accs) // shape.term.rows) for path, _ in chains}
    if len(orders) > 1:
        return None
    slots = orders.pop()
    passes = [
        _pass(shape, bits, digit, loop_nest(isa, path, step, constants, number), carries=number < len(path.shifts))
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
        order="steps" if shape.term.slots > 1 else "rows",
        code_bytes=shape.term.code_bytes,
        together=shape.term.rows,
        cross_terms=-spec.core.wgt.scale if shape.term.crosses else 0,
    )


def _row_bytes(term: ProductTerm) -> int:
    return 1 << term.positions if term.looks_up else term.slot_bytes * term.slots


def _terms(spec: MatmulSpec, shape: TileShape) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The terms of rows and columns: act * weight = scale * act * wgt + offset * act on codes; none if it is signed."""
    offset = 0 if shape.signed else spec.core.wgt.offset
    act = tuple(offset * code for code in range(1 << spec.act.bits))
    wgt = (0,) * (1 << spec.wgt.bits)
    return (wgt, act) if shape.swapped else (act, wgt)


PassChain = tuple[WideningPath, tuple[Digit, ...]]
"""Digits whose passes share accumulators, the greatest first, and how their sums go to the tile."""


def _chains(isa: Isa, shape: TileShape, spec: MatmulSpec, metric: Metric, moving: float) -> list[PassChain]:
    """Passes that share accumulators, as many at a time as is cheapest; NoKernel if sums have no way to the tile."""
    steps = -(-cost.AMORTISED_K // shape.k_step)

    def chain(digits: tuple[Digit, ...]) -> PassChain:
        increment = max(map(shape.most_of, digits))
        shifts = tuple(more.weight - less.weight for more, less in pairwise(digits))
        coef = -(spec.core.wgt.scale << digits[-1].weight)
        sums = LaneSums(shape.term.acc_type, increment, steps, coef, shifts)
        path = stages.cheapest(isa, sums, metric, moving)
        return stages.unmixed_first(isa, path, metric) if shape.term.rows > 1 else path, digits

    best: list[PassChain] = []
    for parts in chained(shape.digits):
        try:
            chains = [chain(digits) for digits in parts]
        except NoKernel:
            continue
        if not best or sum(path.cost for path, _ in chains) < sum(path.cost for path, _ in best):
            best = chains
    if not best:
        raise NoKernel(f"{isa.name}: sums of {shape.term} have no way to the tile")
    return best


def _pass(shape: TileShape, bits: tuple[int, int], digit: Digit, nest: Nest, *, carries: bool) -> Pass:
    """The pass of `digit`, whose loops are `nest`; it `carries` its sums to the next if that shares accumulators."""
    loops, flush, given = nest if carries or shape.term.rows == 1 else row_pairs.row_by_row(nest, shape.registers)
    rows = tuple(_row_input(shape, digit, bits[0], n) for n in range(shape.terms // shape.term.slots))
    columns = tuple(_column_input(shape, digit, bits[1], u) for u in range(shape.unroll))
    return Pass(rows, columns, loops, flush, given, carries=carries)


def _slots(order: tuple[int, ...], accs: int) -> tuple[int, ...]:
    """The column in every slot: accumulators lie one behind the other."""
    return tuple(k * len(order) + place for k in range(accs) for place in order)


def _row_input(shape: TileShape, digit: Digit, bits: int, n: int) -> Input:
    """The input that term `n` of the step multiplies: a code of every byte of the columns, or of all."""
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


def _order(shape: TileShape) -> Iterator[tuple[int, int]]:
    """The terms and registers of columns in the order of the step."""
    if shape.term.slots == 1:
        return product(range(shape.terms), range(shape.registers))
    packed = product(range(shape.unroll), range(shape.registers), range(shape.per_byte))
    return ((u * shape.per_byte + number, g) for u, g, number in packed)


def _step_of(isa: Isa, shape: TileShape, parts: Sequence[Unpack], constants: ConstantPool) -> Loop:
    """The step of one row, or of two at once."""
    if shape.term.crosses:
        return fast_products.step(isa, shape.term, shape.registers, shape.unroll, parts, constants)
    if shape.term.rows == 1:
        return _step(isa, shape, parts, constants)
    return row_pairs.step(isa, shape.term, shape.registers, shape.terms, max(len(d.row) for d in shape.digits))


def _step(isa: Isa, shape: TileShape, parts: Sequence[Unpack], constants: ConstantPool) -> Loop:
    """The step: every term added to the accumulators of its columns."""
    term = shape.term
    halves = term.halves
    names = [f"acc{k}" for k in range(shape.registers * len(halves))]
    current = dict(zip(names, names, strict=True))
    trace = Trace(isa, LinearDomain(1), constants=constants)

    def run(op: str, args: tuple[str, ...], imm: int = 0) -> str:
        trace.steps.append(Step(trace.fresh(), op, args, imm))
        return trace.steps[-1].dst

    # Terms, one after the other over all registers of columns; if rows fill registers, those of a register together.
    for n, g in _order(shape):
        u, number = divmod(n, shape.per_byte)
        packed = trace.bind(f"w{g}_{u}", Register(isa.word, (0,) * isa.word.lanes))
        codes = parts[number].apply(trace, packed)
        for h, op in enumerate(halves):
            name = names[g * len(halves) + h]
            made = run(op, term.arguments(f"a{n // term.slots}", codes, current[name]), n % term.slots)
            current[name] = run(term.add, (current[name], made)) if term.add else made
    accs = tuple(Acc(name, str(term.acc_type), current[name]) for name in names)
    return Loop(1, tuple(map(str, trace.steps)), accs)

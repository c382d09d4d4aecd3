"""Tile shapes of kernels with output channels in lanes: all candidates, and the least cost of the steady loop of each.

A shape says which instruction multiplies (`ProductTerm`), whether weights or activations are columns, how codes are cut
into digits, and how many inputs and registers a step has. Digits are for codes that are too wide for the instruction:

Given: a lookup of 4-bit activations times 2-bit weights, tables of 4 positions with entries of 8 bits
Result: one digit for each plane of the weights, as 4 * 15 fits a byte
        Digit(row=bits 0..3, column=bit 0), whose products count 2**0
        Digit(row=bits 0..3, column=bit 1), whose products count 2**1

Each digit is one pass over K. Digits of equal widths may share accumulators, the heaviest first: between two passes
the accumulators are shifted left, as in Horner's rule. Such a group of passes is a chain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from bitsynth.isa.load import Isa
from bitsynth.kernel.matrices import inputs_of_matrix
from bitsynth.sketches.lanes.terms import ProductTerm, pairing_of
from bitsynth.spec.matmul import MAX_BITS, Encoding, MatmulOperand, MatmulSpec

REGISTERS = (1, 2, 3, 4)
"""Numbers of column registers of a tile that are tried."""

UNROLL = (1, 2, 4)
"""Numbers of inputs that a step takes for every column; of several codes each, no more codes than the last number."""

_PAIR_UNROLL = (1, 2, 3, 4)
"""The same for pairs of rows."""

_MAX_PAIR_PLANES = 2
"""Bits of columns up to which pairs of rows are tried: with more, single rows have fewer passes."""

NEIGHBOURS = 2
"""Positions that share a product in the fast inner product."""


@dataclass(frozen=True)
class Digit:
    """Some bits of the row's codes, times some bits of the columns' codes."""

    row: range
    column: range

    @property
    def weight(self) -> int:
        """The power of two by which its products count."""
        return self.row.start + self.column.start

    @property
    def widths(self) -> tuple[int, int]:
        """The number of bits of the row and of the column."""
        return len(self.row), len(self.column)

    def max_sum(self, positions: int, *, signed: bool = False) -> int:
        """Return the greatest absolute sum of its products over `positions` of K; columns may be `signed`."""
        row, column = self.widths
        return positions * ((1 << row) - 1) * (1 << column - 1 if signed else (1 << column) - 1)


@dataclass(frozen=True)
class TileShape:
    """One candidate, except for its number of rows.

    Attributes:
        swapped: Whether activations are columns and weights rows.
        signed: Whether columns are signed bytes, not codes.
        digits: The passes over K.
        per_byte: Codes of a column in one byte.
        unroll: Inputs that a step takes for every column.
        registers: Column registers of the tile.
    """

    term: ProductTerm
    swapped: bool
    signed: bool
    digits: tuple[Digit, ...]
    per_byte: int
    unroll: int
    registers: int

    @property
    def terms(self) -> int:
        """The number of terms that a step adds to every column."""
        return self.unroll * self.per_byte

    @property
    def k_step(self) -> int:
        """The positions of K that a step covers."""
        return self.terms * self.term.positions

    def max_increment(self, digit: Digit) -> int:
        """Return the most that a step adds to a lane of an accumulator."""
        if self.term.crosses:
            return self.terms // NEIGHBOURS * greatest_product(*digit.widths)
        return self.terms * digit.max_sum(self.term.positions // self.term.sum_lanes, signed=self.signed)


def tile_shapes(
    isa: Isa, spec: MatmulSpec, terms: Sequence[ProductTerm], model: str
) -> Iterator[tuple[float, TileShape]]:
    """Yield every candidate, with the least that its steady loop can cost under the model."""
    for term in terms:
        # Also one code a byte where half of the products are saved, and in matrices: unpacking would take as much.
        alone = term.looks_up or term.crosses or term.in_matrices or term.code_bytes > 1
        alone = alone or spec.core.wgt.encoding is Encoding.SIGNED
        packed = 1 if alone else 8 // spec.wgt.bits
        # Where one register of a row serves several instructions, unpacking weighs: one code a byte may be cheaper.
        per_bytes = dict.fromkeys((packed, 1)) if term.slots > 1 else (packed,)
        may_swap = packed == 1 and not term.crosses and not term.in_matrices
        for per_byte, swapped in product(per_bytes, (False, True) if may_swap else (False,)):
            bits = (spec.wgt.bits, spec.act.bits) if swapped else (spec.act.bits, spec.wgt.bits)
            signed = not swapped and _takes_signed(isa, term, spec.core.wgt)
            if term.sum_lanes > 1 and not signed:  # A flush adds up signed lanes; unsigned sums would fill them sooner.
                continue
            for digits in cut_digits(isa, term, *bits, signed=signed):
                if not all(_fits_operands(isa, term, d, signed=signed) for d in digits):
                    continue
                for registers, unroll in product(REGISTERS, _unrolls(isa, term, per_byte)):
                    shape = TileShape(term, swapped, signed, digits, per_byte, unroll, registers)
                    yield round(sum(_loop_cost(isa, shape, digit, model) for digit in digits), 6), shape


def cut_digits(
    isa: Isa, term: ProductTerm, row_bits: int, column_bits: int, *, signed: bool
) -> Iterator[tuple[Digit, ...]]:
    """Yield the ways to cut a product of codes into digits.

    Lookups take one plane of the columns and a part of the row's bits. Other methods take codes whole, or cut 8-bit
    codes of one side in two, if they lie in bytes, are not `signed` columns, and the products are not products of sums.
    """
    if term.looks_up:
        max_entry = (1 << isa.word.bits) - 1 if term.rows == 1 else pairing_of(isa, term).most
        for count in _part_counts(term, row_bits, column_bits):
            parts = _cut_bits(row_bits, count)
            if all(term.positions * ((1 << len(part)) - 1) <= max_entry for part in parts):
                yield tuple(Digit(part, plane) for plane in _cut_bits(column_bits, column_bits) for part in parts)
        return
    row, column = range(row_bits), range(column_bits)
    yield (Digit(row, column),)
    if term.code_bytes > 1 or term.crosses or term.in_matrices:
        return
    if row_bits == MAX_BITS:
        yield tuple(Digit(half, column) for half in _cut_bits(row_bits, 2))
    if column_bits == MAX_BITS and not signed:
        yield tuple(Digit(row, half) for half in _cut_bits(column_bits, 2))


def _part_counts(term: ProductTerm, row_bits: int, column_bits: int) -> range:
    """Return the numbers of parts that lookups may cut the row's codes into: one for pairs of rows, or none."""
    if term.rows == 1:
        return range(1, row_bits + 1)
    return range(1, 1 + (column_bits <= _MAX_PAIR_PLANES))


def _cut_bits(bits: int, parts: int) -> list[range]:
    """Cut the bits of a code into parts of about equal length, lowest first."""
    return [range(low, high) for low, high in pairwise(bits * k // parts for k in range(parts + 1))]


def chain_digits(digits: Sequence[Digit]) -> Iterator[list[tuple[Digit, ...]]]:
    """Yield the ways to group digits into chains of passes that share accumulators.

    First each digit alone; then, if all are equally wide, two and more at a time that are next to each other in weight.
    """
    yield [(digit,) for digit in digits]
    if len({d.widths for d in digits}) == 1 and len({d.weight for d in digits}) == len(digits):
        heaviest_first = sorted(digits, key=lambda d: -d.weight)
        for size in range(2, len(digits) + 1):
            yield [tuple(heaviest_first[k : k + size]) for k in range(0, len(heaviest_first), size)]


def _unrolls(isa: Isa, term: ProductTerm, per_byte: int) -> list[int]:
    """Return the numbers of inputs of a column that a step may take.

    If an input of a row has several slots, as many as fill these; in matrices, as many as fill a row of a register.
    """
    if term.in_matrices:
        return [inputs_of_matrix(isa)]
    if term.slots > 1:
        unrolls = [max(1, term.slots // per_byte)]
    else:
        tried = _PAIR_UNROLL if term.rows > 1 else UNROLL
        unrolls = [n for n in tried if n == 1 or n * per_byte <= UNROLL[-1]]
    return [n for n in unrolls if not term.crosses or n * per_byte % NEIGHBOURS == 0]


def _takes_signed(isa: Isa, term: ProductTerm, core: MatmulOperand) -> bool:
    """Return whether signed weights may be columns unchanged.

    Negative sums are added up in lanes as wide as the tile, or in two lanes of a column, which a flush adds up.
    """
    if term.looks_up or core.encoding is not Encoding.SIGNED:
        return False
    adds_signed = term.acc_type.bits == isa.tile.bits or (term.sum_lanes > 1 and term.acc_type.sign == "s")
    return isa[term.op].operands[term.column].type.sign == "s" and adds_signed


def _fits_operands(isa: Isa, term: ProductTerm, digit: Digit, *, signed: bool) -> bool:
    """Return whether codes fit the instruction's operands, with a bit for the sign, and their sum its result."""
    if term.looks_up:
        return True
    row_bits, column_bits = digit.widths
    if term.crosses:
        greatest = greatest_sum(row_bits, column_bits)
        return greatest < 1 << isa.word.bits and greatest**2 < 1 << term.acc_type.bits
    operands, max_result = isa[term.op].operands, digit.max_sum(term.positions // term.sum_lanes, signed=signed)
    given = ((term.row, row_bits), *([] if signed else [(term.column, column_bits)]))
    fits = all(bits < operands[k].type.bits or operands[k].type.sign == "u" for k, bits in given)
    return fits and max_result < 1 << term.acc_type.bits - (term.acc_type.sign == "s")


def _loop_cost(isa: Isa, shape: TileShape, digit: Digit, model: str) -> float:
    """Return the least that 128 multiply-accumulates of a pass cost.

    The larger of two bounds: all instructions on all ports together, and the busiest port class's instructions on its
    ports.
    """
    term = shape.term
    if term.in_matrices:
        cycles = isa.matrices.cycles
        products = isa.word.lanes // term.slot_bytes * isa.matrices.rows * isa.matrices.row_bytes
        return 128 / products * (cycles[model].multiply if model in cycles else 1.0)
    each = 1 / NEIGHBOURS if term.crosses else 1.0
    ops = dict.fromkeys(term.halves, each)
    if term.add:
        ops[term.add] = len(term.halves) * each
    if term.crosses:
        ops[term.add_codes] = ops.get(term.add_codes, 0.0) + 1
    if term.rows > 1:
        gathered = count_gathered_lookups(isa, term, len(digit.row))
        for op in pairing_of(isa, term).ops:
            ops[op] = ops.get(op, 0.0) + -(-shape.terms // gathered) / shape.terms
    least = sum(isa[op].instructions * times for op, times in ops.items())
    if model in isa.table.cpu:
        busy: defaultdict[str, float] = defaultdict(float)
        for op, times in ops.items():
            busy[isa[op].cost[model].port] += times / isa[op].cost[model].per_cycle
        least = max(least / isa.table.cpu[model].vector_per_cycle, *busy.values())
    return 128 * least * term.slot_bytes / (isa.word.lanes * term.positions * term.rows)


def greatest_sum(row_bits: int, column_bits: int) -> int:
    """Return the greatest sum of a row's code and a column's."""
    return (1 << row_bits) + (1 << column_bits) - 2


def greatest_product(row_bits: int, column_bits: int) -> int:
    """Return the greatest product of two such sums."""
    return greatest_sum(row_bits, column_bits) ** 2


def count_gathered_lookups(isa: Isa, term: ProductTerm, bits: int) -> int:
    """Return how many lookups of codes of `bits` bits can be added up without leaving half a byte."""
    return pairing_of(isa, term).most // (term.positions * ((1 << bits) - 1))

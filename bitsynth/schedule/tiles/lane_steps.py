"""Steps of kernels with output channels in lanes: of one row, by the fast inner product, or of two rows at once.

Each function writes the innermost loop's program, for column registers w{g}_{u} and row inputs a{n}:

    `plain_step`, one dot product a register       acc0 = udot acc0 w0_0 a0; acc1 = udot acc1 w1_0 a0
    `plain_step`, weights of 4 bits packed         t0 = and w0_0 k0; acc0 = mla acc0 t0 a0
                                                   t1 = shr w0_0 4; acc0 = mla acc0 t1 a1
    `fast_step`, two positions a product           t0 = add a0 w(1); t1 = add a1 w(0); acc0 = mla acc0 t0 t1
    `pair_step`, tables of two rows in one byte    t0 = tbl a0 w0_0; acc0 = add acc0 t0; acc1 = add_high acc1 t0 4

The fast inner product (Winograd, 1968) multiplies half as often. For neighbours x0, x1 of a row and w0, w1 of a column,
x0 w0 + x1 w1 = (x0 + w1) (x1 + w0) - x0 x1 - w0 w1. Each subtracted product depends on one side alone and is added to
the tile at the start, as `Kernel.cross_terms`.

Of pairs of rows (`sketches/lanes/pairs.py`) each byte of a table holds an entry of both rows, one in each half. Lookups
are added up in these halves as long as they fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import product

from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.isa.trace import ConstantPool, Register, Trace
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.program import Acc, Loop
from bitsynth.schedule.tiles.shapes import NEIGHBOURS, TileShape, count_gathered_lookups
from bitsynth.sketches.lanes import pairs
from bitsynth.sketches.lanes.terms import pairing_of
from bitsynth.sketches.lanes.unpack import Unpack
from bitsynth.sketches.reduction.stages import Nest


def write_step(isa: Isa, shape: TileShape, parts: Sequence[Unpack], constants: ConstantPool) -> Loop:
    """Return the step of a row, or of two rows at once; `parts` unpack the codes of a byte of the columns."""
    if shape.term.crosses:
        return fast_step(isa, shape, parts, constants)
    if shape.term.rows > 1:
        return pair_step(isa, shape)
    return plain_step(isa, shape, parts, constants)


def plain_step(isa: Isa, shape: TileShape, parts: Sequence[Unpack], constants: ConstantPool) -> Loop:
    """Return the step that adds every term to the accumulators of its columns."""
    writer = _StepWriter(isa, shape, parts, constants)
    for n, g in _term_order(shape):
        writer.accumulate(g, Value.of(Role.ROW, n // shape.term.slots), writer.codes(n, g), n % shape.term.slots)
    return writer.finish()


def fast_step(isa: Isa, shape: TileShape, parts: Sequence[Unpack], constants: ConstantPool) -> Loop:
    """Return the step of the fast inner product."""
    writer = _StepWriter(isa, shape, parts, constants)

    def add_codes(n: int, g: int, other: int) -> Value:
        """Add the row's code at position n and the columns' codes at the other position."""
        codes = writer.codes(other, g)
        return writer.run(shape.term.add_codes, (Value.of(Role.ROW, n), codes))

    for n, g in product(range(0, shape.terms, NEIGHBOURS), range(shape.registers)):
        row, column = add_codes(n, g, n + 1), add_codes(n + 1, g, n)
        writer.accumulate(g, row, column)
    return writer.finish()


class _StepWriter:
    """Writes a step of one row."""

    def __init__(self, isa: Isa, shape: TileShape, parts: Sequence[Unpack], constants: ConstantPool) -> None:
        self.isa, self.shape, self.parts = isa, shape, parts
        self.accs = [Value.of(Role.ACCUMULATOR, k) for k in range(shape.registers * len(shape.term.halves))]
        self.current = dict(zip(self.accs, self.accs, strict=True))
        self.trace = Trace(isa, LinearDomain(1), constants=constants)

    def run(self, op: str, args: tuple[Value, ...], imm: int = 0) -> Value:
        """Append an instruction and return the name of its result."""
        self.trace.steps.append(Step(self.trace.fresh(), op, args, imm))
        return self.trace.steps[-1].dst

    def codes(self, n: int, g: int) -> Value:
        """Return the codes of column register g at term n, unpacked."""
        u, number = divmod(n, self.shape.per_byte)
        blank = Register(self.isa.word, (0,) * self.isa.word.lanes)
        packed = self.trace.bind(Value.of(Role.COLUMN, u, register=g), blank)
        return self.parts[number].apply(self.trace, packed)

    def accumulate(self, g: int, row: Value, column: Value, imm: int = 0) -> None:
        """Multiply two values and add the products to the accumulators of column register g."""
        term = self.shape.term
        for h, op in enumerate(term.halves):
            acc = self.accs[g * len(term.halves) + h]
            result = self.run(op, term.arguments(row, column, self.current[acc]), imm)
            self.current[acc] = self.run(term.add, (self.current[acc], result)) if term.add else result

    def finish(self) -> Loop:
        """Return the step as a loop."""
        accs = tuple(Acc(name, str(self.shape.term.acc_type), self.current[name]) for name in self.accs)
        return Loop(1, tuple(self.trace.steps), accs)


def _term_order(shape: TileShape) -> Iterator[tuple[int, int]]:
    """Yield terms and column registers in the order of the step.

    Term by term over all registers; if rows fill registers, the terms of one column register together.
    """
    if shape.term.slots == 1:
        return product(range(shape.terms), range(shape.registers))
    packed = product(range(shape.unroll), range(shape.registers), range(shape.per_byte))
    return ((u * shape.per_byte + number, g) for u, g, number in packed)


def pair_step(isa: Isa, shape: TileShape) -> Loop:
    """Return the step of two rows, whose tables share bytes.

    A column register has two accumulators: one for whole bytes, in which the second row's sums are the high halves, and
    the other for the high halves by themselves.
    """
    term, steps, add = shape.term, list[Step](), shape.term.add or ""
    pairing = pairing_of(isa, term)
    bits = max(len(digit.row) for digit in shape.digits)

    def run(op: str, args: tuple[Value, ...], imm: int = 0) -> Value:
        steps.append(Step(Value.of(Role.TEMPORARY, len(steps)), op, args, imm))
        return steps[-1].dst

    def look_up(tables: range, g: int) -> Value:
        inputs = [(Value.of(Role.ROW, n), Value.of(Role.COLUMN, n, register=g)) for n in tables]
        entries = [run(term.op, term.arguments(row, column, None)) for row, column in inputs]
        return reduce(lambda x, y: run(add, (x, y)), entries)

    accumulators = [Value.of(Role.ACCUMULATOR, k) for k in range(shape.registers * pairs.ROWS)]
    current = list(accumulators)
    gathered = count_gathered_lookups(isa, term, bits)
    for first in range(0, shape.terms, gathered):
        tables = range(first, min(first + gathered, shape.terms))
        for low in range(0, len(current), pairs.ROWS):
            both = look_up(tables, low // pairs.ROWS)
            current[low] = run(add, (current[low], both))
            current[low + 1] = pairing.add_high(run, current[low + 1], both)
    accs = tuple(Acc(acc, str(term.acc_type), last) for acc, last in zip(accumulators, current, strict=True))
    return Loop(1, tuple(steps), accs)


def rows_one_after_the_other(nest: Nest, registers: int) -> Nest:
    """Return the nest of a pair of rows, with the second row's tile after the first row's.

    The accumulators of both rows alternate, column register by column register; their tile registers shall not.
    """
    loops, flush, given = nest
    each = len(given) // (registers * pairs.ROWS)
    order = [(g * pairs.ROWS + m) * each + k for m in range(pairs.ROWS) for g in range(registers) for k in range(each)]

    def move(value: Value) -> Value:
        return Value.of(Role.TILE, order.index(value.number or 0)) if value.role is Role.TILE else value

    return loops, tuple(step.rename(move) for step in flush), tuple(move(given[old]) for old in order)

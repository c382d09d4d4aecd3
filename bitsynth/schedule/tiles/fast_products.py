"""Steps of the fast inner product (Winograd 1968): half as many products, each of two sums of codes.

For neighbours x0, x1 of a row and w0, w1 of a column, x0 w0 + x1 w1 = (x0 + w1) (x1 + w0) - x0 x1 - w0 w1. What is
taken away is of one side alone: where the tile starts (`kernel.program`: `cross_terms`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.isa.trace import ConstantPool, Register, Trace
from bitsynth.kernel.program import Acc, Loop
from bitsynth.schedule.tiles.digits import Digit
from bitsynth.sketches.lanes.terms import ProductTerm
from bitsynth.sketches.lanes.unpack import Unpack

NEIGHBOURS = 2
"""Positions that share a product."""


def most_of(digit: Digit) -> int:
    """The greatest product of two sums."""
    row, column = digit.widths
    return most_sum(row, column) * most_sum(row, column)


def most_sum(row_bits: int, column_bits: int) -> int:
    """The greatest sum of a row's code and a column's."""
    return (1 << row_bits) + (1 << column_bits) - 2


def step(
    isa: Isa, term: ProductTerm, registers: int, unroll: int, parts: Sequence[Unpack], constants: ConstantPool
) -> Loop:
    """The step of one row, of `unroll` inputs for every column: `parts` are the codes of a byte of them."""
    names = [f"acc{k}" for k in range(registers * len(term.halves))]
    current = dict(zip(names, names, strict=True))
    trace = Trace(isa, LinearDomain(1), constants=constants)

    def run(op: str, args: tuple[str, ...]) -> str:
        trace.steps.append(Step(trace.fresh(), op, args))
        return trace.steps[-1].dst

    def added(n: int, g: int, other: int) -> str:
        """The sums of the row's code at position n and those of columns' codes at another."""
        u, number = divmod(other, len(parts))
        packed = trace.bind(f"w{g}_{u}", Register(isa.word, (0,) * isa.word.lanes))
        return run(term.add_codes, (f"a{n}", parts[number].apply(trace, packed)))

    for n, g in product(range(0, unroll * len(parts), NEIGHBOURS), range(registers)):
        sums = added(n, g, n + 1), added(n + 1, g, n)
        for h, op in enumerate(term.halves):
            name = names[g * len(term.halves) + h]
            made = run(op, term.arguments(*sums, current[name]))
            current[name] = run(term.add, (current[name], made)) if term.add else made
    accs = tuple(Acc(name, str(term.acc_type), current[name]) for name in names)
    return Loop(1, tuple(map(str, trace.steps)), accs)

"""Steps and flushes of kernels that look up sums of two rows at once (`sketches.lanes.pairs`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import msgspec

from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.kernel.program import Acc, Loop
from bitsynth.sketches.lanes import pairs
from bitsynth.sketches.lanes.terms import ProductTerm
from bitsynth.sketches.reduction.nest import Nest


def gathered(isa: Isa, term: ProductTerm, bits: int) -> int:
    """Lookups of codes of `bits` bits whose sums stay in halves of bytes, if they are added up."""
    return pairs.find(isa).most // (term.positions * ((1 << bits) - 1))


def step(isa: Isa, term: ProductTerm, registers: int, terms: int, bits: int) -> Loop:
    """The step of two rows, whose tables share bytes: lookups are added up in halves of them as far as these go.

    Of two accumulators the first has bytes as they are, the second their high halves.
    """
    pairing, steps, add = pairs.find(isa), list[Step](), term.add or ""

    def run(op: str, args: tuple[str, ...], imm: int = 0) -> str:
        steps.append(Step(f"t{len(steps)}", op, args, imm))
        return steps[-1].dst

    def looked_up(tables: range, g: int) -> str:
        found = [run(term.op, term.arguments(f"a{n}", f"w{g}_{n}", "")) for n in tables]
        return reduce(lambda x, y: run(add, (x, y)), found)

    current, each = [f"acc{k}" for k in range(registers * pairs.ROWS)], gathered(isa, term, bits)
    for first in range(0, terms, each):
        tables = range(first, min(first + each, terms))
        for low in range(0, len(current), pairs.ROWS):
            both = looked_up(tables, low // pairs.ROWS)
            current[low] = run(add, (current[low], both))
            current[low + 1] = run(pairing.add_high, (current[low + 1], both), pairing.bits)
    accs = tuple(Acc(f"acc{k}", str(term.acc_type), name) for k, name in enumerate(current))
    return Loop(1, tuple(map(str, steps)), accs)


def row_by_row(nest: Nest, registers: int) -> Nest:
    """The nest with the tile of one row behind that of the other; sums of both lie behind each other's registers."""
    loops, flush, given = nest
    each = len(given) // (registers * pairs.ROWS)
    order = [(g * pairs.ROWS + m) * each + k for m in range(pairs.ROWS) for g in range(registers) for k in range(each)]
    return loops, _renamed(flush, order), tuple(_new(given[old], order) for old in order)


def _renamed(program: Sequence[str], order: Sequence[int]) -> tuple[str, ...]:
    steps = map(Step.parse, program)
    return tuple(str(msgspec.structs.replace(s, args=tuple(_new(a, order) for a in s.args))) for s in steps)


def _new(name: str, order: Sequence[int]) -> str:
    """The new name of a register of the tile; any other's own."""
    return f"c{order.index(int(name[1:]))}" if name[0] == "c" else name

"""How an instruction set counts bits: one instruction on 8 or on 4 bits a byte.

An instruction counts if, in the linear domain, each byte it gives is the sum of the bits
of the same byte it takes. A byte lookup counts too, through a table of popcounts; it can
then weigh the count with a coefficient at no cost.
"""

from __future__ import annotations

from dataclasses import dataclass

from bitsynth.isa.domains.forms import Field, Form, Inexact
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa


@dataclass(frozen=True)
class Count:
    """`op` counts `bits_per_byte` bits in every byte; `table` is the operand a table goes to."""

    op: str
    bits_per_byte: int
    table: int | None

    def table_lanes(self, isa: Isa, coef: int) -> tuple[int, ...]:
        """The constant that makes the lookup give coef * popcount."""
        lanes = isa[self.op].operands[self.table or 0].type.lanes
        return tuple(coef * (k % 16).bit_count() for k in range(lanes))


def find(isa: Isa) -> list[Count]:
    """The counting instructions of full registers, for the densest bytes any of them counts.

    Half as dense is twice the gates and twice the counts, so it is never cheaper.
    """
    for bits in (8, 4):
        found = []
        for instr in isa.instrs.values():
            plain = instr.on_registers and instr.imm is None and instr.out == isa.word
            if plain and all(o.type == isa.word for o in instr.operands):
                places = [None] if len(instr.operands) == 1 else range(2) if len(instr.operands) == 2 else []
                found += [
                    Count(instr.name, bits, place)
                    for place in places
                    if _counts(isa, instr, Count(instr.name, bits, place))
                ]
        if found:
            return found
    return []


def _counts(isa: Isa, instr: Instr, count: Count) -> bool:
    field = Field(0b10, 0, 0, (1 << count.bits_per_byte) - 1)
    planes = [field] * isa.word.lanes
    args: list[list[Field | int]] = [list(planes) for _ in instr.operands]
    if count.table is not None:
        args[count.table] = list(count.table_lanes(isa, 1))
    want = Form(0, {(field.tt, 0): {1: field.mask}}, 0, count.bits_per_byte)
    try:
        return all(lane == want for lane in instr(LinearDomain(2), args))
    except Inexact:
        return False

"""The instructions that count bits, on lanes of bytes of 8 or of 4 bits.

An instruction counts if, in the linear domain, each lane it gives is the sum of the bits
of the same lane it takes. A byte lookup counts too, through a table of popcounts; it can
then weigh the count with a coefficient at no cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bitsynth.isa.domains.forms import BitField, Inexact, LinearForm
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa
from bitsynth.isa.types import VecType


@dataclass(frozen=True)
class Count:
    """A form that counts `bits_per_byte` bits in every byte of a lane of `kind`; a table goes to operand `table`."""

    op: str
    kind: VecType
    bits_per_byte: int
    table: int | None

    @property
    def most(self) -> int:
        """The greatest count."""
        return self.kind.bits // 8 * self.bits_per_byte

    def table_lanes(self, isa: Isa, coef: int) -> tuple[int, ...]:
        """Return the lanes of the constant with which the lookup gives coef * popcount."""
        lanes = isa[self.op].operands[self.table or 0].type.lanes
        return tuple(coef * (k % 16).bit_count() for k in range(lanes))


def find(isa: Isa) -> list[Count]:
    """Return the counting instructions of full registers, for the densest bytes and of those the widest lanes.

    Half as dense is twice the gates and twice the counts, so it is never cheaper; narrower
    counts are as many and still have to be added up.
    """
    for bits in (8, 4):
        if counts := [c for instr in isa.full_forms for c in _candidates(isa, instr, bits) if _counts(isa, c)]:
            return [c for c in counts if c.kind.bits == max(x.kind.bits for x in counts)]
    return []


def _candidates(isa: Isa, instr: Instr, bits_per_byte: int) -> Iterator[Count]:
    kinds = {instr.out, *(o.type for o in instr.operands)}
    if instr.out.sign == "u" and instr.imm is None and len(kinds) == 1:
        if len(instr.operands) == 1:
            yield Count(instr.name, instr.out, bits_per_byte, None)
        elif len(instr.operands) == 2 and instr.out == isa.word:
            yield from (Count(instr.name, instr.out, bits_per_byte, place) for place in range(2))


def _counts(isa: Isa, count: Count) -> bool:
    instr, lanes = isa[count.op], count.kind.lanes
    mask = sum(((1 << count.bits_per_byte) - 1) << 8 * k for k in range(count.kind.bits // 8))
    args: list[list[BitField | int]] = [[BitField(0b10, 0, 0, mask)] * lanes for _ in instr.operands]
    if count.table is not None:
        args[count.table] = list(count.table_lanes(isa, 1))
    want = LinearForm(0, {(0b10, 0): {1: mask}}, 0, count.most)
    try:
        return all(lane == want for lane in instr(LinearDomain(2), args))
    except Inexact:
        return False

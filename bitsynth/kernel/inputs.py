"""The inputs of a step: planes of bits of codes, or lookup tables of sums, and the programs that make tables."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Annotated

import msgspec

from bitsynth.isa.step import Constant, Step
from bitsynth.isa.value import Value

STAGE_BYTES = 8
"""Bytes of codes a table is built from, zeros behind the last."""


class Planes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="planes"):
    """Bytes whose bits are functions of codes; `tables` are truth tables, bit c for code c.

    Bit q * len(tables) + j of byte b, for q below `per_byte`, is tables[j] of the code at
    position first + b * stride + q * apart of the step. A `signed` byte is one number, in two's
    complement. A row's input may fill several `slots` of a register; an instruction takes one of them.
    """

    tables: tuple[int, ...]
    first: int
    stride: int
    per_byte: int
    signed: bool = False
    apart: int = 1
    slots: int = 1

    @property
    def zero(self) -> int:
        """The code that pads: the first whose bits are all 0."""
        some = reduce(or_, self.tables, 0)
        return (some + 1 & ~some).bit_length() - 1

    def positions(self, byte: int) -> range:
        """Return the positions of K `byte` holds, lowest bits first."""
        start = self.first + byte * self.stride
        return range(start, start + self.per_byte * self.apart, self.apart)


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="table"):
    """A table of partial sums: entry e is the sum of values[code] over the set bits of e.

    Bit n of e stands for the code at position first + n of the step.
    """

    values: tuple[int, ...]
    first: int
    bits: Annotated[int, msgspec.Meta(ge=1, le=STAGE_BYTES)]

    @property
    def entries(self) -> int:
        """The number of entries."""
        return int(1 << self.bits)


Input = Planes | Table


class Build(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The making of tables, `tables` at a time: `load` repeats staged values in `x0`, `steps` give `table`.

    Byte p of the STAGE_BYTES is the value of code number stage[p], 0 if that is -1; each
    table takes the next codes, and as many bytes of the register. Codes beyond are not used.
    """

    tables: int
    load: str
    stage: tuple[int, ...]
    constants: tuple[Constant, ...]
    steps: tuple[Step, ...] = msgspec.field(name="program")
    table: Value
    store: str

    @property
    def in_order(self) -> bool:
        """Whether the stage is the codes as they come, zeros behind them."""
        codes = 1 + max(self.stage)
        return self.stage == (*range(codes), *[-1] * (len(self.stage) - codes))

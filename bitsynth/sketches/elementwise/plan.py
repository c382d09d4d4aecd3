"""The parts that programs of thresholds are made of: the sum, comparisons, and words or bytes of what they give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from bitsynth.errors import NoKernel
from bitsynth.isa.types import VecType
from bitsynth.sketches.elementwise import roles
from bitsynth.sketches.elementwise.builder import Builder, UnitValue
from bitsynth.spec.elementwise import SHORT_SUM


@dataclass
class Plan:
    """What the alternatives share: the sum, the levels, the comparison of one with the other."""

    builder: Builder

    @property
    def words(self) -> bool:
        """Whether words are wanted."""
        return self.builder.spec.out == "words"

    @property
    def levels(self) -> list[UnitValue]:
        """The thresholds, at the width they are compared at."""
        given = self.builder.spec.inputs[-1]
        return [self.builder.input(given.name, k) for k in range(given.values)]

    @property
    def planes(self) -> int:
        """Bits of the number."""
        return len(self.levels).bit_length()

    def sum(self) -> UnitValue:
        """The sum, its row's term added, as wide as thresholds are, which short ones fit."""
        value = self.builder.input("s")
        names = {x.name for x in self.builder.spec.inputs}
        if "r" in names:
            value = self.builder.map(roles.ADD, value, self.builder.input("r"))
        if "m" in names:
            value = self.builder.bitwise(roles.XOR, value, self.builder.input("m"))
        return self.narrowed(value, self.levels[0].type.bits, fits=SHORT_SUM in self.builder.spec.assumes)

    def narrowed(self, value: UnitValue, bits: int, *, fits: bool = True) -> UnitValue:
        """Lanes of so many bits."""
        while value.type.bits > bits:
            value = self.builder.narrow(value, fits=fits)
        return value

    def truths(self, value: UnitValue, limit: UnitValue) -> UnitValue:
        """Lanes of all ones where `value` is greater."""
        return self.builder.map(roles.GREATER, value, limit)

    def masks(self, value: UnitValue, limit: UnitValue) -> UnitValue:
        """A mask register for each register."""
        kind = value.type
        return self.builder.map(roles.GREATER_MASK, value, limit, out=VecType("u", kind.lanes, 1))

    def joined(self, masks: UnitValue, bits: int) -> UnitValue:
        """Mask registers of so many bits."""
        while masks.type.bits < bits:
            kind = VecType("u", 2 * masks.type.bits, 1)
            masks = self.builder.pairs(roles.role(self.builder.isa, roles.JOINED, kind, *[masks.type] * 2), masks, kind)
        return masks

    def parity(self, truths: Sequence[UnitValue]) -> list[UnitValue]:
        """The bits of how many of `truths`, which nest, hold."""
        picked = [truths[(1 << j) - 1 :: 1 << j] for j in range(len(truths).bit_length())]
        gate = self.builder.map if truths[0].type.lanes == 1 else self.builder.bitwise
        return [reduce(lambda x, y: gate(roles.XOR, x, y), some) for some in picked]

    def bytes_of(self, planes: Sequence[UnitValue]) -> UnitValue:
        """The number whose bits are lanes of all ones."""
        kind = planes[0].type
        parts = [self.builder.map(roles.AND, p, self.builder.constant(kind, 1 << j)) for j, p in enumerate(planes)]
        return reduce(lambda x, y: self.builder.map(roles.OR, x, y), parts)

    def chosen(self, truth: UnitValue, low: UnitValue, high: UnitValue) -> UnitValue:
        """Lanes of `high` where `truth` is all ones, of `low` where it is 0."""
        try:
            return self.builder.bitwise(roles.CHOSEN_BYTES, truth, low, high)
        except NoKernel:
            return self.builder.bitwise(roles.CHOSEN_BITS, truth, low, high)

    def gathered(self, truths: UnitValue, *, shift: bool) -> UnitValue:
        """A word of the bits of truths whose registers have half as many lanes as there are bits in one.

        Bits are shifted in one by one, or chosen by constants.
        """
        kind, builder = truths.type, self.builder
        first, *others = (UnitValue(kind, (name,)) for name in truths.registers)
        if 2 * len(truths.registers) != kind.bits:
            raise NoKernel("registers do not make up the bits of a lane")
        for k, truth in enumerate(others, 1):
            if shift:
                first = builder.map(roles.SHIFTED_IN, truth, first)
            else:
                first = builder.bitwise(roles.CHOSEN_BITS, builder.constant(kind, 1 << k), first, truth)
        return builder.map(roles.LOW_HALF, first, out=VecType(kind.sign, kind.bits // 2, kind.lanes))

    def stored(self, words: Sequence[UnitValue]) -> UnitValue:
        """The registers of all planes, one word after the other."""
        return UnitValue(words[0].type, tuple(name for plane in words for name in plane.registers))

    def signs(self, planes: Sequence[UnitValue]) -> UnitValue:
        """Words of the signs of bytes."""
        kind = VecType("u", planes[0].type.lanes, 1)
        return self.stored([self.builder.map(roles.SIGNS, p, out=kind) for p in planes])

"""Alternatives of programs that count thresholds below a sum.

Levels are sorted, so the truths of their comparisons nest, and bit j of their number is the exclusive or of every
2**j-th of them. Comparisons give lanes of all ones or mask registers; they are counted, or combined to planes, before
lanes are narrowed or after; or each bit of the number is one comparison, with a threshold that those before it chose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from bitsynth.errors import NoKernel
from bitsynth.isa.load import Isa
from bitsynth.isa.types import VecType
from bitsynth.kernel.elementwise import ElementwiseProgram
from bitsynth.sketches.elementwise import roles
from bitsynth.sketches.elementwise.builder import Builder, UnitValue
from bitsynth.spec.elementwise import WORD_BITS, ElementwiseSpec

_BYTE = 8


def alternatives(isa: Isa, spec: ElementwiseSpec) -> Iterator[ElementwiseProgram]:
    """Programs for a spec of `spec.elementwise.thresholds`, as many as `isa` has instructions for."""
    unit = WORD_BITS if spec.out == "words" else isa.word.lanes
    for make in _PLANS:
        try:
            builder = Builder(isa, spec, unit)
            yield builder.finish(make(_Plan(builder)))
        except NoKernel:
            continue


@dataclass
class _Plan:
    """What the alternatives share: the sum, the levels, the comparison of one with the other."""

    builder: Builder

    @property
    def words(self) -> bool:
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
        """The sum, its row's term added, as wide as thresholds are."""
        value = self.builder.input("s")
        names = {x.name for x in self.builder.spec.inputs}
        if "r" in names:
            value = self.builder.map(roles.ADD, value, self.builder.input("r"))
        if "m" in names:
            value = self.builder.bitwise(roles.XOR, value, self.builder.input("m"))
        return self.narrowed(value, self.levels[0].type.bits, fits=False)

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


def _in_masks(join_first: int, join_last: int) -> Callable[[_Plan], UnitValue]:
    """Comparisons to masks of `join_first` bits, logic on masks, words of masks of `join_last` bits."""

    def make(plan: _Plan) -> UnitValue:
        value = plan.sum()
        if not plan.words or not value.type.lanes <= join_first <= join_last:
            raise NoKernel("no words of masks so wide")
        truths = [plan.joined(plan.masks(value, t), join_first) for t in plan.levels]
        return plan.stored([plan.joined(p, join_last) for p in plan.parity(truths)])

    return make


def _in_kept_bytes(plan: _Plan) -> UnitValue:
    """Comparisons to masks, which select ones to count."""
    value, builder = plan.sum(), plan.builder
    kind = builder.isa.word
    if plan.words:
        raise NoKernel("bytes are no words")
    masks = [plan.joined(plan.masks(value, t), kind.lanes) for t in plan.levels]
    one = builder.constant(kind, 1)
    total = builder.map(roles.KEPT, masks[0], one, out=kind)
    for mask in masks[1:]:
        total = builder.map(roles.ADD_KEPT, total, mask, one, out=kind)
    return total


def _counted(width: int) -> Callable[[_Plan], UnitValue]:
    """Lanes of all ones, added up at `width` bits, then narrowed."""

    def make(plan: _Plan) -> UnitValue:
        value, builder = plan.sum(), plan.builder
        if plan.words or width > value.type.bits:
            raise NoKernel("bytes are no words, and lanes are not widened")
        truths = [plan.narrowed(plan.truths(value, t), width) for t in plan.levels]
        total = reduce(lambda x, y: builder.map(roles.ADD, x, y), truths)
        total = plan.narrowed(total, _BYTE)
        total = total.as_type(builder.isa.word)
        if len(plan.levels) == 1:
            return builder.map(roles.AND, total, builder.constant(total.type, 1))
        return builder.map(roles.SUB, builder.constant(total.type, 0), total)

    return make


def _by_signs(width: int) -> Callable[[_Plan], UnitValue]:
    """Lanes of all ones, combined to planes at `width` bits, narrowed, their signs gathered."""

    def make(plan: _Plan) -> UnitValue:
        value, builder = plan.sum(), plan.builder
        if width > value.type.bits:
            raise NoKernel("lanes are not widened")
        truths = [plan.narrowed(plan.truths(value, t), width) for t in plan.levels]
        planes = [plan.narrowed(p, _BYTE).as_type(builder.isa.word) for p in plan.parity(truths)]
        return plan.signs(planes) if plan.words else plan.bytes_of(planes)

    return make


def _gathered(*, shift: bool, last: bool) -> Callable[[_Plan], UnitValue]:
    """Lanes of all ones, combined to planes before or after their bits are gathered to words."""

    def make(plan: _Plan) -> UnitValue:
        value = plan.sum()
        if not plan.words:
            raise NoKernel("words are no bytes")
        truths = [plan.truths(value, t) for t in plan.levels]
        if last:
            return plan.stored([plan.gathered(p, shift=shift) for p in plan.parity(truths)])
        words = [plan.gathered(t, shift=shift) for t in truths]
        return plan.stored([p.as_type(words[0].type) for p in plan.parity(words)])

    return make


def _halved(
    plan: _Plan,
    compare: Callable[[UnitValue, UnitValue], UnitValue],
    choose: Callable[[UnitValue, UnitValue, UnitValue], UnitValue],
) -> list[UnitValue]:
    """Bits, lowest first, each by one comparison with the threshold that those above it chose."""
    value, levels, planes = plan.sum(), plan.levels, list[UnitValue]()
    if len(levels) != (1 << plan.planes) - 1 or len(levels) == 1:
        raise NoKernel("levels that do not halve")
    while levels:
        middle = len(levels) // 2
        planes.insert(0, compare(value, levels[middle]))
        pairs = zip(levels[:middle], levels[middle + 1 :], strict=True)
        levels = [choose(planes[0], low, high) for low, high in pairs]
    return planes


def _bisected(plan: _Plan) -> UnitValue:
    """Bits by bisection in mask registers."""
    builder, kind = plan.builder, plan.builder.isa.word
    planes = _halved(plan, plan.masks, lambda mask, low, high: builder.map(roles.CHOSEN, mask, low, high, out=low.type))
    if plan.words:
        return plan.stored([plan.joined(p, WORD_BITS) for p in planes])
    bytes_ = [(plan.joined(p, kind.lanes), builder.constant(kind, 1 << j)) for j, p in enumerate(planes)]
    total = builder.map(roles.KEPT, *bytes_[0], out=kind)
    for mask, weight in bytes_[1:]:
        total = builder.map(roles.ADD_KEPT, total, mask, weight, out=kind)
    return total


def _bisected_lanes(finish: Callable[[_Plan, list[UnitValue]], UnitValue]) -> Callable[[_Plan], UnitValue]:
    """Bits by bisection in lanes of all ones."""
    return lambda plan: finish(plan, _halved(plan, plan.truths, plan.chosen))


def _narrowed(plan: _Plan, planes: list[UnitValue]) -> UnitValue:
    """Signs of bytes, or the number in bytes."""
    narrow = [plan.narrowed(p, _BYTE).as_type(plan.builder.isa.word) for p in planes]
    return plan.signs(narrow) if plan.words else plan.bytes_of(narrow)


def _gathered_bits(*, shift: bool) -> Callable[[_Plan, list[UnitValue]], UnitValue]:
    def finish(plan: _Plan, planes: list[UnitValue]) -> UnitValue:
        if not plan.words:
            raise NoKernel("words are no bytes")
        return plan.stored([plan.gathered(p, shift=shift) for p in planes])

    return finish


_PLANS: tuple[Callable[[_Plan], UnitValue], ...] = (
    *(_in_masks(first, last) for first in (16, 32, 64) for last in (16, 32, 64)),
    _in_kept_bytes,
    *(_counted(width) for width in (32, 16, 8)),
    *(_by_signs(width) for width in (32, 16, 8)),
    *(_gathered(shift=shift, last=last) for shift in (True, False) for last in (True, False)),
    _bisected,
    *(_bisected_lanes(finish) for finish in (_narrowed, *(_gathered_bits(shift=shift) for shift in (True, False)))),
)

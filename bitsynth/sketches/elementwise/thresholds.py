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
        (given,) = (x for x in self.builder.spec.inputs if x.per == "channel")
        return [self.builder.input(given.name, k) for k in range(given.values)]

    @property
    def planes(self) -> int:
        """Bits of the number."""
        return len(self.levels).bit_length()

    def sum(self) -> UnitValue:
        """The sum, its row's term added, as wide as thresholds are."""
        value = self.builder.input("s")
        if any(x.name == "r" for x in self.builder.spec.inputs):
            value = self.builder.map(roles.ADD, value, self.builder.input("r"))
        return self.narrowed(value, self.levels[0].type.bits)

    def narrowed(self, value: UnitValue, bits: int, *, signed: bool = True) -> UnitValue:
        while value.type.bits > bits:
            value = self.builder.narrow(value, signed=signed)
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
        return [reduce(lambda x, y: self.builder.map(roles.XOR, x, y), some) for some in picked]

    def bytes_of(self, planes: Sequence[UnitValue]) -> UnitValue:
        """The number whose bits are lanes of all ones."""
        kind = planes[0].type
        parts = [self.builder.map(roles.AND, p, self.builder.constant(kind, 1 << j)) for j, p in enumerate(planes)]
        return reduce(lambda x, y: self.builder.map(roles.OR, x, y), parts)

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
        bits = [t.as_type(builder.isa.word) if width == _BYTE else t for t in truths]
        planes = [plan.narrowed(p, _BYTE).as_type(builder.isa.word) for p in plan.parity(bits)]
        return plan.signs(planes) if plan.words else plan.bytes_of(planes)

    return make


def _bisected(plan: _Plan) -> UnitValue:
    """Bits from the highest, each by one comparison with the threshold that those before it chose."""
    value, builder = plan.sum(), plan.builder
    levels, planes = list(plan.levels), list[UnitValue]()
    if len(levels) != (1 << plan.planes) - 1 or len(levels) == 1:
        raise NoKernel("levels that do not halve")
    while levels:
        middle = len(levels) // 2
        mask = plan.masks(value, levels[middle])
        planes.insert(0, mask)
        pairs = zip(levels[:middle], levels[middle + 1 :], strict=True)
        levels = [builder.map(roles.CHOSEN, mask, low, high, out=low.type) for low, high in pairs]
    if plan.words:
        return plan.stored([plan.joined(p, WORD_BITS) for p in planes])
    kind, bytes_ = builder.isa.word, []
    for j, p in enumerate(planes):
        mask = plan.joined(p, kind.lanes)
        bytes_.append((mask, builder.constant(kind, 1 << j)))
    total = builder.map(roles.KEPT, *bytes_[0], out=kind)
    for mask, weight in bytes_[1:]:
        total = builder.map(roles.ADD_KEPT, total, mask, weight, out=kind)
    return total


def _bisected_lanes(plan: _Plan) -> UnitValue:
    """The same by lanes of all ones."""
    value, builder = plan.sum(), plan.builder
    levels, planes = list(plan.levels), list[UnitValue]()
    if len(levels) != (1 << plan.planes) - 1 or len(levels) == 1:
        raise NoKernel("levels that do not halve")
    word = builder.isa.word
    while levels:
        middle = len(levels) // 2
        truth = plan.truths(value, levels[middle])
        planes.insert(0, truth)
        pairs = zip(levels[:middle], levels[middle + 1 :], strict=True)
        chosen = [
            builder.map(roles.CHOSEN_BYTES, *(x.as_type(word) for x in (truth, low, high))) for low, high in pairs
        ]
        levels = [x.as_type(value.type) for x in chosen]
    narrow = [plan.narrowed(p, _BYTE).as_type(word) for p in planes]
    return plan.signs(narrow) if plan.words else plan.bytes_of(narrow)


_PLANS: tuple[Callable[[_Plan], UnitValue], ...] = (
    *(_in_masks(first, last) for first in (16, 32, 64) for last in (16, 32, 64)),
    _in_kept_bytes,
    *(_counted(width) for width in (32, 16, 8)),
    *(_by_signs(width) for width in (32, 16, 8)),
    _bisected,
    _bisected_lanes,
)

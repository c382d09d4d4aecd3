"""Sketches of programs that count thresholds below an accumulator (step functions): one alternative for each way.

Levels are sorted, so the results of their comparisons nest: if s is above t[2], it is above t[1] and t[0]. So bit j of
the count is the exclusive or of every 2**j-th comparison. For three thresholds, in the words of Arm:

    in lanes                             in planes                          by bisection
    c0, c1, c2 = cgt s t[k]              c0, c1, c2 = cgt s t[k]            bit1 = cgt s t[1]
    count = -(c0 + c1 + c2)              bit0 = c0 ^ c1 ^ c2; bit1 = c1     t = bit1 ? t[2] : t[0]
    narrow count to bytes                gather the bits to words           bit0 = cgt s t

Comparisons give lanes of all ones, or mask registers where a set has these; lanes are narrowed before the logic or
after it. Each combination is an alternative; `synth/elementwise.py` takes the cheapest. More than MAX_UNROLLED_LEVELS
thresholds are counted by a loop, one an iteration: it adds the result of the comparison to a byte of each element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product

from bitsynth.errors import NoKernel
from bitsynth.isa.load import Isa
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Value
from bitsynth.kernel.elementwise.program import ElementwiseProgram, shape
from bitsynth.sketches.elementwise import roles
from bitsynth.sketches.elementwise.builder import Builder, UnitValue
from bitsynth.spec.elementwise import MAX_UNROLLED_LEVELS, SHORT_SUM, WORD_BITS, ElementInput, ElementwiseSpec

_BYTE = 8


def alternatives(isa: Isa, spec: ElementwiseSpec) -> Iterator[ElementwiseProgram]:
    """Yield programs for a spec that counts thresholds, one for each way that `isa` has the forms for."""
    if spec.inputs[-1].count > MAX_UNROLLED_LEVELS:
        yield from _loops(isa, spec)
        return
    unit = WORD_BITS if spec.out == "words" else isa.word.lanes
    for write in _ALTERNATIVES:
        try:
            builder = Builder(isa, spec, unit)
            yield builder.finish(write(ThresholdParts(builder)))
        except NoKernel:
            continue


@dataclass
class ThresholdParts:
    """Writes the parts that alternatives share: the accumulator, comparisons, planes, words."""

    builder: Builder

    @property
    def words(self) -> bool:
        """Whether results are bit planes in words, not bytes."""
        return self.builder.spec.out == "words"

    @property
    def levels(self) -> list[UnitValue]:
        """The thresholds, as wide as they are compared."""
        given = self.builder.spec.inputs[-1]
        return [self.builder.input(given.name, k) for k in range(given.values)]

    @property
    def planes(self) -> int:
        """Bits of the count."""
        return len(self.levels).bit_length()

    def sum(self) -> UnitValue:
        """Return the accumulator plus the term of its row, flipped where the channel falls, as wide as thresholds."""
        value = self.builder.input("s")
        names = {x.name for x in self.builder.spec.inputs}
        if "r" in names:
            value = self.builder.map(roles.ADD, value, self.builder.input("r"))
        if "m" in names:
            value = self.builder.bitwise(roles.XOR, value, self.builder.input("m"))
        return self.narrow(value, self.levels[0].type.bits, fits=SHORT_SUM in self.builder.spec.assumes)

    def narrow(self, value: UnitValue, bits: int, *, fits: bool = True) -> UnitValue:
        """Narrow lanes to `bits` bits."""
        while value.type.bits > bits:
            value = self.builder.narrow(value, fits=fits)
        return value

    def compare(self, value: UnitValue, limit: UnitValue) -> UnitValue:
        """Return lanes of all ones where `value` is greater than `limit`."""
        return self.builder.map(roles.GREATER, value, limit)

    def compare_to_masks(self, value: UnitValue, limit: UnitValue) -> UnitValue:
        """Return a mask register for each register, set where `value` is greater than `limit`."""
        kind = value.type
        return self.builder.map(roles.GREATER_MASK, value, limit, out=VecType("u", kind.lanes, 1))

    def join_masks(self, masks: UnitValue, bits: int) -> UnitValue:
        """Join mask registers until they have `bits` bits."""
        while masks.type.bits < bits:
            kind = VecType("u", 2 * masks.type.bits, 1)
            masks = self.builder.pairs(roles.role(self.builder.isa, roles.JOINED, kind, *[masks.type] * 2), masks, kind)
        return masks

    def parity(self, truths: Sequence[UnitValue]) -> list[UnitValue]:
        """Return the bits, lowest first, of how many of the nested `truths` hold."""
        picked = [truths[(1 << j) - 1 :: 1 << j] for j in range(len(truths).bit_length())]
        gate = self.builder.map if truths[0].type.lanes == 1 else self.builder.bitwise
        return [reduce(lambda x, y: gate(roles.XOR, x, y), some) for some in picked]

    def bytes_of(self, planes: Sequence[UnitValue]) -> UnitValue:
        """Return the number whose bits are given as lanes of all ones."""
        kind = planes[0].type
        parts = [self.builder.map(roles.AND, p, self.builder.constant(kind, 1 << j)) for j, p in enumerate(planes)]
        return reduce(lambda x, y: self.builder.map(roles.OR, x, y), parts)

    def select(self, truth: UnitValue, low: UnitValue, high: UnitValue) -> UnitValue:
        """Select lanes of `high` where `truth` is all ones, of `low` where it is 0."""
        try:
            return self.builder.bitwise(roles.CHOSEN_BYTES, truth, low, high)
        except NoKernel:
            return self.builder.bitwise(roles.CHOSEN_BITS, truth, low, high)

    def gather(self, truths: UnitValue, *, shift: bool) -> UnitValue:
        """Gather one bit of each lane to words; there must be half as many registers as bits in a lane.

        Bits are shifted in one by one if `shift`, else selected by constants.
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

    def concatenate(self, words: Sequence[UnitValue]) -> UnitValue:
        """Return the registers of all planes, one word after the other."""
        return UnitValue(words[0].type, tuple(name for plane in words for name in plane.registers))

    def gather_signs(self, planes: Sequence[UnitValue]) -> UnitValue:
        """Return the signs of bytes as words."""
        kind = VecType("u", planes[0].type.lanes, 1)
        return self.concatenate([self.builder.map(roles.SIGNS, p, out=kind) for p in planes])


def _combine_masks(join_first: int, join_last: int) -> Callable[[ThresholdParts], UnitValue]:
    """Compare to masks, join them to `join_first` bits, combine to planes, join these to words of `join_last` bits."""

    def write(parts: ThresholdParts) -> UnitValue:
        value = parts.sum()
        if not parts.words or not value.type.lanes <= join_first <= join_last:
            raise NoKernel("no words of masks so wide")
        truths = [parts.join_masks(parts.compare_to_masks(value, t), join_first) for t in parts.levels]
        return parts.concatenate([parts.join_masks(p, join_last) for p in parts.parity(truths)])

    return write


def _count_by_masks(parts: ThresholdParts) -> UnitValue:
    """Compare to masks, and count the ones that they select."""
    value, builder = parts.sum(), parts.builder
    kind = builder.isa.word
    if parts.words:
        raise NoKernel("bytes are no words")
    masks = [parts.join_masks(parts.compare_to_masks(value, t), kind.lanes) for t in parts.levels]
    one = builder.constant(kind, 1)
    total = builder.map(roles.KEPT, masks[0], one, out=kind)
    for mask in masks[1:]:
        total = builder.map(roles.ADD_KEPT, total, mask, one, out=kind)
    return total


def _count_lanes(width: int) -> Callable[[ThresholdParts], UnitValue]:
    """Compare to lanes, add these up at `width` bits, and narrow the sums."""

    def write(parts: ThresholdParts) -> UnitValue:
        value, builder = parts.sum(), parts.builder
        if parts.words or width > value.type.bits:
            raise NoKernel("bytes are no words, and lanes are not widened")
        truths = [parts.narrow(parts.compare(value, t), width) for t in parts.levels]
        total = reduce(lambda x, y: builder.map(roles.ADD, x, y), truths)
        total = parts.narrow(total, _BYTE)
        total = total.as_type(builder.isa.word)
        if len(parts.levels) == 1:
            return builder.map(roles.AND, total, builder.constant(total.type, 1))
        return builder.map(roles.SUB, builder.constant(total.type, 0), total)

    return write


def _combine_lanes(width: int) -> Callable[[ThresholdParts], UnitValue]:
    """Compare to lanes, combine them to planes at `width` bits, narrow these, and gather their signs."""

    def write(parts: ThresholdParts) -> UnitValue:
        value, builder = parts.sum(), parts.builder
        if width > value.type.bits:
            raise NoKernel("lanes are not widened")
        truths = [parts.narrow(parts.compare(value, t), width) for t in parts.levels]
        planes = [parts.narrow(p, _BYTE).as_type(builder.isa.word) for p in parts.parity(truths)]
        return parts.gather_signs(planes) if parts.words else parts.bytes_of(planes)

    return write


def _gather(*, shift: bool, last: bool) -> Callable[[ThresholdParts], UnitValue]:
    """Compare to lanes; combine them to planes, and gather words `last` or first."""

    def write(parts: ThresholdParts) -> UnitValue:
        value = parts.sum()
        if not parts.words:
            raise NoKernel("words are no bytes")
        truths = [parts.compare(value, t) for t in parts.levels]
        if last:
            return parts.concatenate([parts.gather(p, shift=shift) for p in parts.parity(truths)])
        words = [parts.gather(t, shift=shift) for t in truths]
        return parts.concatenate([p.as_type(words[0].type) for p in parts.parity(words)])

    return write


def _bisect(
    parts: ThresholdParts,
    compare: Callable[[UnitValue, UnitValue], UnitValue],
    choose: Callable[[UnitValue, UnitValue, UnitValue], UnitValue],
) -> list[UnitValue]:
    """Return the bits of the count, lowest first, each by a comparison with the level that the higher bits select."""
    value, levels, planes = parts.sum(), parts.levels, list[UnitValue]()
    if len(levels) != (1 << parts.planes) - 1 or len(levels) == 1:
        raise NoKernel("levels that do not halve")
    while levels:
        middle = len(levels) // 2
        planes.insert(0, compare(value, levels[middle]))
        pairs = zip(levels[:middle], levels[middle + 1 :], strict=True)
        levels = [choose(planes[0], low, high) for low, high in pairs]
    return planes


def _bisect_masks(parts: ThresholdParts) -> UnitValue:
    """Bisect in mask registers."""
    builder, kind = parts.builder, parts.builder.isa.word
    planes = _bisect(
        parts, parts.compare_to_masks, lambda mask, low, high: builder.map(roles.CHOSEN, mask, low, high, out=low.type)
    )
    if parts.words:
        return parts.concatenate([parts.join_masks(p, WORD_BITS) for p in planes])
    bytes_ = [(parts.join_masks(p, kind.lanes), builder.constant(kind, 1 << j)) for j, p in enumerate(planes)]
    total = builder.map(roles.KEPT, *bytes_[0], out=kind)
    for mask, weight in bytes_[1:]:
        total = builder.map(roles.ADD_KEPT, total, mask, weight, out=kind)
    return total


def _bisect_lanes(
    finish: Callable[[ThresholdParts, list[UnitValue]], UnitValue],
) -> Callable[[ThresholdParts], UnitValue]:
    """Bisect in lanes of all ones."""
    return lambda parts: finish(parts, _bisect(parts, parts.compare, parts.select))


def _narrow_planes(parts: ThresholdParts, planes: list[UnitValue]) -> UnitValue:
    """Narrow planes to bytes, and gather their signs, or compute the number."""
    narrow = [parts.narrow(p, _BYTE).as_type(parts.builder.isa.word) for p in planes]
    return parts.gather_signs(narrow) if parts.words else parts.bytes_of(narrow)


def _gather_planes(*, shift: bool) -> Callable[[ThresholdParts, list[UnitValue]], UnitValue]:
    def finish(parts: ThresholdParts, planes: list[UnitValue]) -> UnitValue:
        if not parts.words:
            raise NoKernel("words are no bytes")
        return parts.concatenate([parts.gather(p, shift=shift) for p in planes])

    return finish


_ALTERNATIVES: tuple[Callable[[ThresholdParts], UnitValue], ...] = (
    *(_combine_masks(first, last) for first in (16, 32, 64) for last in (16, 32, 64)),
    _count_by_masks,
    *(_count_lanes(width) for width in (32, 16, 8)),
    *(_combine_lanes(width) for width in (32, 16, 8)),
    *(_gather(shift=shift, last=last) for shift in (True, False) for last in (True, False)),
    _bisect_masks,
    *(_bisect_lanes(finish) for finish in (_narrow_planes, *(_gather_planes(shift=shift) for shift in (True, False)))),
)


def _loops(isa: Isa, spec: ElementwiseSpec) -> Iterator[ElementwiseProgram]:
    """Yield programs with a loop, one for each way to count and to make words that `isa` has the forms for."""
    unit = WORD_BITS if spec.out == "words" else isa.word.lanes
    finishes = (_test_bits, _shift_to_signs, _shift_in) if spec.out == "words" else (_keep_bytes,)
    for count, finish in product((_add_selected, _subtract), finishes):
        try:
            parts = ThresholdParts(Builder(isa, spec, unit))
            kind, registers = shape(isa, ElementInput("x", "u8"), unit)
            counts = UnitValue(kind, tuple(Value(f"x0_{n}") for n in range(registers)))
            loop = parts.builder.finish_loop(count(parts, counts))
            yield parts.builder.finish(finish(parts, counts), loop)
        except NoKernel:
            continue


def _add_selected(parts: ThresholdParts, counts: UnitValue) -> UnitValue:
    """Add 1 where a mask register is set."""
    masks = parts.join_masks(parts.compare_to_masks(parts.sum(), parts.levels[0]), counts.type.lanes)
    return parts.builder.map(roles.ADD_KEPT, counts, masks, parts.builder.constant(counts.type, 1))


def _subtract(parts: ThresholdParts, counts: UnitValue) -> UnitValue:
    """Subtract lanes of all ones, which are -1."""
    truths = parts.narrow(parts.compare(parts.sum(), parts.levels[0]), counts.type.bits)
    return parts.builder.map(roles.SUB, counts, truths.as_type(counts.type))


def _keep_bytes(_: ThresholdParts, counts: UnitValue) -> UnitValue:
    return counts


def _test_bits(parts: ThresholdParts, counts: UnitValue) -> UnitValue:
    """Make each plane by an instruction that tests its bit."""
    masks = VecType("u", counts.type.lanes, 1)
    bits = [parts.builder.constant(counts.type, 1 << j) for j in range(parts.planes)]
    return parts.concatenate([parts.builder.map(roles.TESTED, counts, bit, out=masks) for bit in bits])


def _shift_to_signs(parts: ThresholdParts, counts: UnitValue) -> UnitValue:
    """Make each plane of the signs of bytes, after its bit was shifted there."""
    pairs = counts.as_type(VecType("u", 16, counts.type.lanes // 2))
    top = counts.type.bits - 1
    shifted = [
        parts.builder.map(roles.SHIFT_LEFT.format(top - j), pairs) if j + 1 < counts.type.bits else pairs
        for j in range(parts.planes)
    ]
    return parts.gather_signs([x.as_type(counts.type) for x in shifted])


def _shift_in(parts: ThresholdParts, counts: UnitValue) -> UnitValue:
    """Make each plane by shifting in its bits register by register, then the bits of high bytes behind the low ones."""
    builder, kind, half = parts.builder, counts.type, counts.type.bits // 2
    if len(counts.registers) != half:
        raise NoKernel("registers do not make up half the bits of a byte")
    pairs, words = VecType("u", 2 * kind.bits, kind.lanes // 2), []

    def shift_in(bits: UnitValue, more: UnitValue) -> UnitValue:
        return builder.map(roles.SHIFTED_IN, more, bits)

    for j in range(parts.planes):
        bits = builder.map(roles.SHIFT_RIGHT.format(j), counts) if j else counts
        joined = reduce(shift_in, (replace(bits, registers=(name,)) for name in bits.registers))
        low = builder.bitwise(roles.AND, joined, builder.constant(kind, (1 << half) - 1)).as_type(pairs)
        both = builder.bitwise(roles.OR, low, builder.map(roles.SHIFT_RIGHT.format(half), low))
        words.append(builder.map(roles.LOW_HALF, both, out=VecType("u", kind.bits, pairs.lanes)))
    return parts.concatenate(words)

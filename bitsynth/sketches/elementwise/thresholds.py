"""Alternatives of programs that count thresholds below a sum.

Levels are sorted, so the truths of their comparisons nest, and bit j of their number is the exclusive or of every
2**j-th of them. Comparisons give lanes of all ones or mask registers; they are counted, or combined to planes, before
lanes are narrowed or after; or each bit of the number is one comparison, with a threshold that those before it chose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce

from bitsynth.errors import NoKernel
from bitsynth.isa.load import Isa
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.sketches.elementwise import counting, roles
from bitsynth.sketches.elementwise.builder import Builder, UnitValue
from bitsynth.sketches.elementwise.plan import Plan
from bitsynth.spec.elementwise import MAX_UNROLLED_LEVELS, WORD_BITS, ElementwiseSpec

_BYTE = 8


def alternatives(isa: Isa, spec: ElementwiseSpec) -> Iterator[ElementwiseProgram]:
    """Programs for a spec of `spec.elementwise.thresholds`, as many as `isa` has instructions for."""
    if spec.inputs[-1].count > MAX_UNROLLED_LEVELS:
        yield from counting.alternatives(isa, spec)
        return
    unit = WORD_BITS if spec.out == "words" else isa.word.lanes
    for make in _PLANS:
        try:
            builder = Builder(isa, spec, unit)
            yield builder.finish(make(Plan(builder)))
        except NoKernel:
            continue


def _in_masks(join_first: int, join_last: int) -> Callable[[Plan], UnitValue]:
    """Comparisons to masks of `join_first` bits, logic on masks, words of masks of `join_last` bits."""

    def make(plan: Plan) -> UnitValue:
        value = plan.sum()
        if not plan.words or not value.type.lanes <= join_first <= join_last:
            raise NoKernel("no words of masks so wide")
        truths = [plan.joined(plan.masks(value, t), join_first) for t in plan.levels]
        return plan.stored([plan.joined(p, join_last) for p in plan.parity(truths)])

    return make


def _in_kept_bytes(plan: Plan) -> UnitValue:
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


def _counted(width: int) -> Callable[[Plan], UnitValue]:
    """Lanes of all ones, added up at `width` bits, then narrowed."""

    def make(plan: Plan) -> UnitValue:
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


def _by_signs(width: int) -> Callable[[Plan], UnitValue]:
    """Lanes of all ones, combined to planes at `width` bits, narrowed, their signs gathered."""

    def make(plan: Plan) -> UnitValue:
        value, builder = plan.sum(), plan.builder
        if width > value.type.bits:
            raise NoKernel("lanes are not widened")
        truths = [plan.narrowed(plan.truths(value, t), width) for t in plan.levels]
        planes = [plan.narrowed(p, _BYTE).as_type(builder.isa.word) for p in plan.parity(truths)]
        return plan.signs(planes) if plan.words else plan.bytes_of(planes)

    return make


def _gathered(*, shift: bool, last: bool) -> Callable[[Plan], UnitValue]:
    """Lanes of all ones, combined to planes before or after their bits are gathered to words."""

    def make(plan: Plan) -> UnitValue:
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
    plan: Plan,
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


def _bisected(plan: Plan) -> UnitValue:
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


def _bisected_lanes(finish: Callable[[Plan, list[UnitValue]], UnitValue]) -> Callable[[Plan], UnitValue]:
    """Bits by bisection in lanes of all ones."""
    return lambda plan: finish(plan, _halved(plan, plan.truths, plan.chosen))


def _narrowed(plan: Plan, planes: list[UnitValue]) -> UnitValue:
    """Signs of bytes, or the number in bytes."""
    narrow = [plan.narrowed(p, _BYTE).as_type(plan.builder.isa.word) for p in planes]
    return plan.signs(narrow) if plan.words else plan.bytes_of(narrow)


def _gathered_bits(*, shift: bool) -> Callable[[Plan, list[UnitValue]], UnitValue]:
    def finish(plan: Plan, planes: list[UnitValue]) -> UnitValue:
        if not plan.words:
            raise NoKernel("words are no bytes")
        return plan.stored([plan.gathered(p, shift=shift) for p in planes])

    return finish


_PLANS: tuple[Callable[[Plan], UnitValue], ...] = (
    *(_in_masks(first, last) for first in (16, 32, 64) for last in (16, 32, 64)),
    _in_kept_bytes,
    *(_counted(width) for width in (32, 16, 8)),
    *(_by_signs(width) for width in (32, 16, 8)),
    *(_gathered(shift=shift, last=last) for shift in (True, False) for last in (True, False)),
    _bisected,
    *(_bisected_lanes(finish) for finish in (_narrowed, *(_gathered_bits(shift=shift) for shift in (True, False)))),
)

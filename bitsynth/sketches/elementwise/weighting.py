"""Sketches of weighted sums of two codes: products of pairs, shifted, narrowed with saturation, in the codes' order."""

from __future__ import annotations

from collections.abc import Iterator

from bitsynth.errors import NoKernel
from bitsynth.isa.load import Isa
from bitsynth.isa.types import VecType
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.sketches.elementwise import roles
from bitsynth.sketches.elementwise.builder import Builder, UnitValue, read_off
from bitsynth.sketches.elementwise.rescaling import (
    ADD_SATURATED,
    MIN_UNSIGNED,
    MULTIPLY,
    MULTIPLY_ADD,
    SHIFTED_LEFT,
    SHIFTED_RIGHT,
)
from bitsynth.spec.elementwise import ElementwiseSpec

INTERLEAVED = "concat(a, b)[i // {half} * {half} + (i % {half} + {start}) // 2 + i % 2 * lanes]"
"""Lanes of both, one by one, of a half of every 16 bytes."""
PAIR_PRODUCTS = "sext(a[2*i], out) * sext(b[2*i], out) + sext(a[2*i + 1], out) * sext(b[2*i + 1], out)"
_MASKS = [255, 255, 0, 0], [0, 0, 255, 255]
"""Bytes of the low and the high half of 32 bits."""
_BLOCK, _FACTOR = 16, 16


def alternatives(isa: Isa, spec: ElementwiseSpec) -> Iterator[ElementwiseProgram]:
    """Programs for `spec.glue.weighted`, as many as `isa` has instructions for."""
    wide = next(x for x in spec.inputs if x.name == "f").lane.bits > _FACTOR
    for products in (_of_words,) if wide else (_of_pairs, _of_each):
        builder = Builder(isa, spec, isa.word.lanes)
        try:
            codes = _codes(builder, products(builder))
            made = read_off(builder.finish(codes), codes)
        except NoKernel:
            continue
        if made.order == tuple(range(made.unit)):
            yield made


def _interleaved(builder: Builder, a: UnitValue, b: UnitValue) -> UnitValue:
    """Lanes of both beside each other: twice the registers."""
    half, kind = _BLOCK // (a.type.bits // 8), a.type
    made = [builder.map(INTERLEAVED.format(half=half, start=start), a, b) for start in (0, half)]
    return UnitValue(kind, tuple(name for both in zip(*(m.registers for m in made), strict=True) for name in both))


def _of_pairs(builder: Builder) -> UnitValue:
    """Codes of both beside each other, and one instruction for the sum of two products."""
    both = _interleaved(builder, builder.input("a"), builder.input("b"))
    wide = _interleaved(builder, both, builder.constant(both.type, 0))
    kind = VecType("s", 16, both.type.lanes // 2)
    out = VecType("s", 32, kind.lanes // 2)
    low, high = (builder.constant(both.type, *mask * out.lanes).as_type(kind) for mask in _MASKS)
    parts = [builder.bitwise(roles.AND, builder.input(n), mask) for n, mask in (("f", low), ("g", high))]
    return builder.map(PAIR_PRODUCTS, wide.as_type(kind), builder.bitwise(roles.OR, *parts), out=out)


def _of_each(builder: Builder) -> UnitValue:
    """Codes as 16 bits, and products of half a register."""
    registers = []
    a, b = (widened(builder, builder.input(name)) for name in "ab")
    for one, other in zip(a.registers, b.registers, strict=True):
        for start in (0, a.type.lanes // 2):
            registers.append(_sum(builder, UnitValue(a.type, (one,)), UnitValue(b.type, (other,)), start))
    return UnitValue(VecType("s", 32, a.type.lanes // 2), tuple(registers))


def _of_words(builder: Builder) -> UnitValue:
    """Codes as 32 bits."""
    a, b = (widened(builder, widened(builder, builder.input(name))) for name in "ab")
    product = builder.map(MULTIPLY, a, builder.input("f"))
    try:
        return builder.map(MULTIPLY_ADD, product, b, builder.input("g"))
    except NoKernel:
        return builder.map(roles.ADD, product, builder.map(MULTIPLY, b, builder.input("g")))


def widened(builder: Builder, x: UnitValue) -> UnitValue:
    """Lanes twice as wide, of halves of registers or of 16 bytes."""
    kind = VecType("s", 2 * x.type.bits, x.type.lanes // 2)
    try:
        parts = [builder.map(_half("zext(a[i{0}], out)", start), x, out=kind) for start in (0, kind.lanes)]
    except NoKernel:
        return _interleaved(builder, x, builder.constant(x.type, 0)).as_type(kind)
    return UnitValue(kind, tuple(name for both in zip(*(p.registers for p in parts), strict=True) for name in both))


def _sum(builder: Builder, a: UnitValue, b: UnitValue, start: int) -> str:
    out = VecType("s", 32, a.type.lanes // 2)
    f, g = builder.input("f"), builder.input("g")
    first = builder.map(_half("sext(a[i{0}], 32) * sext(b[i{0}], 32)", start), a, f, out=out)
    more = "a[i] + sext(b[i{0}], 32) * sext(c[i{0}], 32)"
    return builder.map(_half(more, start), first, b, g, out=out).registers[0]


def _half(text: str, start: int) -> str:
    return text.format(f" + {start}" if start else "")


def _codes(builder: Builder, p: UnitValue) -> UnitValue:
    """Shifted sums as codes."""
    p = builder.map(roles.ADD, p, builder.input("k"))
    if any(x.name == "e" for x in builder.spec.inputs):
        bit = builder.bitwise(roles.AND, shifted(builder, p, "n"), builder.constant(p.type, 1))
        p = builder.map(roles.ADD, builder.map(roles.ADD, p, builder.input("e")), bit)
    x = builder.narrow(shifted(builder, p, "n"))
    if any(one.name == "z" for one in builder.spec.inputs):
        x = builder.map(ADD_SATURATED, x, builder.input("z"))
    codes = builder.narrow(x, signed=False).as_type(builder.isa.word)
    return builder.map(MIN_UNSIGNED, codes, builder.input("h"))


def shifted(builder: Builder, x: UnitValue, name: str) -> UnitValue:
    """Lanes of 32 bits, to the right by the input of that name."""
    by = builder.input(name)
    try:
        return builder.map(SHIFTED_RIGHT, x, by)
    except NoKernel:
        less = builder.map(roles.SUB, builder.constant(by.type, 0), by)
        return builder.map(SHIFTED_LEFT, x, less)

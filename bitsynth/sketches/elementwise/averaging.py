"""Sketches of means: sums of 32 bits times a reciprocal of as many, narrowed with saturation, in the sums' order."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from bitsynth.errors import NoKernel
from bitsynth.isa.load import Isa
from bitsynth.isa.types import VecType
from bitsynth.kernel.elementwise.constants import unmoved
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.sketches.elementwise import roles
from bitsynth.sketches.elementwise.builder import Builder, UnitValue, read_off
from bitsynth.sketches.elementwise.rescaling import MIN_UNSIGNED, MULTIPLY, ODD, SHIFTED_RIGHT
from bitsynth.sketches.elementwise.weighting import shifted
from bitsynth.spec.elementwise import ElementInput, ElementwiseSpec

_EVEN_PRODUCTS = "zext(a[2*i], 64) * zext(b[2*i], 64)"
_HALF_PRODUCTS = tuple(f"a[i] + zext(b[i{k}], 64) * zext(c[i{k}], 64)" for k in ("", " + lanes"))
_WORD = 32
_PASSED = ElementwiseSpec("passed", (ElementInput("s", "s32"),), "trunc(s, 8)", "u8")


def alternatives(isa: Isa, spec: ElementwiseSpec) -> Iterator[ElementwiseProgram]:
    """Programs for `spec.glue.mean`, if `isa` has the instructions."""
    builder = Builder(isa, spec, isa.word.lanes)
    try:
        codes = in_order(builder, narrowed(builder, _quotients(builder)))
        made = builder.finish(builder.map(MIN_UNSIGNED, codes, builder.input("h")))
    except NoKernel:
        return
    yield msgspec.structs.replace(made, orders=unmoved(spec, made.unit))


def _quotients(builder: Builder) -> UnitValue:
    sums = builder.input("s")
    number = builder.map(roles.ADD, builder.map(roles.SHIFT_LEFT.format(1), sums), builder.input("c"))
    high = _high_products(builder, number, builder.input("m"))
    if not any(x.name == "d" for x in builder.spec.inputs):
        return shifted(builder, high, "t")
    # What is multiplied again must be the spec's own text: a shift the other way is another.
    return _evened(builder, number, builder.map(SHIFTED_RIGHT, high, builder.input("t")))


def narrowed(builder: Builder, x: UnitValue) -> UnitValue:
    """Lanes of 32 bits as bytes, saturated."""
    return builder.narrow(builder.narrow(x), signed=False).as_type(builder.isa.word)


def _high_products(builder: Builder, a: UnitValue, b: UnitValue) -> UnitValue:
    """The high halves of products of 32-bit lanes."""
    wide = VecType("u", 2 * _WORD, a.type.lanes // 2)
    try:
        even = builder.map(_EVEN_PRODUCTS, a, b, out=wide)
    except NoKernel:
        zero = builder.constant(wide, 0)
        return builder.map(ODD, *(builder.map(text, zero, a, b, out=wide).as_type(a.type) for text in _HALF_PRODUCTS))
    odds = (builder.map(roles.SHIFT_RIGHT.format(_WORD), x.as_type(wide)).as_type(a.type) for x in (a, b))
    odd = builder.map(_EVEN_PRODUCTS, *odds, out=wide)
    low = builder.map(roles.SHIFT_RIGHT.format(_WORD), even).as_type(a.type)
    mask = builder.constant(a.type, *[0, -1] * (a.type.lanes // 2))
    return builder.bitwise(roles.OR, builder.bitwise(roles.AND, odd.as_type(a.type), mask), low)


def _evened(builder: Builder, number: UnitValue, quotient: UnitValue) -> UnitValue:
    """Quotients less 1 where they are odd and the divisor divides the number."""
    one = builder.constant(number.type, 1)
    back = builder.map(MULTIPLY, quotient.as_type(number.type), builder.input("d"))
    uneven = builder.map(MIN_UNSIGNED, builder.bitwise(roles.XOR, back, number), one)
    tied = builder.bitwise(roles.XOR, uneven, one)
    odd = builder.bitwise(roles.XOR, quotient.as_type(number.type), builder.input("w"))
    return builder.map(roles.SUB, quotient.as_type(number.type), builder.bitwise(roles.AND, odd, tied))


def in_order(builder: Builder, codes: UnitValue) -> UnitValue:
    """Codes in the order of lanes of 32 bits, which narrowing leaves in fours."""
    return _moved(builder, codes, _fours(builder))


def out_of_order(builder: Builder, codes: UnitValue) -> UnitValue:
    """Codes that widening takes to lanes of 32 bits in order, where it is what narrowing is, backwards."""
    fours = _fours(builder)
    return _moved(builder, codes, [fours.index(n) for n in range(len(fours))])


def _fours(builder: Builder) -> list[int]:
    """Where narrowing leaves each four of bytes."""
    alone = Builder(builder.isa, _PASSED, builder.unit)
    codes = narrowed(alone, alone.input("s"))
    order = read_off(alone.finish(codes), codes).order
    return [order[p] // 4 for p in range(0, len(order), 4)]


def _moved(builder: Builder, codes: UnitValue, places: list[int]) -> UnitValue:
    if places == sorted(places):
        return codes
    kind = VecType("u", _WORD, codes.type.total_bits // _WORD)
    return builder.map(roles.PERMUTED, codes.as_type(kind), builder.constant(kind, *places)).as_type(codes.type)

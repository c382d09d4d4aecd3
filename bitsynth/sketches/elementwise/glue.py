"""Sketches of programs between layers: weighted sums of two codes, means, quantization and dequantization of floats.

Each of `write_weighted_sums`, `means` and `conversions` yields the programs for the specs of `spec/glue.py` of that
name. For the weighted sum of two codes, a * f + b * g, an instruction set may have a form that sums two products:

    Given    codes a and b in bytes, 16-bit factors f and g
    Result   interleave a and b, then with zeros      (a, b) in pairs of 16-bit lanes
             p = multiply pairs by (f, g), sum        int32 lanes a * f + b * g
             p = p + k; shift right by n              rounded
             narrow with saturation, add z, clamp     codes

Else products are of each code by itself. Narrowing may leave groups of four bytes in another order (`in_order`).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from bitsynth.errors import NoKernel
from bitsynth.isa.floats import INFINITY
from bitsynth.isa.load import Isa
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Value
from bitsynth.kernel.elementwise.constants import find_unmoved
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.sketches.elementwise import roles
from bitsynth.sketches.elementwise.builder import Builder, UnitValue, read_off
from bitsynth.sketches.elementwise.rescaling import (
    ADD_SATURATED,
    FLOAT,
    GREATER,
    LESSER,
    MIN_UNSIGNED,
    MULTIPLY,
    MULTIPLY_ADD,
    NEAREST_BELOW,
    ODD,
    SHIFTED_LEFT,
    SHIFTED_RIGHT,
    TIMES,
)
from bitsynth.spec.elementwise import ElementInput, ElementwiseSpec, SpecKind

INTERLEAVED = "concat(a, b)[i // {half} * {half} + (i % {half} + {start}) // 2 + i % 2 * lanes]"
"""Lanes of a and b alternate, for one half of every 16 bytes."""
PAIR_PRODUCTS = "sext(a[2*i], out) * sext(b[2*i], out) + sext(a[2*i + 1], out) * sext(b[2*i + 1], out)"
_MASKS = [255, 255, 0, 0], [0, 0, 255, 255]
"""Bytes of the low and of the high half of 32 bits."""
_BLOCK_BYTES, _NARROW_FACTOR_BITS = 16, 16
_EVEN_PRODUCTS = "zext(a[2*i], 64) * zext(b[2*i], 64)"
_HALF_PRODUCTS = tuple(f"a[i] + zext(b[i{k}], 64) * zext(c[i{k}], 64)" for k in ("", " + lanes"))
_WORD = 32
_PASSED = ElementwiseSpec("passed", (ElementInput("s", "s32"),), "trunc(s, 8)", "u8")
_QUOTIENT = "fdiv(a[i], b[i])"
_BYTE, _MAGNITUDE = 0xFF, 0x7FFF_FFFF


def write_weighted_sums(isa: Isa, spec: ElementwiseSpec) -> Iterator[ElementwiseProgram]:
    """Yield programs for `spec.glue.weighted`, one for each way that `isa` has the forms for."""
    wide = next(x for x in spec.inputs if x.name == "f").lane.bits > _NARROW_FACTOR_BITS
    for products in (_sum_words,) if wide else (_sum_pairs, _sum_each):
        builder = Builder(isa, spec, isa.word.lanes)
        try:
            codes = _round_to_codes(builder, products(builder))
            program = read_off(builder.finish(codes), codes)
        except NoKernel:
            continue
        if program.order == tuple(range(program.unit)):
            yield program


def _interleave(builder: Builder, a: UnitValue, b: UnitValue) -> UnitValue:
    """Return alternating lanes of both, in twice as many registers."""
    half, kind = _BLOCK_BYTES // (a.type.bits // 8), a.type
    halves = [builder.map(INTERLEAVED.format(half=half, start=start), a, b) for start in (0, half)]
    return UnitValue(kind, tuple(name for both in zip(*(h.registers for h in halves), strict=True) for name in both))


def _sum_pairs(builder: Builder) -> UnitValue:
    """Interleave the codes of both, and use one instruction for the sum of two products."""
    both = _interleave(builder, builder.input("a"), builder.input("b"))
    wide = _interleave(builder, both, builder.constant(both.type, 0))
    kind = VecType("s", 16, both.type.lanes // 2)
    out = VecType("s", 32, kind.lanes // 2)
    low, high = (builder.constant(both.type, *mask * out.lanes).as_type(kind) for mask in _MASKS)
    parts = [builder.bitwise(roles.AND, builder.input(n), mask) for n, mask in (("f", low), ("g", high))]
    return builder.map(PAIR_PRODUCTS, wide.as_type(kind), builder.bitwise(roles.OR, *parts), out=out)


def _sum_each(builder: Builder) -> UnitValue:
    """Widen codes to 16 bits, and multiply half a register at a time."""
    registers = list[Value]()
    a, b = (widen(builder, builder.input(name)) for name in "ab")
    for one, other in zip(a.registers, b.registers, strict=True):
        for start in (0, a.type.lanes // 2):
            registers.append(_multiply_half(builder, UnitValue(a.type, (one,)), UnitValue(b.type, (other,)), start))
    return UnitValue(VecType("s", 32, a.type.lanes // 2), tuple(registers))


def _sum_words(builder: Builder) -> UnitValue:
    """Widen codes to 32 bits, and multiply these."""
    a, b = (widen(builder, widen(builder, builder.input(name))) for name in "ab")
    product = builder.map(MULTIPLY, a, builder.input("f"))
    try:
        return builder.map(MULTIPLY_ADD, product, b, builder.input("g"))
    except NoKernel:
        return builder.map(roles.ADD, product, builder.map(MULTIPLY, b, builder.input("g")))


def widen(builder: Builder, x: UnitValue) -> UnitValue:
    """Widen lanes to twice their bits, from halves of registers or by interleaving with zeros."""
    kind = VecType("s", 2 * x.type.bits, x.type.lanes // 2)
    try:
        parts = [builder.map(_half("zext(a[i{0}], out)", start), x, out=kind) for start in (0, kind.lanes)]
    except NoKernel:
        return _interleave(builder, x, builder.constant(x.type, 0)).as_type(kind)
    return UnitValue(kind, tuple(name for both in zip(*(p.registers for p in parts), strict=True) for name in both))


def _multiply_half(builder: Builder, a: UnitValue, b: UnitValue, start: int) -> Value:
    out = VecType("s", 32, a.type.lanes // 2)
    f, g = builder.input("f"), builder.input("g")
    first = builder.map(_half("sext(a[i{0}], 32) * sext(b[i{0}], 32)", start), a, f, out=out)
    more = "a[i] + sext(b[i{0}], 32) * sext(c[i{0}], 32)"
    return builder.map(_half(more, start), first, b, g, out=out).registers[0]


def _half(text: str, start: int) -> str:
    return text.format(f" + {start}" if start else "")


def _round_to_codes(builder: Builder, p: UnitValue) -> UnitValue:
    """Add k, shift with rounding, narrow, add the zero point, and clamp."""
    p = builder.map(roles.ADD, p, builder.input("k"))
    if any(x.name == "e" for x in builder.spec.inputs):
        bit = builder.bitwise(roles.AND, shift(builder, p, "n"), builder.constant(p.type, 1))
        p = builder.map(roles.ADD, builder.map(roles.ADD, p, builder.input("e")), bit)
    x = builder.narrow(shift(builder, p, "n"))
    if any(one.name == "z" for one in builder.spec.inputs):
        x = builder.map(ADD_SATURATED, x, builder.input("z"))
    codes = builder.narrow(x, signed=False).as_type(builder.isa.word)
    return builder.map(MIN_UNSIGNED, codes, builder.input("h"))


def shift(builder: Builder, x: UnitValue, name: str) -> UnitValue:
    """Shift lanes of 32 bits to the right by the input `name`."""
    by = builder.input(name)
    try:
        return builder.map(SHIFTED_RIGHT, x, by)
    except NoKernel:
        less = builder.map(roles.SUB, builder.constant(by.type, 0), by)
        return builder.map(SHIFTED_LEFT, x, less)


def means(isa: Isa, spec: ElementwiseSpec) -> Iterator[ElementwiseProgram]:
    """Yield the program for `spec.glue.mean`, if `isa` has the forms."""
    builder = Builder(isa, spec, isa.word.lanes)
    try:
        codes = in_order(builder, narrow_to_bytes(builder, _quotients(builder)))
        program = builder.finish(builder.map(MIN_UNSIGNED, codes, builder.input("h")))
    except NoKernel:
        return
    yield msgspec.structs.replace(program, orders=find_unmoved(spec, program.unit))


def _quotients(builder: Builder) -> UnitValue:
    """Divide accumulators: the high half of their product with a reciprocal, shifted."""
    sums = builder.input("s")
    number = builder.map(roles.ADD, builder.map(roles.SHIFT_LEFT.format(1), sums), builder.input("c"))
    high = _high_products(builder, number, builder.input("m"))
    if not any(x.name == "d" for x in builder.spec.inputs):
        return shift(builder, high, "t")
    # The quotient is multiplied back, so it must be the very shift that the spec has, not a left shift by less.
    return _round_ties_to_even(builder, number, builder.map(SHIFTED_RIGHT, high, builder.input("t")))


def narrow_to_bytes(builder: Builder, x: UnitValue) -> UnitValue:
    """Narrow lanes of 32 bits to bytes, with saturation."""
    return builder.narrow(builder.narrow(x), signed=False).as_type(builder.isa.word)


def _high_products(builder: Builder, a: UnitValue, b: UnitValue) -> UnitValue:
    """Return the high halves of products of 32-bit lanes."""
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


def _round_ties_to_even(builder: Builder, number: UnitValue, quotient: UnitValue) -> UnitValue:
    """Subtract 1 from odd quotients where the divisor divides the number."""
    one = builder.constant(number.type, 1)
    back = builder.map(MULTIPLY, quotient.as_type(number.type), builder.input("d"))
    uneven = builder.map(MIN_UNSIGNED, builder.bitwise(roles.XOR, back, number), one)
    tied = builder.bitwise(roles.XOR, uneven, one)
    odd = builder.bitwise(roles.XOR, quotient.as_type(number.type), builder.input("w"))
    return builder.map(roles.SUB, quotient.as_type(number.type), builder.bitwise(roles.AND, odd, tied))


def in_order(builder: Builder, codes: UnitValue) -> UnitValue:
    """Bring narrowed codes, which stay together in fours, to the order of the 32-bit lanes before narrowing."""
    return _permute_fours(builder, codes, _fours(builder))


def out_of_order(builder: Builder, codes: UnitValue) -> UnitValue:
    """Permute codes so that widening gives 32-bit lanes in order: the inverse of `in_order`."""
    fours = _fours(builder)
    return _permute_fours(builder, codes, [fours.index(n) for n in range(len(fours))])


def _fours(builder: Builder) -> list[int]:
    """Return which group of four each group of narrowed bytes was."""
    alone = Builder(builder.isa, _PASSED, builder.unit)
    codes = narrow_to_bytes(alone, alone.input("s"))
    order = read_off(alone.finish(codes), codes).order
    return [order[p] // 4 for p in range(0, len(order), 4)]


def _permute_fours(builder: Builder, codes: UnitValue, places: list[int]) -> UnitValue:
    if places == sorted(places):
        return codes
    kind = VecType("u", _WORD, codes.type.total_bits // _WORD)
    return builder.map(roles.PERMUTED, codes.as_type(kind), builder.constant(kind, *places)).as_type(codes.type)


def conversions(isa: Isa, spec: ElementwiseSpec) -> Iterator[ElementwiseProgram]:
    """Yield the program for `spec.glue.quantized`, `signs` or `dequantized`, if `isa` has the forms."""
    builder = Builder(isa, spec, isa.word.lanes)
    try:
        program = builder.finish(_CONVERSIONS[spec.kind](builder))
    except NoKernel:
        return
    yield msgspec.structs.replace(program, orders=find_unmoved(spec, program.unit))


def _quantize(builder: Builder) -> UnitValue:
    quotient = builder.map(_QUOTIENT, builder.input("x"), builder.input("m"))
    least = builder.map(GREATER[0], quotient, builder.input("l"))
    most = builder.map(LESSER[0], least, builder.input("h"))
    whole = builder.map(NEAREST_BELOW, most, out=VecType("s", most.type.bits, most.type.lanes))
    code = builder.map(roles.ADD, whole, builder.input("z"))
    return in_order(
        builder, narrow_to_bytes(builder, builder.bitwise(roles.AND, code, builder.constant(code.type, _BYTE)))
    )


def _dequantize(builder: Builder) -> UnitValue:
    wide = widen(builder, widen(builder, out_of_order(builder, builder.input("a"))))
    number = builder.map(roles.ADD, builder.map(MULTIPLY, wide, builder.input("f")), builder.input("k"))
    real = builder.map(FLOAT, number, out=VecType("u", number.type.bits, number.type.lanes))
    return builder.map(TIMES[0], real, builder.input("m"))


def _signs(builder: Builder) -> UnitValue:
    """Compute signs by integer arithmetic on bits: x is below a bound if x minus the bound is negative."""
    x, quotient = builder.input("x"), builder.map(_QUOTIENT, builder.input("x"), builder.input("m"))
    magnitude = builder.bitwise(roles.AND, x, builder.constant(x.type, _MAGNITUDE))
    is_number = builder.map(roles.ADD, magnitude, builder.constant(x.type, -INFINITY - 1))
    # Bits of numbers below 0, from the least after -0 to -infinity: from 0 to infinity's less 1.
    below = builder.map(roles.ADD, quotient, builder.constant(x.type, _MAGNITUDE))
    within = builder.map(roles.ADD, below, builder.constant(x.type, -INFINITY))
    every = builder.constant(x.type, -1)
    not_below = builder.bitwise(roles.OR, below, builder.bitwise(roles.XOR, within, every))
    both = builder.bitwise(roles.AND, is_number, not_below)
    return in_order(builder, narrow_to_bytes(builder, builder.map(roles.SHIFT_RIGHT.format(x.type.bits - 1), both)))


_CONVERSIONS = {SpecKind.QUANTIZE: _quantize, SpecKind.SIGNS: _signs, SpecKind.DEQUANTIZE: _dequantize}

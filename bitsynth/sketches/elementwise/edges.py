"""Sketches of a network's edges: quotients of floats as codes, codes as products of floats, in their order."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from bitsynth.errors import NoKernel
from bitsynth.isa.floats import INFINITY
from bitsynth.isa.load import Isa
from bitsynth.isa.types import VecType
from bitsynth.kernel.elementwise.constants import unmoved
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.sketches.elementwise import roles
from bitsynth.sketches.elementwise.averaging import in_order, narrowed, out_of_order
from bitsynth.sketches.elementwise.builder import Builder, UnitValue
from bitsynth.sketches.elementwise.rescaling import FLOAT, GREATER, LESSER, MULTIPLY, NEAREST_BELOW, TIMES
from bitsynth.sketches.elementwise.weighting import widened
from bitsynth.spec.elementwise import ElementwiseSpec

_QUOTIENT = "fdiv(a[i], b[i])"
_BYTE, _MAGNITUDE = 0xFF, 0x7FFF_FFFF


def alternatives(isa: Isa, spec: ElementwiseSpec) -> Iterator[ElementwiseProgram]:
    """Programs for `spec.glue.quantized`, `signs` and `dequantized`, if `isa` has the instructions."""
    builder = Builder(isa, spec, isa.word.lanes)
    try:
        made = builder.finish(_RESULTS[spec.name](builder))
    except NoKernel:
        return
    yield msgspec.structs.replace(made, orders=unmoved(spec, made.unit))


def _quantized(builder: Builder) -> UnitValue:
    quotient = builder.map(_QUOTIENT, builder.input("x"), builder.input("m"))
    least = builder.map(GREATER[0], quotient, builder.input("l"))
    most = builder.map(LESSER[0], least, builder.input("h"))
    whole = builder.map(NEAREST_BELOW, most, out=VecType("s", most.type.bits, most.type.lanes))
    code = builder.map(roles.ADD, whole, builder.input("z"))
    return in_order(builder, narrowed(builder, builder.bitwise(roles.AND, code, builder.constant(code.type, _BYTE))))


def _dequantized(builder: Builder) -> UnitValue:
    wide = widened(builder, widened(builder, out_of_order(builder, builder.input("a"))))
    number = builder.map(roles.ADD, builder.map(MULTIPLY, wide, builder.input("f")), builder.input("k"))
    real = builder.map(FLOAT, number, out=VecType("u", number.type.bits, number.type.lanes))
    return builder.map(TIMES[0], real, builder.input("m"))


def _signs(builder: Builder) -> UnitValue:
    """By bits of integers: of what is below a bound and not negative, the bound less is negative."""
    x, quotient = builder.input("x"), builder.map(_QUOTIENT, builder.input("x"), builder.input("m"))
    magnitude = builder.bitwise(roles.AND, x, builder.constant(x.type, _MAGNITUDE))
    is_number = builder.map(roles.ADD, magnitude, builder.constant(x.type, -INFINITY - 1))
    # Bits of numbers below 0, from the least after -0 to -infinity: from 0 to infinity's less 1.
    below = builder.map(roles.ADD, quotient, builder.constant(x.type, _MAGNITUDE))
    within = builder.map(roles.ADD, below, builder.constant(x.type, -INFINITY))
    every = builder.constant(x.type, -1)
    kept = builder.bitwise(roles.OR, below, builder.bitwise(roles.XOR, within, every))
    both = builder.bitwise(roles.AND, is_number, kept)
    return in_order(builder, narrowed(builder, builder.map(roles.SHIFT_RIGHT.format(x.type.bits - 1), both)))


_RESULTS = {"quantize_floats": _quantized, "signs": _signs, "dequantize_codes": _dequantized}
"""What makes the results of a spec, by its name."""

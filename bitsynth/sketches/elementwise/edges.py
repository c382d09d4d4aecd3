"""Sketches of a network's edges: quotients of floats as codes, codes as products of floats, in their order."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from bitsynth.errors import NoKernel
from bitsynth.isa.load import Isa
from bitsynth.isa.types import VecType
from bitsynth.kernel.element_constants import unmoved
from bitsynth.kernel.elementwise import ElementwiseProgram
from bitsynth.sketches.elementwise import roles
from bitsynth.sketches.elementwise.averaging import in_order, narrowed, out_of_order
from bitsynth.sketches.elementwise.builder import Builder, UnitValue
from bitsynth.sketches.elementwise.rescaling import FLOAT, GREATER, LESSER, MULTIPLY, NEAREST_BELOW, TIMES
from bitsynth.sketches.elementwise.weighting import widened
from bitsynth.spec.elementwise import ElementwiseSpec

_QUOTIENT = "fdiv(a[i], b[i])"
_BYTE = 0xFF


def alternatives(isa: Isa, spec: ElementwiseSpec) -> Iterator[ElementwiseProgram]:
    """Programs for `spec.glue.quantized` and `spec.glue.dequantized`, if `isa` has the instructions."""
    builder = Builder(isa, spec, isa.word.lanes)
    try:
        made = builder.finish(_quantized(builder) if spec.out == "u8" else _dequantized(builder))
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

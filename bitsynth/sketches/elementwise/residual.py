"""Sketches of residuals: elements are widened to the lanes of accumulators, in order, and added."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bitsynth.errors import NoKernel
from bitsynth.isa.load import Isa
from bitsynth.isa.types import VecType
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.sketches.elementwise import roles
from bitsynth.sketches.elementwise.builder import Builder, UnitValue, read_off
from bitsynth.sketches.elementwise.rescaling import FLOAT, MULTIPLY, MULTIPLY_ADD, PLUS, TIMES, ScalingPlan
from bitsynth.spec.elementwise import ElementwiseSpec

UNIT = 16
LANE = 32
LOW, HIGH = "a[i]", "a[i + lanes // 2]"
"""Half a register."""


def alternatives(isa: Isa, spec: ElementwiseSpec) -> Iterator[ElementwiseProgram]:
    """Yield programs for a spec of `spec.residual` that adds."""
    plan = ScalingPlan(Builder(isa, spec, UNIT))
    try:
        results = _scale_sum(plan) if plan.has("m") else _add_element(plan)
        yield read_off(plan.builder.finish(results), results)
    except NoKernel:
        return


def _add_element(plan: ScalingPlan) -> UnitValue:
    builder = plan.builder
    value = builder.map(roles.ADD, builder.input("s"), builder.input("c"))
    element = _widen_to_32(builder, builder.input("e"))
    if not plan.has("f"):
        return builder.map(roles.ADD, value, element)
    factor = builder.input("f")
    try:
        return builder.map(MULTIPLY_ADD, value, element, factor)
    except NoKernel:
        return builder.map(roles.ADD, value, builder.map(MULTIPLY, element, factor))


def _scale_sum(plan: ScalingPlan) -> UnitValue:
    builder = plan.builder
    element = builder.input("e")
    if builder.spec.inputs[1].type != "u32":
        element = _widen_to_32(builder, element)
        if plan.has("z"):
            element = builder.map(roles.SUB, element, builder.input("z"))
        element = builder.map(FLOAT, element, out=replace(element.type, sign="u"))
    return plan.one_of(PLUS, plan.scale(), plan.one_of(TIMES, element, builder.input("f")))


def _widen_to_32(builder: Builder, x: UnitValue) -> UnitValue:
    """Return lanes of 32 bits."""
    kind = x.type
    if kind.bits == LANE:
        return x
    extended = f"{'s' if kind.sign == 's' else 'z'}ext({{}}, out)"
    try:
        return builder.map(extended.format(LOW), x, out=replace(kind, bits=LANE))
    except NoKernel:
        return _widen_to_32(builder, _double_width(builder, x, extended))


def _double_width(builder: Builder, x: UnitValue, extended: str) -> UnitValue:
    """Widen lanes to twice their bits: of half a register, of both halves, or of lanes taken apart."""
    kind = x.type
    if kind.total_bits < builder.isa.table.vector_bits:
        return builder.map(extended.format(LOW), x, out=replace(kind, bits=2 * kind.bits))
    wide = VecType(kind.sign, 2 * kind.bits, kind.lanes // 2)
    try:
        parts = [builder.map(extended.format(part), x, out=wide) for part in (LOW, HIGH)]
    except NoKernel:
        half = replace(kind, lanes=kind.lanes // 2)
        halves = (builder.map(part, x, out=half) for part in (LOW, HIGH))
        parts = [builder.map(extended.format(LOW), one, out=wide) for one in halves]
    return UnitValue(wide, tuple(name for pair in zip(*(p.registers for p in parts), strict=True) for name in pair))

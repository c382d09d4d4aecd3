"""Alternatives of programs that count any number of thresholds, one a turn of a loop.

A turn compares the sum with one threshold and adds the truth to a byte of each element; words are made of the bytes
after the last turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from itertools import product

from bitsynth.errors import NoKernel
from bitsynth.isa.load import Isa
from bitsynth.isa.types import VecType
from bitsynth.kernel.elementwise.program import ElementwiseProgram, shape
from bitsynth.sketches.elementwise import roles
from bitsynth.sketches.elementwise.builder import Builder, UnitValue
from bitsynth.sketches.elementwise.plan import Plan
from bitsynth.spec.elementwise import WORD_BITS, ElementInput, ElementwiseSpec


def alternatives(isa: Isa, spec: ElementwiseSpec) -> Iterator[ElementwiseProgram]:
    """Programs with a loop for a spec of `spec.elementwise.thresholds`, as many as `isa` has instructions for."""
    unit = WORD_BITS if spec.out == "words" else isa.word.lanes
    finishes = (_tested, _signs, _gathered) if spec.out == "words" else (_as_they_are,)
    for turn, finish in product((_kept, _subtracted), finishes):
        try:
            plan = Plan(Builder(isa, spec, unit))
            kind, count = shape(isa, ElementInput("x", "u8"), unit)
            counts = UnitValue(kind, tuple(f"x0_{n}" for n in range(count)))
            loop = plan.builder.finish_loop(turn(plan, counts))
            yield plan.builder.finish(finish(plan, counts), loop)
        except NoKernel:
            continue


def _kept(plan: Plan, counts: UnitValue) -> UnitValue:
    """Ones added where a mask register says so."""
    masks = plan.joined(plan.masks(plan.sum(), plan.levels[0]), counts.type.lanes)
    return plan.builder.map(roles.ADD_KEPT, counts, masks, plan.builder.constant(counts.type, 1))


def _subtracted(plan: Plan, counts: UnitValue) -> UnitValue:
    """Lanes of all ones, which are -1, taken away."""
    truths = plan.narrowed(plan.truths(plan.sum(), plan.levels[0]), counts.type.bits)
    return plan.builder.map(roles.SUB, counts, truths.as_type(counts.type))


def _as_they_are(_: Plan, counts: UnitValue) -> UnitValue:
    return counts


def _tested(plan: Plan, counts: UnitValue) -> UnitValue:
    """Each plane a test of its bit."""
    masks = VecType("u", counts.type.lanes, 1)
    bits = [plan.builder.constant(counts.type, 1 << j) for j in range(plan.planes)]
    return plan.stored([plan.builder.map(roles.TESTED, counts, bit, out=masks) for bit in bits])


def _signs(plan: Plan, counts: UnitValue) -> UnitValue:
    """Each plane the signs of bytes, its bit shifted there."""
    pairs = counts.as_type(VecType("u", 16, counts.type.lanes // 2))
    top = counts.type.bits - 1
    shifted = [
        plan.builder.map(roles.SHIFT_LEFT.format(top - j), pairs) if j + 1 < counts.type.bits else pairs
        for j in range(plan.planes)
    ]
    return plan.signs([x.as_type(counts.type) for x in shifted])


def _gathered(plan: Plan, counts: UnitValue) -> UnitValue:
    """Each plane its bits, shifted in from the registers one by one, then the high bytes' behind the low ones'."""
    builder, kind, half = plan.builder, counts.type, counts.type.bits // 2
    if len(counts.registers) != half:
        raise NoKernel("registers do not make up half the bits of a byte")
    pairs, words = VecType("u", 2 * kind.bits, kind.lanes // 2), []

    def shifted_in(bits: UnitValue, more: UnitValue) -> UnitValue:
        return builder.map(roles.SHIFTED_IN, more, bits)

    for j in range(plan.planes):
        bits = builder.map(roles.SHIFT_RIGHT.format(j), counts) if j else counts
        joined = reduce(shifted_in, (replace(bits, registers=(name,)) for name in bits.registers))
        low = builder.bitwise(roles.AND, joined, builder.constant(kind, (1 << half) - 1)).as_type(pairs)
        both = builder.bitwise(roles.OR, low, builder.map(roles.SHIFT_RIGHT.format(half), low))
        words.append(builder.map(roles.LOW_HALF, both, out=VecType("u", kind.bits, pairs.lanes)))
    return plan.stored(words)

"""Sketches of requantization: an accumulator is scaled, by floats or by integers, rounded, and clamped to codes.

`ScalingPlan` writes the parts of such a program, each by the first role that the instruction set has a form for. For
`rescale` to bytes, in AVX2's words:

    v = float_of(s)              cvtdq2ps
    v = v * m + b                mulps, addps
    x = nearest(v)               minps (below 2**31), cvtps2dq
    x = narrowed, + z            packssdw (saturates to 16 bits), paddsw
    code = narrowed, clamped     packuswb, pmaxub, pminub

Saturation does most of the clamping: a number beyond 16 bits is beyond every code. Where no instruction rounds to even,
a number so great is added that the sum is rounded to units.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bitsynth.errors import NoKernel, SpecError
from bitsynth.isa.floats import ONE, ROUND_TO_UNITS
from bitsynth.isa.load import Isa
from bitsynth.isa.types import VecType
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.sketches.elementwise import roles
from bitsynth.sketches.elementwise.builder import Builder, UnitValue, read_off
from bitsynth.spec.elementwise import WORD_BITS, ElementwiseSpec, SpecKind
from bitsynth.spec.rescaling import FIXED_SHIFT, MULTIPLIER_SHIFT, SMALL_FLOAT, assumes_small

ADD_SATURATED = "sclamp(sext(a[i], 32) + sext(b[i], 32), bits)"
MULTIPLY, MULTIPLY_ADD = "a[i] * b[i]", "a[i] + b[i] * c[i]"
SIGNS_OF_LANES = "asr(a[i], bits - 1)"
"""-1 for negative numbers, 0 for others."""
SHIFTED_RIGHT = "asr(a[i], b[i])"
SHIFTED_LEFT = "ite(slt(trunc(b[i], 8), 0), asr(a[i], ~trunc(b[i], 8) + 1), lsl(a[i], trunc(b[i], 8)))"
"""As on Arm: a negative number shifts to the right."""
SHIFTED_LOGICALLY = "lsr(a[i], b[i])"
EVEN_PRODUCTS = "sext(a[2*i], 64) * sext(b[2*i], 64)"
LOW_PRODUCTS, HIGH_PRODUCTS = (f"sext(a[i{k}], 64) * sext(b[i{k}], 64)" for k in ("", " + lanes // 2"))
ODD_BY_TWO = "concat(a, b)[i % 4 // 2 * lanes + i // 4 * 4 + i % 2 * 2 + 1]"
ODD = "concat(a, b)[2*i + 1]"
FLOAT = "float_of(a[i])"
TIMES = ("fmul(a[i], b[i])", "fmul_flushed(a[i], b[i])")
PLUS = ("fadd(a[i], b[i])", "flushed(fadd(flushed(a[i]), flushed(b[i])))")
LESSER = ("ite(flt(a[i], b[i]), a[i], b[i])", "fmin(a[i], b[i])", "fmin(flushed(a[i]), flushed(b[i]))")
GREATER = ("ite(flt(b[i], a[i]), a[i], b[i])", "fmax(a[i], b[i])", "fmax(flushed(a[i]), flushed(b[i]))")
NEAREST, NEAREST_BELOW = "nearest(a[i])", "ite(flt(a[i], 0x4f000000), nearest(a[i]), 1 << 31)"
MIN_UNSIGNED, MAX_UNSIGNED = "ite(ult(a[i], b[i]), a[i], b[i])", "ite(ult(a[i], b[i]), b[i], a[i])"
TESTED = "join(~bit(eq(a[j] & b[j], 0)) for j in range(lanes))"
_ROUNDABLE_MIN, _ROUNDABLE_MAX = 0xCA80_0000, 0x4A80_0000
"""-2**22 and 2**22 as float32: between them adding ROUND_TO_UNITS is exact but for that rounding."""


def alternatives(isa: Isa, spec: ElementwiseSpec) -> Iterator[ElementwiseProgram]:
    """Yield the program for a spec that brings an accumulator to codes or floats; none if the set lacks a form."""
    unit = WORD_BITS if spec.out == "words" else isa.word.lanes
    plan = ScalingPlan(Builder(isa, spec, unit))
    try:
        codes = plan.codes()
        results = plan.words(codes) if spec.out == "words" else codes
        yield read_off(plan.builder.finish(results), codes)
    except NoKernel:
        return


@dataclass
class ScalingPlan:
    """Writes the parts of programs: values, products, codes."""

    builder: Builder

    def codes(self) -> UnitValue:
        """Write the results of the spec: codes, or float32 for SCALE."""
        match self.builder.spec.kind:
            case SpecKind.SCALE:
                return self.scale()
            case SpecKind.RESCALE:
                return self.narrow_to_codes(self.round(self.scale()))
            case SpecKind.GATED:
                return self.narrow_to_codes(self.round(self.gate()))
            case SpecKind.ROUNDED:
                return self.narrow_to_codes(self.round(self.builder.input("v")))
            case SpecKind.FIXED:
                return self.compute_fixed_point()
            case SpecKind.REQUANTIZE | SpecKind.MULTIPLY_SHIFT:
                return self.narrow_to_codes(self.multiply_and_shift())
            case kind:
                raise SpecError(f"{self.builder.spec.name}: {kind} is not rescaled")

    def multiply_and_shift(self) -> UnitValue:
        """Return the value times m, shifted, with what the kind adds before; NoKernel for sums of 64 bits."""
        is_wide = any(x.name in "ku" and x.lane.bits == 64 for x in self.builder.spec.inputs)
        if self.builder.spec.kind == SpecKind.REQUANTIZE:
            return self.wide_product() if is_wide else self.product()
        if is_wide:
            raise NoKernel("no program adds quotients in 64 bits")
        return self.round_twice()

    def has(self, name: str) -> bool:
        """Return whether the spec has this input."""
        return any(x.name == name for x in self.builder.spec.inputs)

    def one_of(self, meanings: tuple[str, ...], *values: UnitValue, out: VecType | None = None) -> UnitValue:
        """Apply the first of these roles that a form fills; NoKernel if none does."""
        for meaning in meanings[:-1]:
            try:
                return self.builder.map(meaning, *values, out=out)
            except NoKernel:
                continue
        return self.builder.map(meanings[-1], *values, out=out)

    def value(self) -> UnitValue:
        """Return the accumulator plus the terms of its row and its column."""
        value = self.builder.input("s")
        for name in "rc":
            if self.has(name):
                value = self.builder.map(roles.ADD, value, self.builder.input(name))
        return value

    def scale(self) -> UnitValue:
        """Return the value as float32, times m, plus b."""
        value = self.value()
        number = self.builder.map(FLOAT, value, out=VecType("u", value.type.bits, value.type.lanes))
        product = self.one_of(TIMES, number, self.builder.input("m"))
        return self.one_of(PLUS, product, self.builder.input("b")) if self.has("b") else product

    def gate(self) -> UnitValue:
        """Return the scaled value times its gate, which is clamped to 0 .. 1 as the signed number that its bits are."""
        value, constant = self.scale(), self.builder.constant
        gate = self.one_of(PLUS, self.one_of(TIMES, value, self.builder.input("g")), self.builder.input("a"))
        kind = VecType("s", value.type.bits, value.type.lanes)
        from_0 = self.builder.map(roles.MAX, gate.as_type(kind), constant(kind, 0))
        open_gate = self.builder.map(roles.MIN, from_0, constant(kind, ONE)).as_type(value.type)
        return self.one_of(TIMES, value, open_gate)

    def round(self, x: UnitValue) -> UnitValue:
        """Round to the nearest integers; a number beyond 16 bits may become another one beyond."""
        kind, constant = VecType("s", x.type.bits, x.type.lanes), self.builder.constant
        try:
            return self.builder.map(NEAREST, x, out=kind)
        except NoKernel:
            converts = self._converts(x, kind)
            if not (converts and assumes_small(self.builder.spec)):
                most = SMALL_FLOAT if converts else _ROUNDABLE_MAX
                x = self.one_of(LESSER, x, constant(x.type, most))
        if self._converts(x, kind):
            return self.builder.map(NEAREST_BELOW, x, out=kind)
        x = self.one_of(GREATER, x, constant(x.type, _ROUNDABLE_MIN))
        x = self.one_of(PLUS, x, constant(x.type, ROUND_TO_UNITS)).as_type(kind)
        return self.builder.map(roles.SUB, x, constant(kind, ROUND_TO_UNITS))

    def _converts(self, x: UnitValue, kind: VecType) -> bool:
        """Return whether the set has an instruction that converts to the nearest integer."""
        try:
            return bool(roles.role(self.builder.isa, NEAREST_BELOW, kind, x.type))
        except NoKernel:
            return False

    def narrow_to_codes(self, x: UnitValue) -> UnitValue:
        """Narrow signed 32-bit numbers, add the zero point, and clamp: codes of 8 or 16 bits."""
        x = self.builder.narrow(x)
        if self.has("z"):
            x = self.builder.map(ADD_SATURATED, x, self.builder.input("z"))
        if not self.has("l"):
            if self.builder.spec.out == "s8":
                return self.builder.narrow(x)
            return self.builder.narrow(x, signed=False).as_type(self.builder.isa.word)
        low = self.builder.input("l")
        if low.type.bits == x.type.bits:
            return self.clamp(x, roles.MAX, roles.MIN)
        if low.type.sign == "s":
            return self.clamp(self.builder.narrow(x), roles.MAX, roles.MIN)
        codes = self.builder.narrow(x, signed=False).as_type(self.builder.isa.word)
        return self.clamp(codes, MAX_UNSIGNED, MIN_UNSIGNED)

    def clamp(self, x: UnitValue, greater: str, lesser: str) -> UnitValue:
        """Clamp codes to l .. h."""
        x = self.builder.map(greater, x, self.builder.input("l"))
        return self.builder.map(lesser, x, self.builder.input("h"))

    def words(self, codes: UnitValue) -> UnitValue:
        """Return the bit planes of codes, one after the other."""
        planes = [self.plane(codes, j) for j in range(self.builder.spec.planes)]
        return UnitValue(planes[0].type, tuple(name for plane in planes for name in plane.registers))

    def plane(self, codes: UnitValue, j: int) -> UnitValue:
        """Gather bit j of bytes."""
        kind = VecType("u", codes.type.lanes, 1)
        try:
            return self.builder.map(TESTED, codes, self.builder.constant(codes.type, 1 << j), out=kind)
        except NoKernel:
            halves = codes.as_type(VecType("u", 16, codes.type.lanes // 2))
            moved = halves if j == 7 else self.builder.map(roles.SHIFT_LEFT.format(7 - j), halves)
            return self.builder.map(roles.SIGNS, moved.as_type(codes.type), out=kind)

    def shift(self, x: UnitValue) -> UnitValue:
        """Shift signed lanes of 32 bits to the right by n."""
        by = self.builder.input("n")
        try:
            return self.builder.map(SHIFTED_RIGHT, x, by)
        except NoKernel:
            less = self.builder.map(roles.SUB, self.builder.constant(by.type, 0), by)
            return self.builder.map(SHIFTED_LEFT, x, less)

    def shift_wide(self, x: UnitValue) -> UnitValue:
        """Shift lanes of 64 bits to the right by 32 + n; the bits shifted in are unspecified."""
        n, constant = self.builder.input("n"), self.builder.constant
        try:
            less = self.builder.map(roles.SUB, constant(n.type, -32), n)
            return self.builder.map(SHIFTED_LEFT, x, less.as_type(x.type))
        except NoKernel:
            by = self.builder.map(roles.SHIFT_RIGHT.format(32), n.as_type(x.type))
            by = self.builder.map(roles.ADD, by, constant(x.type, 32))
            return self.builder.map(SHIFTED_LOGICALLY, x, by)

    def rounding(self, p: UnitValue, shifted: UnitValue, part: slice) -> UnitValue:
        """Return p plus the addends that make the shift round half to even."""
        words = VecType("u", 32, p.type.total_bits // 32)
        one = self.builder.constant(words, *([1, 0] * (words.lanes // 2) if p.type.bits == 64 else [1]))
        bit = self.builder.bitwise(roles.AND, shifted, one)
        half = self.builder.input("g")
        more = self.builder.map(roles.ADD, p, UnitValue(half.type, half.registers[part]))
        return self.builder.map(roles.ADD, more, bit)

    def product(self) -> UnitValue:
        """Return the value times m, plus k, in 32 bits, rounded and shifted."""
        p = self._product_of(self.value(), "m", "k")
        return self.shift(self.rounding(p, self.shift(p), slice(None)) if self.has("g") else p)

    def _product_of(self, value: UnitValue, factor: str, summand: str) -> UnitValue:
        m, k = self.builder.input(factor), self.builder.input(summand)
        try:
            return self.builder.map(MULTIPLY_ADD, k, value, m)
        except NoKernel:
            return self.builder.map(roles.ADD, self.builder.map(MULTIPLY, value, m), k)

    def compute_fixed_point(self) -> UnitValue:
        """Return bytes: the value clamped to a .. b, then multiplied and shifted, once or twice."""
        x = self.builder.map(roles.MAX, self.value(), self.builder.input("a"))
        x = self.builder.map(roles.MIN, x, self.builder.input("b"))
        for names in ("mk", "uv") if self.has("u") else ("mk",):
            x = self.builder.map(f"asr(a[i], {FIXED_SHIFT})", self._product_of(x, *names))
        return self.builder.narrow(self.builder.narrow(x), signed=False).as_type(self.builder.isa.word)

    def wide_product(self) -> UnitValue:
        """Return the low 32 bits of the value times m, plus k, in 64 bits, rounded and shifted."""
        products, highs = self._wide_products()
        parts = [self._with_ends(x, slice(n, None, 2)) for n, x in enumerate(products)]
        return self.shift(self._high_halves(parts, highs))

    def _wide_products(self) -> tuple[tuple[UnitValue, UnitValue], str]:
        """Return the value times m in 64 bits, in two parts, and the role that gathers their high halves."""
        value, m = self.value(), self.builder.input("m")
        wide = VecType("s", 64, value.type.lanes // 2)
        try:
            first = self.builder.map(EVEN_PRODUCTS, value, m, out=wide)
            odd = (self.builder.map(roles.SHIFT_RIGHT.format(32), x.as_type(wide)) for x in (value, m))
            second = self.builder.map(EVEN_PRODUCTS, *(x.as_type(value.type) for x in odd), out=wide)
            return (first, second), ODD_BY_TWO
        except NoKernel:
            first, second = (self.builder.map(t, value, m, out=wide) for t in (LOW_PRODUCTS, HIGH_PRODUCTS))
            return (first, second), ODD

    def _high_halves(self, parts: Sequence[UnitValue], highs: str) -> UnitValue:
        """Return the high halves of both parts of a value in 64 bits, in 32 bits."""
        halves = VecType("s", parts[0].type.bits // 2, parts[0].type.lanes * 2)
        return self.builder.map(highs, *(x.as_type(halves) for x in parts))

    def round_twice(self) -> UnitValue:
        """Return the value times m over 2**31, rounded, with its addends, shifted by n."""
        builder, add = self.builder, roles.ADD
        products, highs = self._wide_products()
        half = builder.constant(products[0].type, 1 << (MULTIPLIER_SHIFT - 1))
        raised = [builder.map(add, x, half) for x in products]
        # Doubled, the quotient by 2**31 is the high half.
        quotient = self._high_halves([builder.map(add, x, x) for x in raised], highs)
        less = builder.bitwise(roles.AND, builder.map(SIGNS_OF_LANES, quotient), builder.input("d"))
        return self.shift(builder.map(add, builder.map(add, quotient, builder.input("u")), less))

    def _with_ends(self, product: UnitValue, part: slice) -> UnitValue:
        """Add k, and the addends that round, to half of the products; `part` is their share of those inputs."""
        k = self.builder.input("k")
        p = self.builder.map(roles.ADD, product, UnitValue(k.type, k.registers[part]))
        return self.rounding(p, self.shift_wide(p), part) if self.has("g") else p

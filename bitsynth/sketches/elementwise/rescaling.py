"""Sketches of codes and floats: products of whole registers, narrowed with saturation, then clamped as bytes.

Saturation does most of the clamping: what is beyond 16 bits is beyond every code. Numbers that are rounded are first
brought to where the instruction gives them; sets without one that rounds to even add a number so great that the sum
is rounded to units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bitsynth.errors import NoKernel
from bitsynth.isa.floats import ONE
from bitsynth.isa.load import Isa
from bitsynth.isa.types import VecType
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.sketches.elementwise import roles
from bitsynth.sketches.elementwise.builder import Builder, UnitValue, read_off
from bitsynth.spec.elementwise import WORD_BITS, ElementwiseSpec
from bitsynth.spec.rescaling import FIXED_SHIFT

ADD_SATURATED = "sclamp(sext(a[i], 32) + sext(b[i], 32), bits)"
MULTIPLY, MULTIPLY_ADD = "a[i] * b[i]", "a[i] + b[i] * c[i]"
SHIFTED_RIGHT = "asr(a[i], b[i])"
SHIFTED_LEFT = "ite(slt(trunc(b[i], 8), 0), asr(a[i], ~trunc(b[i], 8) + 1), lsl(a[i], trunc(b[i], 8)))"
"""Arm's: to the right by a negative number."""
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
_GREAT, _UNITS, _LEAST, _MOST = 0x4E80_0000, 0x4B40_0000, 0xCA80_0000, 0x4A80_0000
"""float32: 2**30; 1.5 * 2**23, whose unit in the last place is 1; -2**22 and 2**22."""


def alternatives(isa: Isa, spec: ElementwiseSpec) -> Iterator[ElementwiseProgram]:
    """Programs for a spec of `spec.rescaling`, or that of values that are `rounded`."""
    unit = WORD_BITS if spec.out == "words" else isa.word.lanes
    plan = ScalingPlan(Builder(isa, spec, unit))
    kind = spec.name.partition("_")[0]
    try:
        codes = _PLANS[kind](plan)
        results = plan.words(codes) if spec.out == "words" else codes
        yield read_off(plan.builder.finish(results), codes)
    except NoKernel:
        return


@dataclass
class ScalingPlan:
    """The parts of programs: values, products, codes."""

    builder: Builder

    def has(self, name: str) -> bool:
        """Whether the spec has this input."""
        return any(x.name == name for x in self.builder.spec.inputs)

    def one_of(self, meanings: tuple[str, ...], *values: UnitValue, out: VecType | None = None) -> UnitValue:
        """The first of the roles that some form fills."""
        for meaning in meanings[:-1]:
            try:
                return self.builder.map(meaning, *values, out=out)
            except NoKernel:
                continue
        return self.builder.map(meanings[-1], *values, out=out)

    def value(self) -> UnitValue:
        """The sum, with what its row and its column add."""
        value = self.builder.input("s")
        for name in "rc":
            if self.has(name):
                value = self.builder.map(roles.ADD, value, self.builder.input(name))
        return value

    def scaled(self) -> UnitValue:
        """The float32 value."""
        value = self.value()
        made = self.builder.map(FLOAT, value, out=VecType("u", value.type.bits, value.type.lanes))
        made = self.one_of(TIMES, made, self.builder.input("m"))
        return self.one_of(PLUS, made, self.builder.input("b")) if self.has("b") else made

    def gated(self) -> UnitValue:
        """The float32 value times its gate, whose bits are cut off as signed numbers."""
        value, constant = self.scaled(), self.builder.constant
        gate = self.one_of(PLUS, self.one_of(TIMES, value, self.builder.input("g")), self.builder.input("a"))
        kind = VecType("s", value.type.bits, value.type.lanes)
        from_0 = self.builder.map(roles.MAX, gate.as_type(kind), constant(kind, 0))
        open_gate = self.builder.map(roles.MIN, from_0, constant(kind, ONE)).as_type(value.type)
        return self.one_of(TIMES, value, open_gate)

    def rounded(self, x: UnitValue) -> UnitValue:
        """The nearest signed numbers; of those beyond 16 bits, some that are too."""
        kind, constant = VecType("s", x.type.bits, x.type.lanes), self.builder.constant
        try:
            return self.builder.map(NEAREST, x, out=kind)
        except NoKernel:
            x = self.one_of(LESSER, x, constant(x.type, _GREAT if self._converts(x, kind) else _MOST))
        if self._converts(x, kind):
            return self.builder.map(NEAREST_BELOW, x, out=kind)
        x = self.one_of(GREATER, x, constant(x.type, _LEAST))
        x = self.one_of(PLUS, x, constant(x.type, _UNITS)).as_type(kind)
        return self.builder.map(roles.SUB, x, constant(kind, _UNITS))

    def _converts(self, x: UnitValue, kind: VecType) -> bool:
        try:
            return bool(roles.role(self.builder.isa, NEAREST_BELOW, kind, x.type))
        except NoKernel:
            return False

    def coded(self, x: UnitValue) -> UnitValue:
        """Codes of signed 32-bit numbers: with the zero point, clamped, as bytes or of 16 bits."""
        x = self.builder.narrow(x)
        if self.has("z"):
            x = self.builder.map(ADD_SATURATED, x, self.builder.input("z"))
        low = self.builder.input("l")
        if low.type.bits == x.type.bits:
            return self.clamped(x, roles.MAX, roles.MIN)
        if low.type.sign == "s":
            return self.clamped(self.builder.narrow(x), roles.MAX, roles.MIN)
        codes = self.builder.narrow(x, signed=False).as_type(self.builder.isa.word)
        return self.clamped(codes, MAX_UNSIGNED, MIN_UNSIGNED)

    def clamped(self, x: UnitValue, greater: str, lesser: str) -> UnitValue:
        """Codes between the least and the greatest."""
        x = self.builder.map(greater, x, self.builder.input("l"))
        return self.builder.map(lesser, x, self.builder.input("h"))

    def words(self, codes: UnitValue) -> UnitValue:
        """The planes of bytes, one after the other."""
        planes = [self.plane(codes, j) for j in range(self.builder.spec.planes)]
        return UnitValue(planes[0].type, tuple(name for plane in planes for name in plane.registers))

    def plane(self, codes: UnitValue, j: int) -> UnitValue:
        """Bit j of bytes, gathered."""
        kind = VecType("u", codes.type.lanes, 1)
        try:
            return self.builder.map(TESTED, codes, self.builder.constant(codes.type, 1 << j), out=kind)
        except NoKernel:
            halves = codes.as_type(VecType("u", 16, codes.type.lanes // 2))
            moved = halves if j == 7 else self.builder.map(roles.SHIFT_LEFT.format(7 - j), halves)
            return self.builder.map(roles.SIGNS, moved.as_type(codes.type), out=kind)

    def shifted(self, x: UnitValue) -> UnitValue:
        """Signed lanes of 32 bits, to the right by n."""
        by = self.builder.input("n")
        try:
            return self.builder.map(SHIFTED_RIGHT, x, by)
        except NoKernel:
            less = self.builder.map(roles.SUB, self.builder.constant(by.type, 0), by)
            return self.builder.map(SHIFTED_LEFT, x, less)

    def shifted_wide(self, x: UnitValue) -> UnitValue:
        """Lanes of 64 bits, to the right by 32 + n; what comes in is not said."""
        n, constant = self.builder.input("n"), self.builder.constant
        try:
            less = self.builder.map(roles.SUB, constant(n.type, -32), n)
            return self.builder.map(SHIFTED_LEFT, x, less.as_type(x.type))
        except NoKernel:
            by = self.builder.map(roles.SHIFT_RIGHT.format(32), n.as_type(x.type))
            by = self.builder.map(roles.ADD, by, constant(x.type, 32))
            return self.builder.map(SHIFTED_LOGICALLY, x, by)

    def rounding(self, p: UnitValue, shifted: UnitValue, part: slice) -> UnitValue:
        """p with what rounds it half to even."""
        words = VecType("u", 32, p.type.total_bits // 32)
        one = self.builder.constant(words, *([1, 0] * (words.lanes // 2) if p.type.bits == 64 else [1]))
        bit = self.builder.bitwise(roles.AND, shifted, one)
        half = self.builder.input("g")
        more = self.builder.map(roles.ADD, p, UnitValue(half.type, half.registers[part]))
        return self.builder.map(roles.ADD, more, bit)

    def product(self) -> UnitValue:
        """The shifted product of 32 bits."""
        p = self._product_of(self.value(), "m", "k")
        return self.shifted(self.rounding(p, self.shifted(p), slice(None)) if self.has("g") else p)

    def _product_of(self, value: UnitValue, factor: str, summand: str) -> UnitValue:
        m, k = self.builder.input(factor), self.builder.input(summand)
        try:
            return self.builder.map(MULTIPLY_ADD, k, value, m)
        except NoKernel:
            return self.builder.map(roles.ADD, self.builder.map(MULTIPLY, value, m), k)

    def fixed_point(self) -> UnitValue:
        """Bytes of the value, kept between two, multiplied and shifted, once or twice."""
        x = self.builder.map(roles.MAX, self.value(), self.builder.input("a"))
        x = self.builder.map(roles.MIN, x, self.builder.input("b"))
        for names in ("mk", "uv") if self.has("u") else ("mk",):
            x = self.builder.map(f"asr(a[i], {FIXED_SHIFT})", self._product_of(x, *names))
        return self.builder.narrow(self.builder.narrow(x), signed=False).as_type(self.builder.isa.word)

    def wide_product(self) -> UnitValue:
        """The high half of the shifted product of 64 bits."""
        value, m = self.value(), self.builder.input("m")
        wide = VecType("s", 64, value.type.lanes // 2)
        try:
            one = self.builder.map(EVEN_PRODUCTS, value, m, out=wide)
            odd = (self.builder.map(roles.SHIFT_RIGHT.format(32), x.as_type(wide)) for x in (value, m))
            other, highs = self.builder.map(EVEN_PRODUCTS, *(x.as_type(value.type) for x in odd), out=wide), ODD_BY_TWO
        except NoKernel:
            one, other = (self.builder.map(t, value, m, out=wide) for t in (LOW_PRODUCTS, HIGH_PRODUCTS))
            highs = ODD
        parts = [self._with_ends(x, slice(n, None, 2)) for n, x in enumerate((one, other))]
        return self.shifted(self.builder.map(highs, *(x.as_type(value.type) for x in parts)))

    def _with_ends(self, product: UnitValue, part: slice) -> UnitValue:
        """A half of the products with what is added to them: every other register of those inputs."""
        k = self.builder.input("k")
        p = self.builder.map(roles.ADD, product, UnitValue(k.type, k.registers[part]))
        return self.rounding(p, self.shifted_wide(p), part) if self.has("g") else p


_PLANS: dict[str, Callable[[ScalingPlan], UnitValue]] = {
    "scale": ScalingPlan.scaled,
    "rescale": lambda plan: plan.coded(plan.rounded(plan.scaled())),
    "gated": lambda plan: plan.coded(plan.rounded(plan.gated())),
    "rounded": lambda plan: plan.coded(plan.rounded(plan.builder.input("v"))),
    "requantize32": lambda plan: plan.coded(plan.product()),
    "requantize64": lambda plan: plan.coded(plan.wide_product()),
    "fixed": ScalingPlan.fixed_point,
}

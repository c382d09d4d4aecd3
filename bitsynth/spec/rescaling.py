"""Elementwise specs of requantization: accumulators scaled to codes or floats, by float32 or by integers.

The value of an element is its sum s, plus r of its row and c of its channel where a spec has them; int32 sums wrap.
Codes are clamped to l .. h, which all elements share, after the zero point z is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bitsynth.isa.floats import INFINITY, ONE
from bitsynth.spec.elementwise import ElementInput, ElementwiseSpec

_SUM = ElementInput("s", "s32")
_ROW = ElementInput("r", "s32", "row")
_COLUMN = ElementInput("c", "s32", "channel")
_SCALE, _BIAS = ElementInput("m", "u32", "channel"), ElementInput("b", "u32", "channel")
_MULTIPLIER = ElementInput("m", "s32", "channel")
_ZERO = ElementInput("z", "s16", "all")
FIXED_SHIFT = 23
"""Of products of 32 bits: the greatest that leaves room for a code of 8 bits."""
SMALL_ZERO = "bit(ult(z + 256, 512))"
"""The bit that says that a zero point z is at least -256 and below 256."""


@dataclass(frozen=True)
class CodeForm:
    """The destination of codes: lanes of type `out` (u8, s8 or s16), or words of `planes` bit planes (u8).

    Codes of 16 bits have a zero point only if they are `moved`.
    """

    out: str
    planes: int = 0
    moved: bool = False

    @property
    def name(self) -> str:
        """What specs are called by."""
        return f"words{self.planes}" if self.planes else f"{self.out}{'_moved' if self.moved else ''}"

    @property
    def has_zero(self) -> bool:
        """Whether there is a zero point."""
        return self.moved or self.out != "s16"

    @property
    def extended(self) -> str:
        """The function that widens a code."""
        return f"{'z' if self.out[0] == 'u' else 's'}ext"

    def spec(self, name: str, inputs: tuple[ElementInput, ...], code: str, assumes: Sequence[str]) -> ElementwiseSpec:
        """Return the spec of `code`, in as many bits as the text says."""
        limits = tuple(ElementInput(x, self.out, "all") for x in "lh")
        small = [SMALL_ZERO] if self.out != "s16" else []
        return ElementwiseSpec(
            name=f"{name}_{self.name}",
            inputs=(*inputs, *([_ZERO] if self.has_zero else []), *limits),
            meaning=code,
            out="words" if self.planes else self.out,
            planes=self.planes,
            assumes=(f"~bit(slt({self.extended}(h, 32), {self.extended}(l, 32)))", *small, *assumes),
        )

    def clamped(self, code: str) -> str:
        """Return a number of 64 bits, with the zero point, between the least and the greatest code."""
        low, high = f"{self.extended}(l, 64)", f"{self.extended}(h, 64)"
        code = f"({code} + sext(z, 64))" if self.has_zero else code
        return f"ite(slt({code}, {low}), {low}, ite(slt({high}, {code}), {high}, {code}))"


@dataclass(frozen=True)
class Sum:
    """What is added to a sum: a value of its `row`, one of its `column`."""

    row: bool = False
    column: bool = False

    @property
    def name(self) -> str:
        """What specs are called by."""
        return ("_row" if self.row else "") + ("_column" if self.column else "")

    @property
    def inputs(self) -> tuple[ElementInput, ...]:
        """The sum and what is added."""
        return _SUM, *([_ROW] if self.row else []), *([_COLUMN] if self.column else [])

    @property
    def text(self) -> str:
        """The value."""
        return "(" + " + ".join(x.name for x in self.inputs) + ")"


def _scaled(value: Sum, bias: bool) -> str:
    product = f"fmul(float_of({value.text}), m)"
    return f"fadd({product}, b)" if bias else product


def is_number(text: str) -> str:
    """Return the bit that says that a float32 is a number, infinite or not."""
    return f"bit(ult({text} & 0x7fffffff, {INFINITY + 1}))"


def scale(value: Sum, *, bias: bool) -> ElementwiseSpec:
    """float32: the value converted, times m, plus b if there is a `bias`; each step is rounded."""
    text = _scaled(value, bias)
    inputs = (*value.inputs, _SCALE, *([_BIAS] if bias else []))
    return ElementwiseSpec(
        name=f"scale{'_bias' if bias else ''}{value.name}",
        inputs=inputs,
        meaning=text,
        out="u32",
        assumes=(is_number(text),),
    )


def rescale(value: Sum, codes: CodeForm, *, bias: bool) -> ElementwiseSpec:
    """Return codes of the float32 value * m, plus b if there is a `bias`: rounded half to even, plus z, clamped.

    m and b are finite. The same results from clamping the value to l - z .. h - z before it is rounded, as ONNX has it:
    rounding to nearest is monotone, and keeps whole numbers.
    """
    text = _scaled(value, bias)
    inputs = (*value.inputs, _SCALE, *([_BIAS] if bias else []))
    code = codes.clamped(f"sext(nearest({text}), 64)")
    return codes.spec(f"rescale{'_bias' if bias else ''}{value.name}", inputs, code, [is_number(text)])


def gated(value: Sum, codes: CodeForm) -> ElementwiseSpec:
    """Codes of the float32 v = value * m + b times its gate v * g + a, which is kept between 0 and 1, as `rescale` has.

    A gate that is not a negative number is the greater the more its bits are as a signed number. Hard swish is such.
    """
    scaled = _scaled(value, bias=True)
    gate = f"fadd(fmul({scaled}, g), a)"
    text = f"fmul({scaled}, smin(smax({gate}, 0), {ONE}))"
    shared = ElementInput("g", "u32", "all"), ElementInput("a", "u32", "all")
    code = codes.clamped(f"sext(nearest({text}), 64)")
    assumed = [is_number(gate), is_number(text)]
    return codes.spec(f"gated{value.name}", (*value.inputs, _SCALE, _BIAS, *shared), code, assumed)


def requantize(codes: CodeForm, *, row: bool, wide: bool, even: bool = False) -> ElementwiseSpec:
    """Return codes p >> n plus z, with p the value * m + k, the value s, and r of its row if `row`.

    Products have 32 bits, and wrap; or 64 if they are `wide`, which are shifted by 32 more. Rounded half to `even`,
    g and bit n of p are added to p before it is shifted; else what rounds is in k.
    """
    value, size = Sum(row=row), 64 if wide else 32
    product = f"(sext({value.text}, {size}) * sext(m, {size}) + k)"
    shift = "zext(n, 64) + 32" if wide else "n"
    rounded = f"{product} + g + (lsr({product}, {shift}) & 1)" if even else product
    ends = [ElementInput("k", f"s{size}", "channel"), *([ElementInput("g", f"s{size}", "channel")] if even else [])]
    inputs = (*value.inputs, _MULTIPLIER, *ends, ElementInput("n", "s32", "all"))
    name = f"requantize{size}{'_even' if even else ''}{value.name}"
    code = codes.clamped(f"sext(trunc(asr({rounded}, {shift}), 32), 64)")
    return codes.spec(name, inputs, code, [f"bit(ult(n, {31 if wide else 32}))"])


def fixed_point(value: Sum, *, twice: bool = False) -> ElementwiseSpec:
    """Return bytes of (x * m + k) >> FIXED_SHIFT, with x the value kept from a to b; products wrap.

    Done `twice`, the same is done again with u and v, which all channels share. The result is clamped to a byte.
    """
    code = _shifted(f"smin(smax({value.text}, a), b) * m + k")
    return ElementwiseSpec(
        name=f"fixed{'_twice' if twice else ''}{value.name}_u8",
        inputs=(
            *value.inputs,
            *(ElementInput(x, "s32", "channel") for x in "abmk"),
            *(ElementInput(x, "s32", "all") for x in ("uv" if twice else "")),
        ),
        meaning=f"uclamp({_shifted(f'{code} * u + v') if twice else code}, 8)",
        out="u8",
        assumes=("~bit(slt(b, a))",),
    )


def _shifted(product: str) -> str:
    return f"trunc(sext({product}, 64) >> {FIXED_SHIFT}, 32)"


def requantize_any(codes: CodeForm, *, even: bool = False) -> ElementwiseSpec:
    """Return codes (s * m + g) >> n plus z, of any s, m and n from 0 to 62; g is what rounds, below 2**61.

    Rounded half to `even`, bit n of s * m is added too.
    """
    product = "sext(s, 64) * sext(m, 64)"
    rounded = f"{product} + g + (lsr({product}, zext(n, 64)) & 1)" if even else f"{product} + g"
    shared = ElementInput("g", "s64", "all"), ElementInput("n", "s32", "all")
    code = codes.clamped(f"asr({rounded}, zext(n, 64))")
    name = f"requantize_any{'_even' if even else ''}"
    return codes.spec(name, (_SUM, _MULTIPLIER, *shared), code, ["bit(ult(n, 63))", "bit(ult(g, 1 << 61 | 1))"])

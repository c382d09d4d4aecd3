"""Parts of elementwise specs that bring accumulators to codes: sums, clamped codes, float32 numbers.

The value of an element is its sum s, plus r of its row and c of its channel where a spec has them; int32 sums wrap.
Codes are clamped to l .. h, which all elements share, after the zero point z is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bitsynth.isa.floats import INFINITY
from bitsynth.spec.elementwise import ElementInput, ElementwiseSpec, SpecKind

SUM = ElementInput("s", "s32")
_ROW = ElementInput("r", "s32", "row")
_COLUMN = ElementInput("c", "s32", "channel")
_ZERO = ElementInput("z", "s16", "all")
FIXED_SHIFT = 23
"""Of products of 32 bits: the greatest that leaves room for a code of 8 bits."""
MULTIPLIER_SHIFT = 31
"""Bits of the multipliers of TensorFlow Lite's fixed point: a product is divided by 2**31."""
SMALL_FLOAT = 0x4E80_0000
"""2**30 as float32: conversions to int32 take numbers up to it, and it is beyond every code."""
_BELOW = f" & 0x7fffffff, {SMALL_FLOAT + 1}))"
SMALL_ZERO = "bit(ult(z + 256, 512))"
"""The bit that says that a zero point z is at least -256 and below 256."""


@dataclass(frozen=True)
class CodeForm:
    """The destination of codes: lanes of type `out` (u8, s8 or s16), or words of `planes` bit planes (u8).

    Codes of 16 bits have a zero point only if they are `moved`. `whole` codes have all values of `out`, and no zero
    point: their spec has none of the inputs z, l and h.
    """

    out: str
    planes: int = 0
    moved: bool = False
    whole: bool = False

    @property
    def name(self) -> str:
        """The part of a spec's name that says which terms there are."""
        if self.planes:
            return f"words{self.planes}"
        return f"{'whole_' if self.whole else ''}{self.out}{'_moved' if self.moved else ''}"

    @property
    def has_zero(self) -> bool:
        """Whether there is a zero point."""
        return not self.whole and (self.moved or self.out != "s16")

    @property
    def extended(self) -> str:
        """The function that widens a code."""
        return f"{'z' if self.out[0] == 'u' else 's'}ext"

    def spec(
        self, kind: SpecKind, form: str, inputs: tuple[ElementInput, ...], code: str, assumes: Sequence[str]
    ) -> ElementwiseSpec:
        """Return the spec of `code`, in as many bits as the text says; `form` tells it from others of its `kind`."""
        limits = () if self.whole else tuple(ElementInput(x, self.out, "all") for x in "lh")
        ordered = [] if self.whole else [f"~bit(slt({self.extended}(h, 32), {self.extended}(l, 32)))"]
        small = [SMALL_ZERO] if self.has_zero and self.out != "s16" else []
        return ElementwiseSpec(
            name=f"{kind}{form}_{self.name}",
            inputs=(*inputs, *([_ZERO] if self.has_zero else []), *limits),
            meaning=code,
            out="words" if self.planes else self.out,
            planes=self.planes,
            assumes=(*ordered, *small, *assumes),
            kind=kind,
        )

    def clamp(self, code: str) -> str:
        """Return a number of 64 bits, with the zero point, between the least and the greatest code."""
        if self.whole:
            return f"{self.out[0]}clamp({code}, {self.out[1:]})"
        low, high = f"{self.extended}(l, 64)", f"{self.extended}(h, 64)"
        code = f"({code} + sext(z, 64))" if self.has_zero else code
        return f"ite(slt({code}, {low}), {low}, ite(slt({high}, {code}), {high}, {code}))"


@dataclass(frozen=True)
class ValueTerms:
    """The terms of a value: an accumulator, plus a number of its `row`, plus one of its `column`."""

    row: bool = False
    column: bool = False

    @property
    def name(self) -> str:
        """The part of a spec's name that says which terms there are."""
        return ("_row" if self.row else "") + ("_column" if self.column else "")

    @property
    def inputs(self) -> tuple[ElementInput, ...]:
        """The inputs of a spec: the accumulator and the numbers that are added."""
        return SUM, *([_ROW] if self.row else []), *([_COLUMN] if self.column else [])

    @property
    def text(self) -> str:
        """The value, as text of the lane language."""
        return "(" + " + ".join(x.name for x in self.inputs) + ")"


def is_small(text: str) -> str:
    """Return the bit that says that the absolute value of a float32 is at most 2**30, which int32 holds."""
    return f"bit(ult({text}{_BELOW}"


def assumes_small(spec: ElementwiseSpec) -> bool:
    """Return whether a spec assumes that the number it rounds is small."""
    return any(text.endswith(_BELOW) for text in spec.assumes)


def is_number(text: str) -> str:
    """Return the bit that says that a float32 is a number, infinite or not."""
    return f"bit(ult({text} & 0x7fffffff, {INFINITY + 1}))"

"""Elementwise specs: the function that a program computes for one element, such as an int32 accumulator.

The function (`meaning`) is an expression in the lane language of `isa/lane.py`, over inputs that are lanes too, so that
numpy, Z3 and the interpreter of instructions read the same text. An example, with two thresholds per channel:

    inputs   s (int32 of the element), t (2 int32 of its channel)
    meaning  sum(zext(bit(slt(t[k], s)), 8) for k in range(2))
    out      u8
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal

import msgspec

from bitsynth.errors import SpecError
from bitsynth.isa import lane
from bitsynth.isa.bits import MAX_WIDTH, Bits, trunc
from bitsynth.isa.domains.domain import Domain
from bitsynth.isa.types import VecType

Per = Literal["element", "channel", "row", "all", "table", "iteration"]
"""The elements that share a value of an input: none ("element"), all of a channel, all of a row, or all.

A "table" of `count` values is shared by all, too; it lies in registers, repeated where these are longer. The value of
"iteration" is carried by a loop from one iteration to the next.
"""

WORD_BITS = 64
SHORT_SUM = "bit(eq(sext(trunc(s, 16), 32), s))"
"""The assumption that an accumulator fits 16 bits."""
MAX_UNROLLED_LEVELS = 15
"""Thresholds that are counted without a loop, at most; a loop counts them in any order."""


class SpecKind(StrEnum):
    """The families of specs, each with a sketch of its programs (`synth/elementwise.py`).

    Programs of `DIRECT` specs have one instruction for each operator of the meaning.
    """

    DIRECT = "direct"
    THRESHOLDS = "thresholds"
    LOOKUP = "lookup"
    PAIRS = "pairs"
    WEIGHTED = "weighted"
    MEAN = "mean"
    QUANTIZE = "quantize"
    SIGNS = "signs"
    DEQUANTIZE = "dequantize"
    REQUANTIZE = "requantize"
    RESCALE = "rescale"
    FIXED = "fixed"
    MULTIPLY_SHIFT = "multiply_shift"
    GATED = "gated"
    ROUNDED = "rounded"
    SCALE = "scale"
    RESIDUAL = "residual"


class ElementInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An input of lane type `type` (s32, u8), `count` values an element; the meaning indexes them if `count` > 0."""

    name: str
    type: str
    per: Per = "element"
    count: int = 0

    @property
    def lane(self) -> VecType:
        """The type of one value."""
        return VecType.parse(f"{self.type}x1")

    @property
    def values(self) -> int:
        """The number of values that an element has."""
        return max(1, self.count)

    @property
    def is_shared(self) -> bool:
        """Whether the elements of a unit share the value."""
        return self.per in ("row", "all", "table")


class ElementwiseSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A function of an element.

    Attributes:
        meaning: The value of the function, an expression of the inputs.
        out: The lane type of the result, or "words" for `planes` bits. Bit j of the value of channel 8q + b of 64 is
            then bit 8b + q of word j, as in `bs_pack_codes`.
        assumes: Expressions of one bit, which is 1 for all inputs that can occur.
        nested: Expressions of one bit; an expression is 1 only where the expression before it is 1. The proof shows
            that, and then goes through the cases: how many are 1.
        alike: Either empty, or for each of `nested` an equivalent expression; the proof shows the equivalence.
        kind: The family, which says how programs are searched for, and nothing of what they compute.
    """

    name: str
    inputs: tuple[ElementInput, ...]
    meaning: str
    out: str
    planes: int = 0
    assumes: tuple[str, ...] = ()
    nested: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()
    kind: SpecKind = SpecKind.DIRECT

    @property
    def out_bits(self) -> int:
        """Bits of the value, as of an element in memory."""
        return self.planes if self.out == "words" else VecType.parse(f"{self.out}x1").bits

    def value(self, domain: Domain, given: Mapping[str, Any]) -> Any:
        """Return the value, a payload of `out_bits` bits; `given` has the payloads of each input."""
        (value,) = self.evaluate([self.meaning], domain, given, self.out_bits)
        return value

    def bits(self, texts: Sequence[str], domain: Domain, given: Mapping[str, Any]) -> list[Any]:
        """Return the one-bit payloads of expressions, such as `assumes`."""
        return self.evaluate(texts, domain, given, 1)

    def evaluate(self, texts: Sequence[str], domain: Domain, given: Mapping[str, Any], bits: int) -> list[Any]:
        """Return the low `bits` bits of expressions of the inputs; SpecError for one that cannot be evaluated."""
        values, names = [self._bits(domain, x, given[x.name]) for x in self.inputs], tuple(x.name for x in self.inputs)
        out = []
        for text in texts:
            try:
                (result,) = _compile_text(self.name, text, names)(*values)
            except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
                raise SpecError(f"{self.name}: {text!r} fails: {error}") from None
            if not isinstance(result, Bits) or result.w < bits:
                raise SpecError(f"{self.name}: {text!r} must give {bits} bits or more")
            out.append((result if result.w == bits else trunc(result, bits)).v)
        return out

    def _bits(self, domain: Domain, input_: ElementInput, payloads: Sequence[Any]) -> Any:
        width = input_.lane.bits
        values = tuple(Bits(domain, width, v) for v in payloads)
        return values if input_.count else values[0]

    def iteration(self) -> ElementwiseSpec:
        """Return the spec of one iteration of a loop over the last input's values: x, plus 1 if `nested[0]` holds."""
        *others, over = self.inputs
        single = msgspec.structs.replace(over, count=1)
        return ElementwiseSpec(
            name=f"{self.name}_iteration",
            inputs=(*others, ElementInput("x", "u8", "iteration"), single),
            meaning=f"x + zext({self.nested[0]}, 8)",
            out="u8",
        )

    def last(self) -> ElementwiseSpec:
        """Return the spec of the result, made of the number x that the loop has counted."""
        return ElementwiseSpec(f"{self.name}_last", (ElementInput("x", "u8"),), "x", self.out, self.planes)

    def check(self) -> None:
        """Raise SpecError for an expression outside the lane language, a repeated name or a width out of range."""
        names = [x.name for x in self.inputs]
        if len(set(names)) < len(names) or not all(n.isalpha() and n.islower() for n in names):
            raise SpecError(f"{self.name}: inputs want different names of small letters, not {', '.join(names)}")
        if not 1 <= self.out_bits <= MAX_WIDTH or not self.inputs or self.inputs[0].per != "element":
            raise SpecError(f"{self.name}: want 1 to {MAX_WIDTH} bits, and a first input that each element has")
        if self.alike and len(self.alike) != len(self.nested):
            raise SpecError(f"{self.name}: want other words for each of `nested`, or for none")
        for text in (self.meaning, *self.assumes, *self.nested, *self.alike):
            _compile_text(self.name, text, tuple(names))


@lru_cache(maxsize=1024)
def _compile_text(where: str, text: str, names: tuple[str, ...]) -> lane.Evaluate:
    return lane.compile_lanes(lane.parse(where, text, names), 1, list(names))

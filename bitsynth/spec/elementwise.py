"""Elementwise specs: what becomes of one element, such as an int32 sum.

The meaning is a line in the lane language of `isa/`, over inputs that are lanes too, so that numpy, Z3 and the
interpreter of instructions read the same text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec

from bitsynth.errors import SpecError
from bitsynth.isa import lane
from bitsynth.isa.bits import MAX_WIDTH, Bits, trunc
from bitsynth.isa.domains.domain import Domain
from bitsynth.isa.types import VecType

Per = Literal["element", "channel", "row", "all", "table", "turn"]
"""The elements that share a value: none; those of a channel; those of a row of channels; all.

All share a table too, of `count` values that lie side by side in registers, repeated where those are longer. None does
what a loop carries from turn to turn.
"""

WORD_BITS = 64
SHORT_SUM = "bit(eq(sext(trunc(s, 16), 32), s))"
"""What is assumed of sums that 16 bits hold."""
MOST_STRAIGHT = 15
"""More thresholds are counted in a loop, whatever their order."""


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
        """How many values an element has."""
        return max(1, self.count)

    @property
    def is_shared(self) -> bool:
        """Whether no position of a unit has values of its own."""
        return self.per in ("row", "all", "table")


class ElementwiseSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The `meaning` of inputs, as an element of lane type `out`, or as `planes` bits in words (`out` is "words").

    Bit j of the meaning of channel 8q + b of 64 is bit 8b + q of word j, as `bs_pack_codes` has it. Each of `assumes`
    has one bit, which is 1 of all inputs that may come. Each of `nested` has one bit too, and is 1 only where the one
    before is: the proof shows that, and goes through the cases of how many are. `alike`, if any, says the same in other
    words, which the proof shows too.
    """

    name: str
    inputs: tuple[ElementInput, ...]
    meaning: str
    out: str
    planes: int = 0
    assumes: tuple[str, ...] = ()
    nested: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()

    @property
    def out_bits(self) -> int:
        """Bits of the meaning, which are those of an element in memory."""
        return self.planes if self.out == "words" else VecType.parse(f"{self.out}x1").bits

    def value(self, domain: Domain, given: Mapping[str, Any]) -> Any:
        """The payload of `out_bits` bits that the meaning gives; `given` has each input's payloads."""
        (found,) = self.evaluate([self.meaning], domain, given, self.out_bits)
        return found

    def bits(self, texts: Sequence[str], domain: Domain, given: Mapping[str, Any]) -> list[Any]:
        """The payloads of one bit of `texts`, such as those of `assumes`."""
        return self.evaluate(texts, domain, given, 1)

    def evaluate(self, texts: Sequence[str], domain: Domain, given: Mapping[str, Any], bits: int) -> list[Any]:
        """The low `bits` bits of expressions of the inputs."""
        values, names = [self._bits(domain, x, given[x.name]) for x in self.inputs], tuple(x.name for x in self.inputs)
        out = []
        for text in texts:
            try:
                (found,) = _compiled(self.name, text, names)(*values)
            except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
                raise SpecError(f"{self.name}: {text!r} fails: {error}") from None
            if not isinstance(found, Bits) or found.w < bits:
                raise SpecError(f"{self.name}: {text!r} must give {bits} bits or more")
            out.append((found if found.w == bits else trunc(found, bits)).v)
        return out

    def _bits(self, domain: Domain, one: ElementInput, payloads: Sequence[Any]) -> Any:
        width = one.lane.bits
        values = tuple(Bits(domain, width, v) for v in payloads)
        return values if one.count else values[0]

    def turn(self) -> ElementwiseSpec:
        """The spec of one turn of a loop over the last input's values: x, plus 1 if the one of `nested` holds."""
        *others, over = self.inputs
        one = msgspec.structs.replace(over, count=1)
        return ElementwiseSpec(
            name=f"{self.name}_turn",
            inputs=(*others, ElementInput("x", "u8", "turn"), one),
            meaning=f"x + zext({self.nested[0]}, 8)",
            out="u8",
        )

    def last(self) -> ElementwiseSpec:
        """The spec of what comes of a number x when the turns are over."""
        return ElementwiseSpec(f"{self.name}_last", (ElementInput("x", "u8"),), "x", self.out, self.planes)

    def check(self) -> None:
        """SpecError for texts that are not of the lane language, names given twice and widths out of range."""
        names = [x.name for x in self.inputs]
        if len(set(names)) < len(names) or not all(n.isalpha() and n.islower() for n in names):
            raise SpecError(f"{self.name}: inputs want different names of small letters, not {', '.join(names)}")
        if not 1 <= self.out_bits <= MAX_WIDTH or not self.inputs or self.inputs[0].per != "element":
            raise SpecError(f"{self.name}: want 1 to {MAX_WIDTH} bits, and a first input that each element has")
        if self.alike and len(self.alike) != len(self.nested):
            raise SpecError(f"{self.name}: want other words for each of `nested`, or for none")
        for text in (self.meaning, *self.assumes, *self.nested, *self.alike):
            _compiled(self.name, text, tuple(names))


@lru_cache(maxsize=1024)
def _compiled(where: str, text: str, names: tuple[str, ...]) -> lane.Evaluate:
    return lane.compile_lanes(lane.parse(where, text, names), 1, list(names))


def thresholds(
    levels: int, *, words: bool, narrow: bool = False, row: bool = False, flip: bool = False, short: bool = False
) -> ElementwiseSpec:
    """The number of a channel's `levels` sorted thresholds t below the sum s, plus r of its row if `row`; s + r wraps.

    Out come bytes, or `words` of as many planes as the number takes. `narrow` thresholds are int16, below 32767; sums
    are int32 all the same, of which int16 holds those that are `short`. With `flip`, a channel whose m is -1 counts
    thresholds below ~(s + r): falling ones are negated so. More than 15 levels need not be sorted.
    """
    value = f"(s{' + r' if row else ''}){' ^ m' if flip else ''}" if row or flip else "s"
    kind = "s16" if narrow else "s32"
    straight = levels <= MOST_STRAIGHT
    if narrow and flip:
        raise SpecError("falling channels have int32 thresholds")
    if short and (row or not narrow):
        raise SpecError("short sums are alone, and have int16 thresholds")
    compared = value if not narrow else "trunc(s, 16)" if short else f"sclamp({value}, 16)"
    shared = [ElementInput("r", "s32", "row")] * row + [ElementInput("m", "s32", "channel")] * flip
    limit = "sext(t[k], 32)" if narrow else "t[k]"
    forms = ["row"] * row + ["flip"] * flip + ["short"] * short
    return ElementwiseSpec(
        name="_".join([f"thresholds{levels}", kind, *forms, "words" if words else "bytes"]),
        inputs=(ElementInput("s", "s32"), *shared, ElementInput("t", kind, "channel", levels)),
        meaning=f"sum(zext(bit(slt({limit}, {value})), 8) for k in range({levels}))",
        out="words" if words else "u8",
        planes=levels.bit_length() if words else 0,
        assumes=(
            *(f"~bit(slt(t[{k + 1}], t[{k}]))" for k in range(levels - 1) if straight),
            *([f"bit(slt(t[{levels - 1}], 32767))"] if narrow else []),
            *([SHORT_SUM] if short else []),
        ),
        nested=tuple(f"bit(slt(t[{k}], {compared}))" for k in range(levels if straight else 1)),
        alike=tuple(f"bit(slt(sext(t[{k}], 32), {value}))" for k in range(levels)) if narrow else (),
    )

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
from bitsynth.isa.bits import MAX_WIDTH, Bits, Domain, trunc
from bitsynth.isa.types import VecType

Per = Literal["element", "channel", "row", "all"]
"""The elements that share a value: none; those of a channel; those of a row of channels; all."""

WORD_BITS = 64


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


class ElementwiseSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The `meaning` of inputs, as an element of lane type `out`, or as `planes` bits in words (`out` is "words").

    Bit j of the meaning of channel 8q + b of 64 is bit 8b + q of word j, as `bs_pack_codes` has it. Each of `assumes`
    has one bit, which is 1 of all inputs that may come.
    """

    name: str
    inputs: tuple[ElementInput, ...]
    meaning: str
    out: str
    planes: int = 0
    assumes: tuple[str, ...] = ()

    @property
    def out_bits(self) -> int:
        """Bits of the meaning."""
        return self.planes if self.out == "words" else VecType.parse(f"{self.out}x1").bits

    @property
    def element_bits(self) -> int:
        """Bits that an element takes in memory."""
        return self.out_bits

    def value(self, domain: Domain, given: Mapping[str, Sequence[Any]]) -> Any:
        """The payload of `out_bits` bits that the meaning gives; `given` has each input's payloads."""
        return self._evaluate(self.meaning, domain, given, self.out_bits)

    def assumed(self, domain: Domain, given: Mapping[str, Sequence[Any]]) -> list[Any]:
        """Payloads of one bit, which are 1 of inputs that may come."""
        return [self._evaluate(text, domain, given, 1) for text in self.assumes]

    def _evaluate(self, text: str, domain: Domain, given: Mapping[str, Sequence[Any]], bits: int) -> Any:
        values = [self._bits(domain, x, given[x.name]) for x in self.inputs]
        try:
            (found,) = _compiled(self.name, text, tuple(x.name for x in self.inputs))(*values)
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
            raise SpecError(f"{self.name}: {text!r} fails: {error}") from None
        if not isinstance(found, Bits) or found.w < bits:
            raise SpecError(f"{self.name}: {text!r} must give {bits} bits or more")
        return (found if found.w == bits else trunc(found, bits)).v

    def _bits(self, domain: Domain, one: ElementInput, payloads: Sequence[Any]) -> Any:
        values = tuple(Bits(domain, one.lane.bits, v) for v in payloads)
        return values if one.count else values[0]

    def check(self) -> None:
        """SpecError for texts that are not of the lane language, names given twice and widths out of range."""
        names = [x.name for x in self.inputs]
        if len(set(names)) < len(names) or not all(n.isalpha() and n.islower() for n in names):
            raise SpecError(f"{self.name}: inputs want different names of small letters, not {', '.join(names)}")
        if not 1 <= self.out_bits <= MAX_WIDTH or not self.inputs or self.inputs[0].per != "element":
            raise SpecError(f"{self.name}: want 1 to {MAX_WIDTH} bits, and a first input that each element has")
        for text in (self.meaning, *self.assumes):
            _compiled(self.name, text, tuple(names))


@lru_cache
def _compiled(where: str, text: str, names: tuple[str, ...]) -> lane.Evaluate:
    return lane.compile_lanes(lane.parse(where, text, names), 1, list(names))


_SUM = ElementInput("s", "s32")
_ROW = ElementInput("r", "s32", "row")


def thresholds(levels: int, *, words: bool, narrow: bool = False, row: bool = False) -> ElementwiseSpec:
    """The number of a channel's `levels` sorted thresholds t below the sum s, plus r of its row if `row`.

    Out come bytes, or `words` of as many planes as the number takes. `narrow` thresholds are int16, below 32767; sums
    are int32 all the same. s + r wraps.
    """
    value = "(s + r)" if row else "s"
    limit = "sext(t[k], 32)" if narrow else "t[k]"
    bits = levels.bit_length()
    out = ("words", bits) if words else ("u8", 0)
    sorted_ = [f"~bit(slt(t[{k + 1}], t[{k}]))" for k in range(levels - 1)]
    bounded = [f"bit(slt(t[{levels - 1}], 32767))"] if narrow else []
    return ElementwiseSpec(
        name=f"thresholds{levels}_{'s16' if narrow else 's32'}{'_row' if row else ''}_{'words' if words else 'bytes'}",
        inputs=(_SUM, *([_ROW] if row else []), ElementInput("t", "s16" if narrow else "s32", "channel", levels)),
        meaning=f"sum(zext(bit(slt({limit}, {value})), 8) for k in range({levels}))",
        out=out[0],
        planes=out[1],
        assumes=(*sorted_, *bounded),
    )

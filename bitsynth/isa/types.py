"""Vector types such as `u8x16`: sign, bits of a lane, number of lanes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from bitsynth.errors import SpecError

GENERAL = "x"
"""The sign of what is in a general-purpose register."""

_PATTERN = re.compile(r"([usx])(8|16|32|64)x([1-9][0-9]?)")


@dataclass(frozen=True)
class VecType:
    """A vector of `lanes` lanes, `bits` wide each; the sign only names the C type."""

    sign: str
    bits: int
    lanes: int

    @staticmethod
    def parse(text: str) -> VecType:
        """Return the type that `text` spells, such as `u8x16`; SpecError if it does not spell one."""
        return _parse_type(text)

    @property
    def total_bits(self) -> int:
        """Bits of the whole vector."""
        return self.bits * self.lanes

    @property
    def in_general(self) -> bool:
        """Whether a general-purpose register holds it."""
        return self.sign == GENERAL

    def in_c_as(self, other: VecType) -> bool:
        """Return whether C has one type for both, as for all types of a general-purpose register."""
        return self == other or (self.in_general and other.in_general)

    @property
    def short(self) -> str:
        """The lane type alone, as intrinsics spell it: `u8`."""
        return f"{self.sign}{self.bits}"

    @property
    def q(self) -> str:
        """The letter that NEON intrinsics of 128 bits carry."""
        return "q" if self.total_bits == 128 else ""

    def __str__(self) -> str:
        return f"{self.short}x{self.lanes}"

    def __format__(self, spec: str) -> str:
        """Return the spelling in C templates: `{T}` is the lane type, `{T:v}` the vector type, `{T:c}` the C scalar."""
        scalar = f"{'' if self.sign == 's' else 'u'}int{self.bits}_t"
        try:
            return {"": self.short, "v": str(self), "c": scalar}[spec]
        except KeyError:
            raise ValueError(f"a type hole is {{T}}, {{T:v}} or {{T:c}}, not {{T:{spec}}}") from None


WORD = VecType(GENERAL, 64, 1)
"""A general-purpose register."""


@lru_cache(maxsize=1024)
def _parse_type(text: str) -> VecType:
    match = _PATTERN.fullmatch(text)
    if not match:
        raise SpecError(f"bad vector type {text!r}: want for example 'u8x16'")
    kind = VecType(match[1], int(match[2]), int(match[3]))
    if kind.in_general and kind.total_bits != WORD.total_bits:
        raise SpecError(f"bad type {text!r}: a general-purpose register has {WORD.total_bits} bits")
    return kind

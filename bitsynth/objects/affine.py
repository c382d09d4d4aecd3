"""Numbers of general registers that are not known: sums of unknowns times integers.

    steps left of 3 segments, with 2 done     AffineNumber: all_steps - done - 2

Arithmetic is modulo 2**64, as in registers. Equal numbers are equal values; they are hashed by their addends.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

WORD_BITS = 64
_EVERY = (1 << WORD_BITS) - 1


def to_signed(x: int) -> int:
    """Return the number between -2**63 and 2**63 - 1 that is equal modulo 2**64."""
    x &= _EVERY
    return x - (1 << WORD_BITS) if x >> WORD_BITS - 1 else x


class BaseAddress(NamedTuple):
    """The unknown for the address of a part of memory; only the alignment of the address is known.

    Attributes:
        name: What lies there: the stack, a section of the object, where the function returns to.
        alignment: A power of two that the address is a multiple of.
        offset: For a frame, which is the stack aligned to more than a caller does: the frame is the last multiple of
            `alignment` that is not behind this number of bytes from the stack.
    """

    name: str
    alignment: int
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.name} aligned to {self.alignment}"


class AffineNumber:
    """A number plus unknowns times integers; `terms` has unknowns and integers in a fixed order."""

    __slots__ = ("_hash", "number", "terms")

    def __init__(self, number: int, terms: Mapping[Hashable, int]) -> None:
        kept = [(key, to_signed(times)) for key, times in terms.items() if times & _EVERY]
        if len(kept) > 1:
            kept.sort(key=_place_in_order)
        self.number, self.terms = to_signed(number), tuple(kept)
        self._hash = hash((self.number, self.terms))

    def _with_number(self, x: int) -> AffineNumber:
        """Return the sum of the same unknowns with another known part."""
        out = AffineNumber.__new__(AffineNumber)
        out.number, out.terms = to_signed(x), self.terms
        out._hash = hash((out.number, out.terms))
        return out

    @staticmethod
    def of_unknown(name: Hashable) -> AffineNumber:
        """Return the unknown called `name`."""
        return AffineNumber(0, {name: 1})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AffineNumber) and self.number == other.number and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        parts = [f"{times} {_name(key)}" if times != 1 else _name(key) for key, times in self.terms]
        return " + ".join([*parts, *([str(self.number)] if self.number or not parts else [])])

    def __add__(self, other: AffineNumber | int) -> AffineNumber:
        if isinstance(other, int):
            return self._with_number(self.number + other)
        if not self.terms:
            return other._with_number(self.number + other.number)
        return self._plus(other, 1)

    def _plus(self, other: AffineNumber, sign: int) -> AffineNumber:
        """Return the sum with another number, or with `sign` -1 the difference."""
        total = self.number + sign * other.number
        if not other.terms:
            return self._with_number(total)
        terms = dict(self.terms)
        for key, times in other.terms:
            terms[key] = terms.get(key, 0) + sign * times
        return AffineNumber(total, terms)

    __radd__ = __add__

    def __neg__(self) -> AffineNumber:
        return self * -1

    def __sub__(self, other: AffineNumber | int) -> AffineNumber:
        return self._with_number(self.number - other) if isinstance(other, int) else self._plus(other, -1)

    def __rsub__(self, other: int) -> AffineNumber:
        return -self + other

    def __mul__(self, times: int) -> AffineNumber:
        return AffineNumber(self.number * times, {key: x * times for key, x in self.terms})

    __rmul__ = __mul__

    @property
    def variable(self) -> AffineNumber:
        """The number without its known part."""
        return self._with_number(0)

    @property
    def unknowns(self) -> set[Hashable]:
        """The unknowns of the number, with the unknowns in other unknowns' names."""
        return set(_inner(key for key, _ in self.terms))

    def replace(self, values: Mapping[Hashable, AffineNumber]) -> AffineNumber:
        """Return the number with other numbers for unknowns."""
        if not any(key in values for key, _ in self.terms):
            return self
        total, terms = self.number, dict[Hashable, int]()
        for key, times in self.terms:
            value = values.get(key)
            if value is None:
                terms[key] = terms.get(key, 0) + times
            else:
                total += value.number * times
                for inner, n in value.terms:
                    terms[inner] = terms.get(inner, 0) + n * times
        return AffineNumber(total, terms)


GeneralNumber = int | AffineNumber
"""A number that is known, or one that is not."""


STACK_BASE = BaseAddress("stack", 16)
"""Where a caller puts the arguments that are not in registers, by the ABI."""
RETURN_BASE = BaseAddress("return", 1)
FRAME = "frame"
"""The name of the base of an aligned frame."""


def is_place(x: AffineNumber) -> bool:
    """Return whether a number is a distance from the stack, a section or the return, the same throughout a call."""
    return bool(x.terms) and all(isinstance(key, BaseAddress) for key, _ in x.terms)


def is_multiple(x: AffineNumber, size: int) -> bool:
    """Return whether a number is a multiple of `size`, a power of two, for all addresses with their alignments."""
    return x.number % size == 0 and _varies_by(x, size)


def align_down(x: AffineNumber, size: int) -> AffineNumber | None:
    """Return the last multiple of `size`, a power of two, that is not behind `x`; None if that is no known sum.

    For an address in the stack the result is the unknown base of a frame.
    """
    if _varies_by(x, size):
        return x - x.number % size
    if x.variable == AffineNumber.of_unknown(STACK_BASE):
        return AffineNumber.of_unknown(BaseAddress(FRAME, size, x.number))
    return None


def _varies_by(x: AffineNumber, size: int) -> bool:
    """Return whether the unknown part of a number is a multiple of `size`."""
    alignments = ((key.alignment if isinstance(key, BaseAddress) else 1, times) for key, times in x.terms)
    return all(alignment * times % size == 0 for alignment, times in alignments)


def number(x: AffineNumber | int) -> AffineNumber:
    """Return a number as a sum."""
    return x if isinstance(x, AffineNumber) else AffineNumber(x, {})


def reduce(x: AffineNumber | int) -> AffineNumber | int:
    """Return the integer, modulo 2**64, that a sum without unknowns is; else the sum."""
    return x.number & _EVERY if isinstance(x, AffineNumber) and not x.terms else x


def array_part(array: Hashable, first: AffineNumber | int) -> tuple[Hashable, int]:
    """Return the name of a part of an array and the number of a byte in it, for byte `first` of the array."""
    if isinstance(first, int) or not first.terms:
        return array, first if isinstance(first, int) else first.number
    return (array, first.variable), first.number


@lru_cache(maxsize=1 << 14)
def key_text(key: Hashable) -> str:
    """Return an unknown in words that no other has."""
    return repr(key)


def _place_in_order(term: tuple[Hashable, int]) -> str:
    return key_text(term[0])


def _inner(keys: Iterable[Hashable]) -> Iterable[Hashable]:
    for key in keys:
        yield key
        if isinstance(key, tuple):
            for part in key:
                if isinstance(part, AffineNumber):
                    yield from _inner(k for k, _ in part.terms)


def _name(key: Hashable) -> str:
    return key if isinstance(key, str) else f"<{key}>"

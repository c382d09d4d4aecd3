"""Instructions for two rows in one lookup: a byte of the table has an entry of each row's, side by side.

What is looked up is two sums, the low one in the low half of the byte. Bytes are added up as they are, modulo 256, and
the high halves apart: the low sums are what is left when the high ones are taken away. Instructions are found by what
they do to unknowns in the linear domain, never by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from bitsynth.errors import NoKernel, SpecError
from bitsynth.isa.domains.forms import Concat, Inexact, LinearForm, add_forms, as_form, variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa

ROWS = 2
"""Rows that share a byte."""


@dataclass(frozen=True)
class Pairing:
    """`add_high` adds the high halves of bytes, which have `bits` bits."""

    add_high: str
    bits: int

    @property
    def most(self) -> int:
        """The greatest sum that half a byte holds."""
        return (1 << self.bits) - 1


@lru_cache
def find(isa: Isa) -> Pairing:
    """Return the first instruction that does; NoKernel says what `isa` lacks."""
    bits = isa.word.bits // 2
    add_high = next((i.name for i in _candidates(isa, bits) if _adds_high(isa, i, bits)), None)
    if add_high is None:
        raise NoKernel(f"{isa.name} has no instruction that adds the high halves of bytes")
    return Pairing(add_high, bits)


def supported(isa: Isa) -> bool:
    """Return whether `isa` has such instructions."""
    try:
        find(isa)
    except NoKernel:
        return False
    return True


def _candidates(isa: Isa, bits: int) -> Iterator[Instr]:
    two_words = [isa.word] * 2
    return (
        i
        for i in isa.full_forms
        if i.imm and bits in i.imms and i.out == isa.word and [o.type for o in i.operands] == two_words
    )


def _adds_high(isa: Isa, instr: Instr, bits: int) -> bool:
    lanes, most = range(isa.word.lanes), (1 << bits) - 1
    acc, low, high = ([variable((name, b), 0, most) for b in lanes] for name in ("acc", "low", "high"))
    both = [Concat(((x, bits), (y, bits))) for x, y in zip(low, high, strict=True)]
    want = [add_forms(x, y) for x, y in zip(acc, high, strict=True)]
    try:
        got = instr(LinearDomain(1), [acc, both], bits)
    except (Inexact, SpecError):
        return False
    return [_terms(as_form(x)) for x in got] == [_terms(x) for x in want]


def _terms(x: LinearForm) -> tuple[int, object]:
    """Return the constant and the atoms of a form, without its bounds."""
    return x.const, x.atoms

"""Proves by Z3 that a function of packed words computes the function of their codes, at every position."""

from __future__ import annotations

from typing import Any

from bitsynth.errors import Refuted
from bitsynth.isa.bits import Bits
from bitsynth.isa.domains.symbolic import SymbolicDomain
from bitsynth.solver.budget import Budget
from bitsynth.solver.z3 import z3
from bitsynth.spec.elementwise import WORD_BITS
from bitsynth.spec.words import WordsSpec

_DOMAIN = SymbolicDomain()


def discharge(spec: WordsSpec, budget: Budget) -> None:
    """Have Z3 prove every place of the words of `spec`; Refuted has words for which one is wrong."""
    a, b = ([z3.BitVec(f"{name}{k}", WORD_BITS) for k in range(spec.planes)] for name in "ab")
    outputs = [x.v for x in spec.values(*([Bits(_DOMAIN, WORD_BITS, x) for x in words] for words in (a, b)))]
    first, second = (x.name for x in spec.of_codes.inputs)
    wrong = []
    for place in range(WORD_BITS):
        given = {first: [_code(a, place)], second: [_code(b, place)]}
        wrong.append(_code(outputs, place) != spec.of_codes.value(_DOMAIN, given))
    model = budget.check(f"{spec.name}: every place", [z3.Or(wrong)])
    if model is not None:
        values = ", ".join(f"{name} = {value:#x}" for name, value in sorted(model.values.items()))
        raise Refuted(f"{spec.name} is wrong for {values}")


def _code(words: list[Any], place: int) -> Any:
    """Return the code at a place of words, in a byte."""
    bits = [z3.Extract(place, place, x) for x in words]
    code = z3.Concat(*reversed(bits)) if len(bits) > 1 else bits[0]
    return z3.simplify(z3.ZeroExt(8 - len(bits), code))

"""What is known of the numbers of a call on one path through machine code: linear facts, decided by Z3."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from bitsynth.objects.affine import WORD_BITS, AffineNumber, GeneralNumber, number
from bitsynth.objects.memory import NotShown
from bitsynth.solver.z3 import z3

_LIMIT = 2_000_000
"""Z3's resources for one question, which take about a second; a question that needs more counts as not answered."""
_END = 1 << WORD_BITS


@lru_cache(maxsize=1 << 14)
def _term(x: AffineNumber) -> Any:
    addends = [times * z3.Int(repr(key)) for key, times in x.terms]
    return z3.Sum([*addends, z3.IntVal(x.number)]) if addends else z3.IntVal(x.number)


@lru_cache(maxsize=1 << 14)
def not_negative(x: AffineNumber) -> Any:
    """Return the fact that a number is 0 or more."""
    return _term(x) >= 0


class LinearFacts:
    """Facts about unknown integers; `equalities` are the sums among them that are 0."""

    def __init__(self) -> None:
        self._solver = z3.SolverFor("QF_LIA")
        self._solver.set("rlimit", _LIMIT)
        self._count = 0
        self._implied: dict[int, bool] = {}
        self._asked: list[Any] = []  # Z3 gives the numbers of facts that are gone to others.
        self.equalities: list[AffineNumber] = []
        self._smaller: list[tuple[AffineNumber, GeneralNumber, GeneralNumber]] = []

    def term(self, x: GeneralNumber) -> Any:
        """Return a number as Z3 has it."""
        return _term(number(x))

    def assume(self, *facts: Any) -> None:
        """Add facts."""
        self._solver.add(*facts)
        self._implied.clear()

    def assume_at_most(self, pairs: Iterable[tuple[GeneralNumber, GeneralNumber]]) -> None:
        """Add that the first number of each pair is not greater than the second."""
        self.assume(*(not_negative(number(b) - a) for a, b in pairs))

    def implies(self, fact: Any) -> bool:
        """Return whether the facts imply another one."""
        key = fact.get_id()
        if key not in self._implied:
            self._solver.push()
            self._solver.add(z3.Not(fact))
            self._implied[key] = self._solver.check() == z3.unsat
            self._solver.pop()
            self._asked.append(fact)
        return self._implied[key]

    def at_most(self, a: GeneralNumber, b: GeneralNumber) -> bool:
        """Return whether a <= b is implied."""
        gap = number(b) - a
        return gap.number >= 0 if not gap.terms else self.implies(not_negative(gap))

    def equal(self, a: GeneralNumber, b: GeneralNumber) -> bool:
        """Return whether a = b is implied."""
        gap = number(a) - b
        return gap.number == 0 if not gap.terms else self.implies(self.term(gap) == 0)

    def smaller(self, a: GeneralNumber, b: GeneralNumber) -> GeneralNumber:
        """Return the smaller of two numbers: a new unknown, if the facts do not say which it is."""
        if self.at_most(a, b):
            return a
        if self.at_most(b, a):
            return b
        self._count += 1
        out = AffineNumber.unknown(("smaller", self._count))
        x, y, z = self.term(a), self.term(b), self.term(out)
        self.assume(z <= x, z <= y, z3.Or(z == x, z == y))
        self._smaller.append((out, a, b))
        return out

    def all_equalities(self) -> list[AffineNumber]:
        """Return the sums that are known to be 0, those of smaller numbers that were decided later too."""
        out = list(self.equalities)
        for smaller, a, b in self._smaller:
            out += [smaller - x for x in (a, b) if self.equal(smaller, x)][:1]
        return out

    def comparison(self, kind: str, a: GeneralNumber, b: GeneralNumber) -> Any:
        """Return what a processor decides of two registers that hold numbers, as a fact.

        Registers hold numbers modulo 2**64; NotShown unless the facts say which numbers these are.
        """
        if kind == "equal":
            gap = self.term(number(a) - b)
            if not self.implies(z3.And(gap > -_END, gap < _END)):
                raise NotShown("it compares numbers whose difference may leave 64 bits")
            return gap == 0
        low = -_END // 2 if kind == "below signed" else 0
        return self._in_range(a, low) < self._in_range(b, low)

    def _in_range(self, x: GeneralNumber, low: int) -> Any:
        """Return the number between `low` and `low` + 2**64 - 1 that a register holds."""
        term = self.term(x)
        if not number(x).terms:
            return z3.IntVal((number(x).number - low) % _END + low)
        if not self.implies(z3.And(term >= low, term < low + _END)):
            raise NotShown(f"it compares {x}, which may leave 64 bits")
        return term

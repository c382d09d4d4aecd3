"""What is known of the numbers of a call on one path through machine code: linear facts, decided by Z3."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from bitsynth.objects.affine import WORD_BITS, AffineNumber, GeneralNumber, key_text, number
from bitsynth.objects.memory import NotShown
from bitsynth.solver.z3 import z3

_LIMIT = 2_000_000
"""Z3's resources for one question, which take about a second; a question that needs more counts as not answered."""
_END = 1 << WORD_BITS
_EXAMPLES = 4
"""The most examples of numbers for which the facts hold that are kept."""
_Smaller = tuple[AffineNumber, GeneralNumber, GeneralNumber]
"""An unknown, and the two numbers of which it is the smaller."""


@lru_cache(maxsize=1 << 14)
def _term(x: AffineNumber) -> Any:
    addends = [times * z3.Int(key_text(key)) for key, times in x.terms]
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
        self._compared: dict[AffineNumber, bool] = {}
        self._equal: dict[AffineNumber, bool] = {}
        self._models: list[Any] = []
        self._examples: list[dict[str, int]] = []
        self._marked: tuple[list[AffineNumber], list[_Smaller], int] | None = None
        self._asked: list[Any] = []  # Z3 gives the numbers of facts that are gone to others.
        self.equalities: list[AffineNumber] = []
        self._smaller: list[_Smaller] = []

    def term(self, x: GeneralNumber) -> Any:
        """Return a number as Z3 has it."""
        return _term(number(x))

    def assume(self, *facts: Any) -> None:
        """Add facts."""
        self._solver.add(*facts)
        self._forget()

    def _forget(self) -> None:
        for answers in (self._implied, self._compared, self._equal, self._models, self._examples):
            answers.clear()

    @property
    def is_marked(self) -> bool:
        """Return whether there is a mark to go back to."""
        return self._marked is not None

    def mark(self) -> None:
        """Mark the facts that there are now."""
        self._marked = list(self.equalities), list(self._smaller), self._count
        self._solver.push()

    def rewind(self) -> None:
        """Leave out all facts that were added after the mark."""
        assert self._marked is not None
        self._solver.pop()
        self._solver.push()
        equalities, smaller, self._count = self._marked
        self.equalities, self._smaller = list(equalities), list(smaller)
        self._forget()

    def assume_at_most(self, pairs: Iterable[tuple[GeneralNumber, GeneralNumber]]) -> None:
        """Add that the first number of each pair is not greater than the second."""
        self.assume(*(not_negative(number(b) - a) for a, b in pairs))

    def implies(self, fact: Any) -> bool:
        """Return whether the facts imply another one."""
        key = fact.get_id()
        if key not in self._implied:
            self._solver.push()
            self._solver.add(z3.Not(fact))
            answer = self._solver.check()
            self._implied[key] = answer == z3.unsat
            if answer == z3.sat:
                self._models = [*self._models, self._solver.model()][-_EXAMPLES:]
            self._solver.pop()
            self._asked.append(fact)
        return self._implied[key]

    def _is_refuted(self, gap: AffineNumber, *, zero: bool) -> bool:
        """Return whether a number is below 0 in an example, or with `zero` other than 0.

        Examples are numbers for which the facts hold; what is false of one is not implied, without a question to Z3.
        """
        for model in self._models:
            self._examples = [*self._examples, {x.name(): model[x].as_long() for x in model.decls()}][-_EXAMPLES:]
        self._models = []
        for example in self._examples:
            total = gap.number
            for key, times in gap.terms:
                value = example.get(key_text(key))
                if value is None:
                    break
                total += times * value
            else:
                if total < 0 or (zero and total):
                    return True
        return False

    def at_most(self, a: GeneralNumber, b: GeneralNumber) -> bool:
        """Return whether a <= b is implied."""
        gap = number(b) - a
        if not gap.terms:
            return gap.number >= 0
        if gap not in self._compared:
            self._compared[gap] = not self._is_refuted(gap, zero=False) and self.implies(not_negative(gap))
        return self._compared[gap]

    def equal(self, a: GeneralNumber, b: GeneralNumber) -> bool:
        """Return whether a = b is implied."""
        gap = number(a) - b
        if not gap.terms:
            return gap.number == 0
        if gap not in self._equal:
            self._equal[gap] = not self._is_refuted(gap, zero=True) and self.implies(self.term(gap) == 0)
        return self._equal[gap]

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

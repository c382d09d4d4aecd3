"""What is known of the numbers of a call on one path through machine code: linear facts, decided by Z3."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from bitsynth.objects.affine import WORD_BITS, AffineNumber, GeneralNumber, key_text, number
from bitsynth.objects.memory import NotShown
from bitsynth.solver.z3 import z3

_LIMIT = 2_000_000
"""Z3's resources for one question, which take about a second; a question that needs more counts as not answered."""
_END = 1 << WORD_BITS
_EXAMPLES = 6
"""The most examples of numbers for which facts hold that are kept."""
_Smaller = tuple[AffineNumber, GeneralNumber, GeneralNumber]
"""An unknown, and two numbers; the unknown is their minimum."""
_Example = dict[str, int]
"""Numbers by the names of unknowns; others are 0."""


class LinearFact(NamedTuple):
    """A claim about a sum of unknown integers times integers; the sum is not taken modulo anything.

        2 + step - all_steps <= 0     is     LinearFact(-2, {(step, -1), (all_steps, 1)}, "at least 0")

    Attributes:
        number: The known part of the sum.
        terms: Its unknowns and their integers, which are not 0.
        says: "at least 0", "0" or "not 0".
    """

    number: int
    terms: frozenset[tuple[Hashable, int]]
    says: str

    @property
    def opposite(self) -> LinearFact:
        """The fact that holds where this one does not."""
        if self.says == "at least 0":
            return LinearFact(-self.number - 1, frozenset((key, -times) for key, times in self.terms), self.says)
        return self._replace(says="not 0" if self.says == "0" else "0")

    def holds(self, example: _Example) -> bool:
        """Return whether the fact holds for these numbers."""
        total = self.number
        for key, times in self.terms:
            total += times * example.get(key_text(key), 0)
        return total >= 0 if self.says == "at least 0" else (total == 0) == (self.says == "0")


def sum_is(says: str, plus: Iterable[GeneralNumber], minus: Iterable[GeneralNumber], known: int = 0) -> LinearFact:
    """Return a fact of the integer `known` plus some numbers minus others, each the integer that it is written as."""
    terms: dict[Hashable, int] = {}
    for sign, addends in ((1, plus), (-1, minus)):
        for x in addends:
            if isinstance(x, int):
                known += sign * x
                continue
            known += sign * x.number
            for key, times in x.terms:
                terms[key] = terms.get(key, 0) + sign * times
    return LinearFact(known, frozenset([term for term in terms.items() if term[1]]), says)


def is_at_most(a: GeneralNumber, b: GeneralNumber, less: int = 0) -> LinearFact:
    """Return the fact that a + `less` <= b."""
    return sum_is("at least 0", (b,), (a,), -less)


def is_equal(a: GeneralNumber, b: GeneralNumber) -> LinearFact:
    """Return the fact that a = b."""
    return sum_is("0", (a,), (b,))


@lru_cache(maxsize=1 << 14)
def _term(x: AffineNumber) -> Any:
    return _z3_sum(x.number, x.terms)


def _z3_sum(known: int, terms: Iterable[tuple[Hashable, int]]) -> Any:
    addends = [times * z3.Int(key_text(key)) for key, times in terms]
    return z3.Sum([*addends, z3.IntVal(known)]) if addends else z3.IntVal(known)


@lru_cache(maxsize=1 << 14)
def z3_fact(fact: LinearFact) -> Any:
    """Return a fact as a term of Z3."""
    total = _z3_sum(fact.number, sorted(fact.terms, key=lambda term: key_text(term[0])))
    return total >= 0 if fact.says == "at least 0" else total == 0 if fact.says == "0" else total != 0


def _numbers_of(model: Any) -> _Example:
    """Return the numbers of a model by name; by Z3's own functions, as its Python objects take most of the time."""
    context, of = model.ctx.ref(), model.model
    out: _Example = {}
    for k in range(z3.Z3_model_get_num_consts(context, of)):
        declared = z3.Z3_model_get_const_decl(context, of, k)
        value = z3.Z3_model_get_const_interp(context, of, declared)
        name = z3.Z3_get_symbol_string(context, z3.Z3_get_decl_name(context, declared))
        out[name] = int(z3.Z3_get_numeral_string(context, value))
    return out


class KnownFacts:
    """A set of facts: the facts `before` and one more, with answers to questions asked of them, and the sets
    `following`."""

    __slots__ = ("added", "answers", "before", "examples", "following")

    def __init__(self, before: KnownFacts | None, added: tuple[Any, ...], examples: list[_Example]) -> None:
        self.before, self.added, self.examples = before, added, examples
        self.answers: dict[LinearFact, bool] = {}
        self.following: dict[Hashable, KnownFacts] = {}

    def answer(self, fact: LinearFact) -> bool | None:
        """Return whether the facts imply another one; None if neither is known."""
        answer = self.answers.get(fact)
        before = self.before
        while answer is None and before is not None:
            if before.answers.get(fact):
                answer = True  # More facts imply it too.
            before = before.before
        if answer is None and not all(fact.holds(example) for example in self.examples):
            answer = False
        return answer

    def add_example(self, example: _Example) -> None:
        """Keep numbers for which these facts hold."""
        facts: KnownFacts | None = self
        while facts is not None:
            facts.examples = [*facts.examples, example][-_EXAMPLES:]
            facts = facts.before


class LinearFacts:
    """Facts about unknown integers: `known` has the current facts, `equalities` the sums among them that are 0.

    Paths from one head begin with the same facts, and many then add the same facts. So sets of facts form a tree: a
    question that was asked of an equal set is answered without Z3, and a set implies all that sets before it imply.
    """

    def __init__(self) -> None:
        self._solver = z3.SolverFor("QF_LIA")
        self._solver.set("rlimit", _LIMIT)
        self._count = 0
        self.known = KnownFacts(None, (), [])
        self._in_solver = [self.known]
        self._marked: tuple[KnownFacts, list[AffineNumber], list[_Smaller], int] | None = None
        self.equalities: list[AffineNumber] = []
        self._smaller: list[_Smaller] = []

    def term(self, x: GeneralNumber) -> Any:
        """Return a number as a term of Z3."""
        return _term(number(x))

    def assume(self, *facts: Any) -> None:
        """Add facts of any kind, as terms of Z3, before all other facts."""
        assert self.known.before is None
        self.known = KnownFacts(None, (), [])
        self._put_into_solver()
        self._solver.add(*facts)

    def assume_fact(self, fact: LinearFact) -> None:
        """Add a fact to the current facts."""
        known = self.known
        if fact not in known.following:
            examples = [x for x in known.examples if fact.holds(x)]
            known.following[fact] = KnownFacts(known, (z3_fact(fact),), examples)
        self.known = known.following[fact]

    @property
    def is_marked(self) -> bool:
        """Return whether there is a mark to go back to."""
        return self._marked is not None

    def mark(self) -> None:
        """Mark the current facts."""
        self._marked = self.known, list(self.equalities), list(self._smaller), self._count

    def rewind(self) -> None:
        """Leave out all facts that were added after the mark."""
        assert self._marked is not None
        self.known, equalities, smaller, self._count = self._marked
        self.equalities, self._smaller = list(equalities), list(smaller)

    def go_to(self, known: KnownFacts) -> None:
        """Make the facts of another path the current ones, to ask questions of them."""
        self.known = known

    def implies(self, *facts: LinearFact) -> bool:
        """Return whether the facts imply all of some others."""
        return len(self.find_implied(facts)) == len(set(facts))

    def find_implied(self, facts: Iterable[LinearFact]) -> set[LinearFact]:
        """Return which of some facts the current facts imply.

        They are asked together, which takes less time, and answers are kept for when they are asked again.
        """
        known = self.known
        answers = {fact: known.answer(fact) if fact.terms else fact.holds({}) for fact in facts}
        if left := [fact for fact, answer in answers.items() if answer is None]:
            answers |= self._ask(left)
        implied = {fact for fact, answer in answers.items() if answer}
        known.answers |= {fact: fact in implied for fact in answers}
        return implied

    def _ask(self, facts: list[LinearFact]) -> dict[LinearFact, bool]:
        """Return by Z3 which of some facts are implied. Most often all are, so that one question is enough."""
        self._put_into_solver()
        self._solver.push()
        opposites = [z3_fact(fact.opposite) for fact in facts]
        self._solver.add(z3.Or(opposites) if len(opposites) > 1 else opposites[0])
        answer = self._solver.check()
        example: _Example | None = None
        if answer == z3.sat:
            example = _numbers_of(self._solver.model())
        self._solver.pop()
        if answer == z3.unsat:
            return dict.fromkeys(facts, True)
        wrong = {fact: False for fact in facts if example is not None and not fact.holds(example)}
        if example is not None:
            self.known.add_example(example)
        if not wrong and len(facts) == 1:
            return {facts[0]: False}
        if not wrong:
            return {fact: self._ask([fact])[fact] for fact in facts}
        left = [fact for fact in facts if fact not in wrong]
        return wrong | self._ask(left) if left else wrong

    def _put_into_solver(self) -> None:
        """Give the solver the current facts."""
        new: list[KnownFacts] = []
        known: KnownFacts | None = self.known
        while known is not None and known not in self._in_solver:
            new.append(known)
            known = known.before
        shared = self._in_solver.index(known) + 1 if known else 0
        self._solver.pop(sum(facts.before is not None for facts in self._in_solver[shared:]))
        self._in_solver = [*self._in_solver[:shared], *reversed(new)]
        for facts in reversed(new):
            if facts.before is not None:
                self._solver.push()
                self._solver.add(*facts.added)

    def at_most(self, a: GeneralNumber, b: GeneralNumber, *, less: int = 0) -> bool:
        """Return whether a + `less` <= b is implied."""
        return self.implies(is_at_most(a, b, less))

    def equal(self, a: GeneralNumber, b: GeneralNumber) -> bool:
        """Return whether a = b is implied."""
        return self.implies(is_equal(a, b))

    def smaller(self, a: GeneralNumber, b: GeneralNumber) -> GeneralNumber:
        """Return the smaller of two numbers: a new unknown, if the facts do not say which it is."""
        first, second = is_at_most(a, b), is_at_most(b, a)
        implied = self.find_implied([first, second])
        if implied:
            return a if first in implied else b
        self._count += 1
        out = AffineNumber.of_unknown(("smaller", self._count))
        smaller, known = (out, a, b), self.known
        if smaller not in known.following:
            x, y, z = self.term(a), self.term(b), self.term(out)
            known.following[smaller] = KnownFacts(known, (z <= x, z <= y, z3.Or(z == x, z == y)), [])
        self.known = known.following[smaller]
        self._smaller.append(smaller)
        return out

    def all_equalities(self) -> list[AffineNumber]:
        """Return the sums that are known to be 0, including sums of smaller numbers that were decided later."""
        out = list(self.equalities)
        # All of them together, as one question: the answers are kept for the loop below.
        self.find_implied(is_equal(smaller, x) for smaller, a, b in self._smaller for x in (a, b))
        for smaller, a, b in self._smaller:
            out += [smaller - x for x in (a, b) if self.equal(smaller, x)][:1]
        return out

    def comparison(self, kind: str, a: GeneralNumber, b: GeneralNumber) -> LinearFact:
        """Return what a processor decides of two registers that hold numbers, as a fact.

        Registers hold numbers modulo 2**64; NotShown unless the facts say which numbers these are.
        """
        if kind == "equal":
            gap = number(a) - b
            fact = is_equal(gap, 0)
            ranges: dict[GeneralNumber, tuple[LinearFact, LinearFact]] = {
                gap: (is_at_most(1 - _END, gap), is_at_most(gap, _END - 1))
            }
        else:
            low = -_END // 2 if kind == "below signed" else 0
            # Of a number that is known it is the one in the range that is equal modulo 2**64.
            x, y = (number(n) if number(n).terms else (number(n).number - low) % _END + low for n in (a, b))
            fact = is_at_most(x, y, less=1)
            ranges = {n: (is_at_most(low, n), is_at_most(n, low + _END - 1)) for n in (x, y)}
        implied = self.find_implied([fact, fact.opposite, *(part for both in ranges.values() for part in both)])
        for n, both in ranges.items():
            if not implied.issuperset(both):
                raise NotShown(f"it compares numbers, and {n} may leave 64 bits")
        return fact

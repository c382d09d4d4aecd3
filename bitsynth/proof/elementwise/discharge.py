"""Proves by Z3 that an elementwise program computes its spec, for every input.

Each result of a unit is compared with the spec on the same unknowns. Lanes that compute alike give the same question,
which is asked once. `unknown` is an error, never a pass.

Cut points replace arithmetic that a spec and a program share by unknowns, so that Z3 need not reason about it. While
the spec is evaluated, the domain replaces each product, float32 operation and rounding by an unknown. Where the
program does the same operation on the same operands, it meets the same unknown:

    spec       clamp(nearest(s * m))        cut0 = s * m; cut1 = nearest(cut0); clamp(cut1)
    program    narrow(nearest(s * m))       narrow(cut1)
    question   clamp(cut1) != narrow(cut1)?

What holds for all values of the unknowns holds for the operations. For n, the integer nearest to x, one fact is kept:
n <= k where x < k, and n >= k elsewhere, for an integer k, as rounding to nearest is monotone and keeps integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bitsynth.errors import Refuted
from bitsynth.isa.bits import Bits
from bitsynth.isa.domains.symbolic import SymbolicDomain
from bitsynth.kernel.elementwise.program import ElementwiseProgram, check_shape
from bitsynth.kernel.elementwise.run import Values, at, execute
from bitsynth.solver.budget import Budget
from bitsynth.solver.z3 import z3
from bitsynth.spec.elementwise import WORD_BITS
from bitsynth.spec.words import WordsSpec

_FLOAT = 32


class CuttingDomain(SymbolicDomain):
    """Z3's terms, with an unknown, one of `names`, for each operation met while `learning`."""

    def __init__(self) -> None:
        self.learning = True
        self.names: set[str] = set()
        self._cuts: dict[tuple[str, Any, Any], Any] = {}
        self._facts: list[Any] = []

    def mul(self, a: Any, b: Any, w: int) -> Any:
        return self._share("mul", a, b, w, super().mul(a, b, w))

    def fmul(self, a: Any, b: Any, toward_zero: bool = False) -> Any:
        product = super().fmul(a, b, toward_zero)
        return product if toward_zero else self._share("fmul", a, b, _FLOAT, product)

    def fadd(self, a: Any, b: Any) -> Any:
        return self._share("fadd", a, b, _FLOAT, super().fadd(a, b))

    def fdiv(self, a: Any, b: Any) -> Any:
        return self._share("fdiv", a, b, _FLOAT, super().fdiv(a, b), commutes=False)

    def nearest(self, a: Any) -> Any:
        if _is_choice(a):
            return z3.If(a.arg(0), self.nearest(a.arg(1)), self.nearest(a.arg(2)))
        return self._share("nearest", a, a, _FLOAT, super().nearest(a))

    def flt(self, a: Any, b: Any) -> Any:
        if _is_choice(a):
            return z3.If(a.arg(0), self.flt(a.arg(1), b), self.flt(a.arg(2), b))
        less = super().flt(a, b)
        limit = z3.simplify(super().nearest(b))
        nearest = self._cuts.get(self._key("nearest", a, a, _FLOAT))
        if nearest is not None and z3.is_true(z3.simplify(self.float_of(limit) == b)):
            monotone = z3.If(less, nearest <= limit, nearest >= limit)
            self._facts.append(z3.Or(z3.fpIsNaN(z3.fpBVToFP(a, z3.Float32())), monotone))
        return less

    def facts(self, *terms: Any) -> list[Any]:
        """Return the facts about unknowns that occur in the terms."""
        read = {x.get_id() for term in terms for x in _unknowns_in(term)}
        return [fact for fact in self._facts if {x.get_id() for x in _unknowns_in(fact)} <= read]

    def _share(self, operation: str, a: Any, b: Any, w: int, result: Any, *, commutes: bool = True) -> Any:
        """Return the unknown of an operation on two terms, in either order if it `commutes`; else `result`."""
        key = self._key(operation, a, b, w) if commutes else (f"{operation}{w}", z3.simplify(a), z3.simplify(b))
        if self.learning and key not in self._cuts:
            self._cuts[key] = z3.BitVec(f"cut{len(self._cuts)}", w)
            self.names.add(str(self._cuts[key]))
        return self._cuts.get(key, result)

    def _key(self, operation: str, a: Any, b: Any, w: int) -> tuple[str, Any, Any]:
        one, other = sorted((z3.simplify(a), z3.simplify(b)), key=lambda x: int(x.get_id()))
        return f"{operation}{w}", one, other


def bits_alone(claims: list[Any]) -> list[Any]:
    """Return the claims with float32 arithmetic, if there is any, expanded to bit-vectors."""
    if not any(z3.is_fp(x) for claim in claims for x in _terms(claim)):
        return claims
    z3.set_param("rewriter.hi_fp_unspecified", True)
    goal = z3.Goal()
    goal.add(*claims)
    (expanded,) = z3.Then("simplify", "fpa2bv", "simplify")(goal)
    return list(expanded)


def _is_choice(x: Any) -> bool:
    return bool(z3.is_app(x) and x.decl().kind() == z3.Z3_OP_ITE)


def _unknowns_in(x: Any) -> list[Any]:
    """Return the unknowns in a term."""
    return [t for t in _terms(x) if z3.is_const(t) and t.decl().kind() == z3.Z3_OP_UNINTERPRETED]


def _terms(x: Any) -> Iterator[Any]:
    """Yield every term in `x`, once."""
    seen: set[int] = set()
    waiting = [x]
    while waiting:
        term = waiting.pop()
        if term.get_id() not in seen:
            seen.add(term.get_id())
            waiting += term.children()
            yield term


@dataclass(frozen=True)
class _Result:
    """One result of the program and of the spec, the assumptions about inputs, and the nested conditions."""

    got: Any
    want: Any
    assumed: list[Any]
    nested: list[Any]
    alike: list[Any]

    def text(self) -> str:
        """Return the question in words of SMT-LIB."""
        return " ".join(str(x.sexpr()) for x in (self.got, self.want, *self.assumed, *self.nested, *self.alike))


def discharge(program: ElementwiseProgram, budget: Budget) -> int:
    """Have Z3 prove every result; the number of questions asked. Refuted has values for which one is wrong.

    A loop is proved by induction: an iteration adds its condition to the count, and what follows gives the number
    counted; the spec's meaning is the number of conditions, and bytes hold it.
    """
    check_shape(program)
    before = budget.asked
    if program.iteration and program.last:
        discharge(program.iteration, budget)
        discharge(program.last, budget)
        _require_count(program, budget)
    else:
        _discharge(program, budget)
    return budget.asked - before


def _discharge(program: ElementwiseProgram, budget: Budget) -> None:
    """Prove the results of a program without a loop."""
    given, seen = _unknowns(program), set[str]()
    names = {str(x) for values in given.values() for value in values for x in value}
    domain = CuttingDomain()
    for channel, result in enumerate(_results(program, given, domain)):
        question = _canonical(result.text(), names | domain.names)
        if question not in seen:
            seen.add(question)
            for claims in _claims(result):
                _refute(program, f"channel {channel}", claims, budget)


def _require_count(program: ElementwiseProgram, budget: Budget) -> None:
    """Prove that the meaning counts the values of the last input for which the condition of an iteration holds."""
    spec, domain = program.spec, CuttingDomain()
    values = at(program, _unknowns(program), 0)
    over = spec.inputs[-1].name
    conditions = [spec.bits(spec.nested, domain, {**values, over: [x]})[0] for x in values[over]]
    wide = [z3.ZeroExt(spec.out_bits - 1, x) if spec.out_bits > 1 else x for x in conditions]
    count = sum(wide[1:], wide[0])
    _refute(program, "the number", [z3.simplify(count != spec.value(domain, values))], budget)


def _refute(program: ElementwiseProgram, what: str, claims: Sequence[Any], budget: Budget) -> None:
    """Undo `claims`, which hold together only where the program is wrong."""
    model = budget.check(f"{program.name}: {what}", bits_alone(list(claims)))
    if model is not None:
        values = ", ".join(f"{name} = {value:#x}" for name, value in sorted(model.values.items()))
        raise Refuted(f"{program.name}: {what} of a unit is wrong for {values}")


def _results(program: ElementwiseProgram, given: Values, domain: CuttingDomain) -> Iterator[_Result]:
    """Yield the results of all channels: first as they should be, which the domain learns from."""
    spec = program.spec
    values = [at(program, given, channel) for channel in range(program.unit)]
    wanted = [z3.simplify(spec.value(domain, v)) for v in values]
    conditions = [
        [
            [z3.simplify(x == 1) for x in spec.bits(texts, domain, v)]
            for texts in (spec.assumes, spec.nested, spec.alike)
        ]
        for v in values
    ]
    domain.learning = False
    results = execute(program, domain, given)
    for got, want, (assumed, *nested) in zip(map(z3.simplify, results), wanted, conditions, strict=True):
        yield _Result(got, want, [*assumed, *domain.facts(got, want)], *nested)


def _claims(result: _Result) -> Iterator[list[Any]]:
    """Yield sets of terms; if the result is right, no set holds anywhere.

    Conditions nest; so of n of them the first k hold and the others do not, for some k. Each k is a case.
    """
    for outer, inner in pairwise(result.nested):
        yield [*result.assumed, inner, z3.Not(outer)]
    for one, other in zip(result.nested, result.alike, strict=False):
        yield [*result.assumed, one != other]
    for k in range(len(result.nested) + 1):
        decided = [(c, n < k) for conditions in (result.nested, result.alike) for n, c in enumerate(conditions)]
        facts = [c if holds else z3.Not(c) for c, holds in decided]
        yield [*result.assumed, *facts, _settle(result.got, decided) != _settle(result.want, decided)]


def _settle(term: Any, decided: Sequence[tuple[Any, bool]]) -> Any:
    """Substitute the known conditions until nothing changes: a decided choice exposes more of them."""
    pairs = [(condition, z3.BoolVal(holds)) for condition, holds in decided]
    while True:
        simpler = z3.simplify(z3.substitute(term, *pairs)) if pairs else term
        if simpler.eq(term):
            return term
        term = simpler


def _unknowns(program: ElementwiseProgram) -> Values:
    return {
        x.name: [
            [z3.BitVec(f"{x.name}{k}_{p}", x.lane.bits) for p in range(1 if x.is_shared else program.unit)]
            for k in range(x.values)
        ]
        for x in program.spec.inputs
    }


def _canonical(question: str, names: AbstractSet[str]) -> str:
    """Return the question with its unknowns, called `names`, renamed in order of first use."""
    words = question.replace("(", " ( ").replace(")", " ) ").split()
    renamed: dict[str, str] = {}
    return " ".join(renamed.setdefault(w, f"y{len(renamed)}") if w in names else w for w in words)


_WORDS_DOMAIN = SymbolicDomain()


def discharge_words(spec: WordsSpec, budget: Budget) -> None:
    """Have Z3 prove every place of the words of `spec`; Refuted has words for which one is wrong."""
    a, b = ([z3.BitVec(f"{name}{k}", WORD_BITS) for k in range(spec.planes)] for name in "ab")
    outputs = [x.v for x in spec.values(*([Bits(_WORDS_DOMAIN, WORD_BITS, x) for x in words] for words in (a, b)))]
    first, second = (x.name for x in spec.of_codes.inputs)
    wrong = []
    for place in range(WORD_BITS):
        given = {first: [_code(a, place)], second: [_code(b, place)]}
        wrong.append(_code(outputs, place) != spec.of_codes.value(_WORDS_DOMAIN, given))
    model = budget.check(f"{spec.name}: every place", [z3.Or(wrong)])
    if model is not None:
        values = ", ".join(f"{name} = {value:#x}" for name, value in sorted(model.values.items()))
        raise Refuted(f"{spec.name} is wrong for {values}")


def _code(words: list[Any], place: int) -> Any:
    """Return the code at a place of words, in a byte."""
    bits = [z3.Extract(place, place, x) for x in words]
    code = z3.Concat(*reversed(bits)) if len(bits) > 1 else bits[0]
    return z3.simplify(z3.ZeroExt(8 - len(bits), code))

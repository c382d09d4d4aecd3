"""Proves by Z3 that an elementwise program computes its spec, for every input.

Each result of a unit is compared with the spec on the same unknowns. Lanes that compute alike give the same question,
which is asked once. `unknown` is an error, never a pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bitsynth.errors import Refuted
from bitsynth.kernel.elementwise.program import ElementwiseProgram, check_shape
from bitsynth.kernel.elementwise.run import Values, at, execute
from bitsynth.proof.elementwise.cuts import CuttingDomain, bits_alone
from bitsynth.solver.budget import Budget
from bitsynth.solver.z3 import z3


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
    """Yield sets of terms, each of which holds nowhere if the result is right.

    Conditions nest; so of n of them the first k hold and the others do not, for some k. Each k is a case.
    """
    for outer, inner in pairwise(result.nested):
        yield [*result.assumed, inner, z3.Not(outer)]
    for one, other in zip(result.nested, result.alike, strict=False):
        yield [*result.assumed, one != other]
    for k in range(len(result.nested) + 1):
        decided = [(c, n < k) for conditions in (result.nested, result.alike) for n, c in enumerate(conditions)]
        facts = [c if holds else z3.Not(c) for c, holds in decided]
        yield [*result.assumed, *facts, _settled(result.got, decided) != _settled(result.want, decided)]


def _settled(term: Any, decided: Sequence[tuple[Any, bool]]) -> Any:
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

"""Proof that an elementwise program gives what its spec says, for every input.

Z3 compares every result of a unit with the spec on the same unknowns. Lanes that do the same thing ask the same
question, which is asked once. `unknown` is an error, never a pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

from bitsynth.errors import Refuted
from bitsynth.isa.domains.symbolic import SymbolicDomain
from bitsynth.kernel.element_run import Values, at, execute
from bitsynth.kernel.elementwise import ElementwiseProgram, check_shape
from bitsynth.solver.budget import Budget
from bitsynth.solver.z3 import z3


def discharge(program: ElementwiseProgram, budget: Budget) -> int:
    """Have Z3 prove every result; the number of questions asked. Refuted has values for which one is wrong."""
    check_shape(program)
    asked: set[str] = set()
    given = _unknowns(program)
    names = {str(x) for values in given.values() for value in values for x in value}
    for channel, claims in enumerate(_claims(program, given)):
        question = _canonical(claims, names)
        if question in asked:
            continue
        asked.add(question)
        model = budget.check(f"{program.name}: channel {channel}", claims)
        if model is not None:
            values = ", ".join(f"{name} = {value:#x}" for name, value in sorted(model.values.items()))
            raise Refuted(f"{program.name}: channel {channel} of a unit is wrong for {values}")
    return len(asked)


def _claims(program: ElementwiseProgram, given: Values) -> Iterator[list[Any]]:
    """For each channel, terms that hold together only where the program is wrong."""
    domain = SymbolicDomain()
    found = execute(program, domain, given)
    for channel, got in enumerate(found):
        values = at(program, given, channel)
        want = program.spec.value(domain, values)
        assumed = [z3.simplify(x == 1) for x in program.spec.assumed(domain, values)]
        yield [*assumed, z3.simplify(got) != z3.simplify(want)]


def _unknowns(program: ElementwiseProgram) -> Values:
    return {
        x.name: [
            [z3.BitVec(f"{x.name}{k}_{p}", x.lane.bits) for p in range(1 if x.per in ("row", "all") else program.unit)]
            for k in range(x.values)
        ]
        for x in program.spec.inputs
    }


def _canonical(claims: list[Any], names: Set[str]) -> str:
    """The question with its unknowns, called `names`, renamed in order of first use."""
    words = " ".join(str(c.sexpr()) for c in claims).replace("(", " ( ").replace(")", " ) ").split()
    renamed: dict[str, str] = {}
    return " ".join(renamed.setdefault(w, f"y{len(renamed)}") if w in names else w for w in words)

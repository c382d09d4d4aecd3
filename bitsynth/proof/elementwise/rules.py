"""How elementwise programs are proved: each is run on chosen elements, and Z3 proves every result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitsynth.isa.load import load
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.proof.elementwise import checker, ordering
from bitsynth.proof.obligations import Obligation
from bitsynth.proof.rules import Lemmas, ProofRules

if TYPE_CHECKING:
    from bitsynth.solver.budget import Budget

_NO_LEMMAS: Lemmas = ((), frozenset())
"""A program is proved as a whole, not by lemmas."""


class ElementwiseRules(ProofRules[ElementwiseProgram]):
    """The rules of elementwise programs."""

    differ = "the statements differ"

    def examine(self, artifact: ElementwiseProgram, *, thorough: bool) -> Lemmas:
        """Run the program on chosen elements, more of them if `thorough`."""
        checker.check(artifact, checker.VERIFIED if thorough else checker.LOADED)
        return _NO_LEMMAS

    def discharge(self, artifact: ElementwiseProgram, obligations: frozenset[Obligation], budget: Budget) -> int:
        """Have Z3 prove every result of a unit."""
        from bitsynth.proof.elementwise.discharge import discharge

        return discharge(artifact, budget)

    def statements(self, artifact: ElementwiseProgram, obligations: frozenset[Obligation]) -> tuple[str, ...]:
        """Return what every result is, given what the instructions do."""
        return statements(artifact)

    def derive(self, base: ElementwiseProgram, proved: Lemmas, artifact: ElementwiseProgram) -> Lemmas:
        """Show that the program does what its base does and then moves results; Refuted or SpecError if it does not.

        Shown here, for every value that results may have: the orders of its inputs say where each result goes.
        """
        ordering.check(base, artifact)
        checker.check(artifact)
        return _NO_LEMMAS


def statements(program: ElementwiseProgram) -> tuple[str, ...]:
    """Return the result of each channel of a unit, what is assumed, and the meaning of each instruction form used."""
    spec, isa = program.spec, load(program.isa)
    names = ", ".join(f"{x.name}: {x.type}{f'[{x.count}]' if x.count else ''}" for x in spec.inputs)
    given = "".join(f" with {text}" for text in spec.assumes)
    return (f"for every {names}{given}: {spec.meaning}", *(f"{op} is {isa[op].meaning}" for op in program.forms))

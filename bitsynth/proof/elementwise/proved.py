"""The type of a proved elementwise program: to construct one is to prove it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from bitsynth.errors import SpecError
from bitsynth.isa.load import load
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.proof.elementwise import checker, ordering
from bitsynth.proof.sealed import Sealed

if TYPE_CHECKING:
    from bitsynth.solver.budget import Budget


@final
@dataclass(frozen=True, init=False, eq=False)
class ProvedProgram(Sealed, made="a program is proved by ProvedProgram.by_solver or .on_record"):
    """A program that gives what its spec says; made by `by_solver` and `on_record` alone."""

    __slots__ = ("program",)

    program: ElementwiseProgram

    @staticmethod
    def by_solver(program: ElementwiseProgram, budget: Budget) -> ProvedProgram:
        """Return the program, checked and proved by Z3; Refuted if it is wrong, Undecided if the budget is spent."""
        from bitsynth.proof.elementwise.discharge import discharge

        checker.check(program, checker.VERIFIED)
        discharge(program, budget)
        return ProvedProgram._of(program=program)

    @staticmethod
    def on_record(program: ElementwiseProgram, discharged: tuple[str, ...]) -> ProvedProgram:
        """Return the program, checked, which a certificate says Z3 proved of these `statements`.

        SpecError if they differ.
        """
        checker.check(program)
        if statements(program) != discharged:
            raise SpecError(f"{program.name}: the statements differ")
        return ProvedProgram._of(program=program)

    def moved(self, program: ElementwiseProgram) -> ProvedProgram:
        """Return `program`, proved to do what this one does and then move results; Refuted or SpecError if it does not.

        Shown here, for every value that results may have: the orders of its inputs say where each result goes.
        """
        ordering.check(self.program, program)
        checker.check(program)
        return ProvedProgram._of(program=program)

    @property
    def statements(self) -> tuple[str, ...]:
        """The proved facts in words: what every result is, given what the instructions do."""
        return statements(self.program)


def statements(program: ElementwiseProgram) -> tuple[str, ...]:
    """Return the result of each channel of a unit, what is assumed, and the meaning of each instruction form used."""
    spec, isa = program.spec, load(program.isa)
    names = ", ".join(f"{x.name}: {x.type}{f'[{x.count}]' if x.count else ''}" for x in spec.inputs)
    given = "".join(f" with {text}" for text in spec.assumes)
    return (f"for every {names}{given}: {spec.meaning}", *(f"{op} is {isa[op].meaning}" for op in program.forms))

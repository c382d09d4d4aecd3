"""The type of a proved artifact, and the rules of each kind: to construct a `Proved` is to prove it by them.

The checker of the artifact's kind shows its lemmas and lists the obligations they rest on. These are settled in one
of three ways, and there are no others: Z3 discharges them, a stored certificate says that Z3 did (`bitsynth verify`
has it done again), or they follow from the obligations of another form of the same artifact.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Self, TypeVar, final

from bitsynth.errors import SpecError
from bitsynth.isa.load import load
from bitsynth.kernel.depthwise import DepthwiseProgram
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.kernel.program import Kernel
from bitsynth.proof.obligations import Obligation

if TYPE_CHECKING:
    from bitsynth.solver.budget import Budget

Artifact = Kernel | DepthwiseProgram | ElementwiseProgram
A = TypeVar("A", bound=Artifact)
Lemmas = tuple[tuple[str, ...], frozenset[Obligation]]
"""Lemmas that compose into correctness, and the obligations that they rest on."""


class ProofRules(ABC, Generic[A]):
    """How artifacts of one kind are proved. Each method raises unless its claim holds.

    Attributes:
        differ: Why a record is refused whose statements are not the ones that the artifact rests on.
    """

    differ = "the instruction lemmas differ"

    @abstractmethod
    def examine(self, artifact: A, *, thorough: bool) -> Lemmas:
        """Return what the checker shows without Z3; Refuted or SpecError if it does not.

        If `thorough` nothing is on record yet, and the checker tries more.
        """

    def discharge(self, artifact: A, obligations: frozenset[Obligation], budget: Budget) -> int:
        """Have Z3 prove the statements; return how many queries that took.

        Refuted if one is wrong, Undecided if the budget is spent.
        """
        from bitsynth.proof import discharge

        return discharge.discharge(load(artifact.isa), obligations, budget)

    def statements(self, artifact: A, obligations: frozenset[Obligation]) -> tuple[str, ...]:
        """Return what Z3 proves, in words."""
        return statements(obligations)

    @abstractmethod
    def derive(self, base: A, proved: Lemmas, artifact: A) -> Lemmas:
        """Return what holds of `artifact` because `base` is `proved`; SpecError if it does not follow."""


def statements(obligations: Collection[Obligation]) -> tuple[str, ...]:
    """Return the obligations in words, sorted."""
    return tuple(sorted(o.statement for o in obligations))


How = Literal["discharged", "on record", "derived"]


def _rules(artifact: object) -> ProofRules[Any]:
    """Return the rules of the artifact's kind: the table of what can be proved, which nobody can add to."""
    kind = type(artifact)
    if kind is Kernel:
        from bitsynth.proof.matmul import MatmulRules

        return MatmulRules()
    if kind is DepthwiseProgram:
        from bitsynth.proof.depthwise import DepthwiseRules

        return DepthwiseRules()
    if kind is ElementwiseProgram:
        from bitsynth.proof.elementwise.rules import ElementwiseRules

        return ElementwiseRules()
    raise SpecError(f"nothing is proved of {kind.__name__}")


@final
@dataclass(frozen=True, init=False, eq=False)
class Proved(Generic[A]):
    """An artifact, the lemmas that compose into its correctness, and what they rest on, settled as `how` says.

    Made by `by_solver`, `on_record` and `form` alone. It has no subclasses, and is not pickled: whoever could write a
    pickle could write a proof.
    """

    # Not slots=True: before Python 3.11.3 that puts a `__setstate__` of its own in the place of the one below.
    __slots__ = ("artifact", "how", "lemmas", "obligations")

    artifact: A
    lemmas: tuple[str, ...]
    obligations: frozenset[Obligation]
    how: How

    def __init__(self) -> None:
        raise TypeError("a proof is made by Proved.by_solver, Proved.on_record or .form")

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("a proof has no other kinds")

    @staticmethod
    def by_solver(artifact: A, budget: Budget) -> Proved[A]:
        """Return the artifact, checked, and each statement that it rests on proved by Z3.

        Refuted if it is wrong, Undecided if the budget is spent.
        """
        rules = _rules(artifact)
        lemmas, obligations = rules.examine(artifact, thorough=True)
        rules.discharge(artifact, obligations, budget)
        return _seal(artifact, lemmas, obligations, "discharged")

    @staticmethod
    def on_record(artifact: A, discharged: tuple[str, ...]) -> Proved[A]:
        """Return the artifact, checked, which rests on those statements that a certificate says Z3 proved.

        SpecError if it rests on others.
        """
        rules = _rules(artifact)
        lemmas, obligations = rules.examine(artifact, thorough=False)
        if rules.statements(artifact, obligations) != discharged:
            raise SpecError(rules.differ)
        return _seal(artifact, lemmas, obligations, "on record")

    def form(self, artifact: A) -> Proved[A]:
        """Return another form of this artifact, which follows from it; SpecError or Refuted if it does not.

        A matmul kernel has forms with other rows, bounds of loops, unrolling, order or place of the bit axis, an
        elementwise program one for elements in the order of channels.
        """
        if type(artifact) is not type(self.artifact):
            raise SpecError(f"{type(artifact).__name__} is no form of {type(self.artifact).__name__}")
        lemmas, obligations = _rules(artifact).derive(self.artifact, (self.lemmas, self.obligations), artifact)
        return _seal(artifact, lemmas, obligations, "derived")

    @property
    def statements(self) -> tuple[str, ...]:
        """The statements that Z3 proves, in words."""
        return _rules(self.artifact).statements(self.artifact, self.obligations)

    def discharge(self, budget: Budget) -> int:
        """Have Z3 prove the statements again; return how many queries that took. Refuted if one is wrong."""
        return _rules(self.artifact).discharge(self.artifact, self.obligations, budget)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a proof is not pickled; pickle its artifact, which is checked again where it is read")

    def __setstate__(self, state: object) -> NoReturn:
        raise TypeError("a proof is not unpickled")


def _seal(artifact: A, lemmas: tuple[str, ...], obligations: frozenset[Obligation], how: How) -> Proved[A]:
    """Return the proof with these fields, once it is one."""
    sealed: Proved[A] = object.__new__(Proved)
    fields = {"artifact": artifact, "lemmas": lemmas, "obligations": obligations, "how": how}
    for name, value in fields.items():
        object.__setattr__(sealed, name, value)
    return sealed

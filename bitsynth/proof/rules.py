"""What a kind of artifact must show to be proved: `Proved` asks these rules, and nothing else makes a proof."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import TYPE_CHECKING, Generic, TypeVar

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
    """How artifacts of one kind are proved. Each method raises unless what it is asked for holds.

    Attributes:
        differ: Why a record is refused whose statements are not those that the artifact rests on.
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

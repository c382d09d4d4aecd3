"""The type of a proved kernel: to construct one is to prove it.

The checker composes the kernel's lemmas (`checker`) and lists the obligations they rest on, one
for each use of an instruction. These are settled in one of three ways, and there are no others: Z3 discharges
each, a stored certificate says that Z3 did (`bitsynth verify` has it done again), or they follow from
those of another form of the same kernel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, final

import msgspec

from bitsynth.errors import SpecError
from bitsynth.isa.load import Isa, load
from bitsynth.kernel.program import BIT_AXES, ORDERS, Kernel, Pass
from bitsynth.kernel.wellformed import check_shape
from bitsynth.proof import checker
from bitsynth.proof.obligations import Obligation, ObligationRecorder, implies
from bitsynth.proof.orders import check_order
from bitsynth.proof.sealed import Sealed

if TYPE_CHECKING:
    from bitsynth.solver.budget import Budget

How = Literal["discharged", "on record", "derived"]
Settle = Callable[[Isa, Collection[Obligation]], object]
"""What raises unless all obligations hold."""


@final
@dataclass(frozen=True, init=False, eq=False)
class Proved(Sealed, made="a kernel is proved by Proved.by_solver, Proved.on_record or .form"):
    """A kernel, the lemmas that compose into its correctness, and the obligations they rest on, settled as `how` says.

    Made by `by_solver`, `on_record` and `form` alone.
    """

    __slots__ = ("how", "kernel", "lemmas", "obligations")

    kernel: Kernel
    lemmas: tuple[str, ...]
    obligations: frozenset[Obligation]
    how: How

    @staticmethod
    def by_solver(kernel: Kernel, budget: Budget) -> Proved:
        """Return the kernel, each obligation discharged by Z3.

        Refuted if one is wrong, Undecided if the budget is spent.
        """
        from bitsynth.proof.discharge import discharge

        return Proved._settled(kernel, "discharged", lambda isa, obligations: discharge(isa, obligations, budget))

    @staticmethod
    def on_record(kernel: Kernel, discharged: tuple[str, ...]) -> Proved:
        """Return the kernel, whose obligations are those a certificate says were discharged.

        SpecError if they are not.
        """
        return Proved._settled(kernel, "on record", recorded(discharged))

    def form(self, kernel: Kernel) -> Proved:
        """Return the same kernel with other rows, bounds of loops, unrolling, order or place of the bit axis.

        SpecError for any other kernel, and if an obligation neither equals nor is narrower than one of this one's.
        """
        if _without_form(kernel) != _without_form(self.kernel):
            raise SpecError("another kernel is not a form of this one: it wants a proof of its own")
        if _as_checked(kernel) == _as_checked(self.kernel):
            check_shape(load(kernel.isa), kernel)
            check_order(kernel)
            return Proved._of(kernel=kernel, lemmas=self.lemmas, obligations=self.obligations, how="derived")
        return Proved._settled(kernel, "derived", self._require_implied)

    def _require_implied(self, isa: Isa, obligations: Collection[Obligation]) -> None:
        discharged_of: dict[tuple[str, int], list[Obligation]] = defaultdict(list)
        for obligation in self.obligations:
            discharged_of[obligation.op, obligation.imm].append(obligation)
        for wanted in sorted(set(obligations) - self.obligations, key=lambda u: u.statement):
            if not any(implies(isa, wider, wanted) for wider in discharged_of[wanted.op, wanted.imm]):
                raise SpecError(
                    f"this form of the kernel does not follow from its proof ({wanted.statement}); take another"
                )

    @property
    def statements(self) -> tuple[str, ...]:
        """The obligations in words, sorted."""
        return statements(self.obligations)

    @staticmethod
    def _settled(kernel: Kernel, how: How, settle: Settle) -> Proved:
        """Return the kernel as checked, once `settle` has returned, which raises unless all obligations hold."""
        lemmas, obligations = examine(kernel)
        check_order(kernel)
        settle(load(kernel.isa), obligations)
        return Proved._of(kernel=kernel, lemmas=lemmas, obligations=obligations, how=how)


def _as_checked(kernel: Kernel) -> Kernel:
    """Return the kernel without the fields that lemmas do not depend on, such as the number of rows."""
    return msgspec.structs.replace(kernel, rows=1, unroll=0, bit_axis=BIT_AXES[0], order=ORDERS[0])


def _without_form(kernel: Kernel) -> Kernel:
    """Return the kernel without the fields in which its forms differ."""
    return _as_checked(kernel).with_passes(_without_bounds)


def _without_bounds(loop: Pass) -> Pass:
    loops = tuple(msgspec.structs.replace(x, trip_count=1) for x in loop.loops)
    return msgspec.structs.replace(loop, loops=loops)


def examine(kernel: Kernel) -> tuple[tuple[str, ...], frozenset[Obligation]]:
    """Return the checker's lemmas, and the obligations they rest on; Refuted or SpecError if it finds none."""
    obligations: set[Obligation] = set()
    checked = checker.check(kernel, lambda isa, domain: ObligationRecorder(isa, domain, seen=obligations))
    return checked.lemmas, frozenset(obligations)


def statements(obligations: Collection[Obligation]) -> tuple[str, ...]:
    """Return the obligations in words, sorted."""
    return tuple(sorted(o.statement for o in obligations))


def recorded(discharged: tuple[str, ...]) -> Settle:
    """Settles obligations by a certificate that says that `discharged` ones hold; SpecError if they are others."""

    def compare(_: Isa, obligations: Collection[Obligation]) -> None:
        if statements(obligations) != discharged:
            raise SpecError("the instruction lemmas differ")

    return compare

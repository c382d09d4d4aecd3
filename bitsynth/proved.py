"""A kernel that is right for every input, as a type: to make one is to prove it.

The checker composes the kernel's lemmas (`verify`) and lists the uses of instructions they
rest on, its obligations. These are settled in one of three ways: Z3 discharges each (`prove`), a stored
certificate says that Z3 did (`on_record`; `bitsynth verify` has it done again), or lemmas that were
discharged for another form of the kernel say as much or more (`implied_by`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NoReturn, final

from bitsynth import verify
from bitsynth.errors import Refuted, SpecError
from bitsynth.isa.load import Isa, load
from bitsynth.program import Kernel
from bitsynth.uses import Recorder, Use, implies

Discharge = Callable[[Isa, Collection[Use]], object]
"""Settles obligations: returns where all of them hold, raises where one does not or is not known to."""


@final
@dataclass(frozen=True, init=False, eq=False, slots=True)
class Proved:
    """A kernel, the lemmas that compose into its correctness, and the obligations they rest on, all settled.

    There is no way to one but the checker and a `Discharge`; Refuted, Undecided or SpecError where either fails.
    """

    kernel: Kernel
    lemmas: tuple[str, ...]
    obligations: frozenset[Use]

    def __init__(self, kernel: Kernel, discharge: Discharge) -> None:
        lemmas, obligations = examine(kernel)
        discharge(load(kernel.isa), obligations)
        object.__setattr__(self, "kernel", kernel)
        object.__setattr__(self, "lemmas", lemmas)
        object.__setattr__(self, "obligations", frozenset(obligations))

    @property
    def statements(self) -> tuple[str, ...]:
        """The obligations in words, sorted."""
        return statements(self.obligations)

    def __copy__(self) -> Proved:
        return self

    def __deepcopy__(self, memo: object) -> Proved:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a proved kernel is not pickled: store it, and load it where it is checked again")


def examine(kernel: Kernel) -> tuple[tuple[str, ...], set[Use]]:
    """The checker's lemmas, and the instruction uses they rest on; Refuted or SpecError where it finds none."""
    uses: set[Use] = set()
    checked = verify.check(kernel, lambda isa, domain: Recorder(isa, domain, seen=uses))
    return checked.lemmas, uses


def statements(uses: Collection[Use]) -> tuple[str, ...]:
    """The uses in words, sorted."""
    return tuple(sorted(u.statement for u in uses))


def on_record(discharged: tuple[str, ...]) -> Discharge:
    """What takes the word of a certificate: the obligations are those it says were discharged, no more and no fewer."""

    def compare(_: Isa, obligations: Collection[Use]) -> None:
        if statements(obligations) != discharged:
            raise SpecError("the instruction lemmas differ")

    return compare


def implied_by(proved: Proved) -> Discharge:
    """What settles obligations that equal, or are narrower than, those of `proved`; Refuted names another."""

    def derive(isa: Isa, obligations: Collection[Use]) -> None:
        known: dict[tuple[str, int], list[Use]] = defaultdict(list)
        for use in proved.obligations:
            known[use.op, use.imm].append(use)
        for use in sorted(set(obligations) - proved.obligations, key=lambda u: u.statement):
            if not any(implies(isa, wider, use) for wider in known[use.op, use.imm]):
                raise Refuted(f"{use.statement}: follows from no lemma discharged for {proved.kernel.isa}'s kernel")

    return derive

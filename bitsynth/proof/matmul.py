"""How matmul kernels are proved.

The checker composes the kernel's lemmas (`checker`) and lists the obligations they rest on, one for each use of an
instruction, which Z3 discharges. Forms of a kernel, such as with other rows, follow from it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import msgspec

from bitsynth.errors import SpecError
from bitsynth.isa.load import Isa, load
from bitsynth.isa.tested import require_tested
from bitsynth.kernel.program import BIT_AXES, ORDERS, Kernel, Pass
from bitsynth.kernel.wellformed import check_shape
from bitsynth.proof import checker
from bitsynth.proof.multiples import encoding_obligations
from bitsynth.proof.obligations import Obligation, ObligationRecorder, implies
from bitsynth.proof.orders import check_order
from bitsynth.proof.proved import Lemmas, ProofRules


class MatmulRules(ProofRules[Kernel]):
    """The rules of matmul kernels."""

    def examine(self, artifact: Kernel, *, thorough: bool) -> Lemmas:
        """Return the lemmas of the kernel and its order, and the obligations."""
        lemmas = examine(artifact)
        check_order(artifact)
        return lemmas

    def derive(self, base: Kernel, proved: Lemmas, artifact: Kernel) -> Lemmas:
        """Return the lemmas and obligations of `artifact`, which is `base` with other rows, loops, order or bit axis.

        SpecError for any other kernel, and if an obligation neither equals an obligation of the base nor is narrower.
        """
        if _without_form(artifact) != _without_form(base):
            raise SpecError("another kernel is not a form of this one: it wants a proof of its own")
        if _as_checked(artifact) == _as_checked(base):
            check_shape(load(artifact.isa), artifact)
            require_tested(load(artifact.isa)[op] for op in artifact.forms)
            check_order(artifact)
            return proved
        lemmas, wanted = self.examine(artifact, thorough=False)
        _require_implied(load(artifact.isa), proved[1], wanted)
        return lemmas, wanted


def _require_implied(isa: Isa, discharged: frozenset[Obligation], obligations: Collection[Obligation]) -> None:
    discharged_of: dict[tuple[str, int], list[Obligation]] = defaultdict(list)
    for obligation in discharged:
        discharged_of[obligation.op, obligation.imm].append(obligation)
    for wanted in sorted(set(obligations) - discharged, key=lambda u: u.statement):
        if not any(implies(isa, wider, wanted) for wider in discharged_of[wanted.op, wanted.imm]):
            raise SpecError(
                f"this form of the kernel does not follow from its proof ({wanted.statement}); take another"
            )


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
    return checked.lemmas, frozenset(obligations | encoding_obligations(kernel, checked.passes))

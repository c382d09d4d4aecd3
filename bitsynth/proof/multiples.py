"""Proves scaled kernels: each flush adds 2^n times what the flush of the original kernel adds.

In some encodings values are multiples of the values of the kernel's codes; so `kernel/scaled.py` changes constants and
shifts of its flushes. Here the flushes of both kernels run on the same linear forms:

    original   tile column 0 gets s0 + s1       (sums of two lanes)
    n = 2      tile column 0 gets 4 * s0 + 4 * s1

All else must be the same: steps, loops, what passes carry, and constants. The instructions of the scaled flushes are
obligations of the original kernel's proof, and so is the one that halves results where values are halves of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from functools import lru_cache

import msgspec

from bitsynth.errors import Refuted, SpecError
from bitsynth.isa.domains.forms import Atoms, LinearForm
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.load import Isa, load
from bitsynth.isa.trace import Trace
from bitsynth.kernel.program import Kernel, Pass
from bitsynth.kernel.scaled import scale_flushes
from bitsynth.kernel.straight_line import sign_shift
from bitsynth.kernel.wellformed import check_shape
from bitsynth.proof.accumulation import (
    PassSummary,
    flush,
    pass_summary,
    separate_rows,
    step_summary,
)
from bitsynth.proof.obligations import Obligation, ObligationRecorder, Quotient
from bitsynth.proof.orders import check_folds
from bitsynth.proof.proved import Proved

Summaries = Sequence[Sequence[PassSummary]]
"""The summaries of passes, for each program of rows of a kernel (`Kernel.alone`)."""


def prove_multiple(proved: Proved[Kernel], doublings: int) -> Kernel:
    """Return a proved kernel with flushes that add 2^doublings times as much.

    Refuted unless they do; SpecError if they use an instruction that the kernel's proof does not list.
    """
    if not doublings:
        return proved.artifact
    multiplied, obligations = make_checked_multiple(proved.artifact, doublings)
    _require_listed(proved, obligations)
    return multiplied


@lru_cache(maxsize=64)
def make_checked_multiple(kernel: Kernel, doublings: int) -> tuple[Kernel, frozenset[Obligation]]:
    """Return the kernel that `scale_flushes` gives, and the obligations of its flushes.

    Refuted unless these add 2^doublings times as much as the flushes of `kernel`, also in the instruction order for an
    in-order processor.
    """
    multiplied, obligations = scale_flushes(load(kernel.isa), kernel, doublings), set[Obligation]()
    check_multiple(kernel, multiplied, doublings, _summaries(kernel), obligations)
    check_folds(multiplied, doublings)
    return multiplied, frozenset(obligations)


def require_shift(proved: Proved[Kernel], shift: int) -> None:
    """Raise SpecError if results are shifted by an instruction that the kernel's proof does not list."""
    if shift:
        _require_listed(proved, {shift_obligation(load(proved.artifact.isa), shift)})


def _require_listed(proved: Proved[Kernel], obligations: Set[Obligation]) -> None:
    if missing := sorted(o.statement for o in obligations - proved.obligations):
        raise SpecError(f"the kernel's proof does not list what this encoding wants: {missing[0]}")


def encoding_obligations(kernel: Kernel, summaries: Summaries) -> set[Obligation]:
    """Return the obligations of what C does to the kernel's results in some encodings; Refuted if it is not exact."""
    isa, obligations = load(kernel.isa), set[Obligation]()
    for doublings in kernel.doublings:
        check_multiple(kernel, scale_flushes(isa, kernel, doublings), doublings, summaries, obligations)
    return obligations | ({shift_obligation(isa, 1)} if kernel.shifts else set())


def shift_obligation(isa: Isa, shift: int) -> Obligation:
    """Return the obligation of the instruction that shifts the lanes of the tile right by `shift` bits."""
    form = sign_shift(isa)
    return Quotient(form.name, shift, (), form.meaning)


def check_multiple(
    kernel: Kernel, multiplied: Kernel, doublings: int, summaries: Summaries, obligations: set[Obligation]
) -> None:
    """Raise Refuted unless flushes of `multiplied` add 2^doublings times as much as flushes of `kernel`.

    All else must be equal. `obligations` gets the obligations of these flushes.
    """
    isa = load(kernel.isa)
    check_shape(isa, multiplied)
    _check_rest(kernel, multiplied)

    def record(isa: Isa, domain: LinearDomain) -> Trace:
        return ObligationRecorder(isa, domain, seen=obligations)

    for each, passes in zip(multiplied.alone, summaries, strict=True):
        for index, (loop, summary) in enumerate(zip(each.passes, passes, strict=True)):
            if loop.carries:
                continue
            taken = flush(isa, each, loop, summary.held[-1], record)
            if list(_atoms(taken)) != list(_atoms(summary.taken, 1 << doublings)):
                raise Refuted(f"doubled {doublings} times, the flush of pass {index} does not add that multiple")


def _check_rest(kernel: Kernel, multiplied: Kernel) -> None:
    """Raise Refuted if the kernels differ in more than their flushes to the tile, and further constants of these."""
    known = {c.name: c for c in kernel.constants}
    changed = [c.name for c in multiplied.constants if known.get(c.name, c) != c]
    if changed:
        raise Refuted(f"the scaled kernel has another constant {changed[0]}")
    own = iter(kernel.every_pass)

    def with_own_flush(loop: Pass) -> Pass:
        original = next(own)
        return loop if loop.carries else msgspec.structs.replace(loop, flush=original.flush, tile=original.tile)

    if len(multiplied.every_pass) != len(kernel.every_pass):
        raise Refuted("the scaled kernel has other passes")
    if msgspec.structs.replace(multiplied.with_passes(with_own_flush), constants=kernel.constants) != kernel:
        raise Refuted("the scaled kernel differs in more than its flushes to the tile")


def _summaries(kernel: Kernel) -> Summaries:
    """Return the summaries of the kernel's passes."""
    return [list(_pass_summaries(each)) for each in kernel.alone]


def _pass_summaries(kernel: Kernel) -> Iterator[PassSummary]:
    isa, carried = load(kernel.isa), None
    for index, loop in enumerate(kernel.passes):
        sums, _ = separate_rows(kernel, step_summary(isa, kernel, loop), index)
        summary = pass_summary(isa, kernel, loop, sums, carried)
        carried = summary.carried
        yield summary


def _atoms(taken: Sequence[LinearForm], times: int = 1) -> Iterator[Atoms]:
    """Yield the sums that a flush adds to each column of the tile, `times` over, in the atoms of its steps."""
    return (form.scale(times).atoms for form in taken)

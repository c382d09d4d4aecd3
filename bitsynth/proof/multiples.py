"""Proves scaled kernels: each flush adds 2^n times what the flush of the original kernel adds.

In some encodings values are multiples of those of the kernel's codes; so `kernel/scaled.py` changes constants and
shifts of its flushes. Here the flushes of both kernels run on the same linear forms:

    original   tile column 0 gets s0 + s1       (sums of two lanes)
    n = 2      tile column 0 gets 4 * s0 + 4 * s1
"""

from __future__ import annotations

from functools import lru_cache

from bitsynth.errors import Refuted
from bitsynth.isa.domains.forms import Atoms
from bitsynth.isa.load import Isa, load
from bitsynth.kernel.program import Kernel
from bitsynth.kernel.scaled import scaled
from bitsynth.proof.accumulation import LoopSummary, PassSummary, pass_summary, separate_rows, step_summary
from bitsynth.proof.orders import check_folds


@lru_cache(maxsize=64)
def proved_multiple(kernel: Kernel, doublings: int) -> Kernel:
    """Return the kernel that `scaled` makes of a proved one; Refuted unless its flushes add 2^doublings times as much.

    Refuted too if the instruction order for an in-order processor changes what the flushes store.
    """
    if not doublings:
        return kernel
    isa = load(kernel.isa)
    multiplied = scaled(isa, kernel, doublings)
    for each, other in zip(kernel.alone, multiplied.alone, strict=True):
        _check(isa, each, other, doublings)
    check_folds(multiplied, doublings)
    return multiplied


def _check(isa: Isa, kernel: Kernel, multiplied: Kernel, doublings: int) -> None:
    """Raise Refuted unless the flushes of `multiplied` add 2^doublings times what the flushes of `kernel` add."""
    carried: LoopSummary | None = None
    for index, (loop, other) in enumerate(zip(kernel.passes, multiplied.passes, strict=True)):
        sums, _ = separate_rows(kernel, step_summary(isa, kernel, loop), index)
        summary = pass_summary(isa, kernel, loop, sums, carried)
        multiple = pass_summary(isa, multiplied, other, sums, carried)
        if _taken(multiple) != _taken(summary, 1 << doublings):
            raise Refuted(f"doubled {doublings} times, the flush of pass {index} does not add that multiple")
        carried = summary.carried


def _taken(summary: PassSummary, times: int = 1) -> list[Atoms]:
    """Return the sums that a flush adds to each column of the tile, `times` over, in the atoms of its steps."""
    return [form.scaled(times).atoms for form in summary.taken]

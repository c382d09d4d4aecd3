"""The method of a layer: that of fewest predicted cycles of a whole call, of the best schedule of each method.

Popcount in steps of another length is another one here, since bounds leave out what loads of rows take, and so is one
that a processor has to itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from bitsynth.isa.load import Isa, load_table
from bitsynth.kernel.program import Kernel
from bitsynth.layers.candidates import Candidate
from bitsynth.layers.cost import Estimate
from bitsynth.schedule import predicted
from bitsynth.schedule.quickest import ordered, quickest

_CLOSE = 1.5
"""Times the fewest estimated cycles within which a method is predicted: those of shipped kernels are 0.8 to 1.25."""

_LAST_ROW = 1.05
"""Times the predicted cycles that a kernel takes whose last row has its own program.

Compiled by gcc 12.2 it takes 3 % more than is predicted, where others take 1 % (A1W1, K = 576), and more in short sums.
"""


def fewest_predicted(ranked: Sequence[Estimate]) -> Estimate:
    """The estimate to take of those ranked by cycles: the first, or that of the method of fewest predicted cycles."""
    firsts = {_kind(x.candidate): x for x in reversed(ranked)}.values()
    close = [each for each in firsts if each.cycles <= _CLOSE * ranked[0].cycles]
    if len(close) == 1 or not all(has_rules(each) for each in close):
        return ranked[0]
    return min(
        map(as_predicted, close),
        key=lambda each: each.cycles * (_LAST_ROW if each.candidate.entry.kernel.scalar_pass else 1),
    )


def _kind(candidate: Candidate) -> tuple[str, int, str]:
    """What bounds do not rank: the method, steps of another length, and a kernel that a processor has to itself."""
    return candidate.method, candidate.kernel_options.k_step, candidate.model


def has_rules(estimate: Estimate) -> bool:
    """Whether the processor of an estimate has issue rules, by which cycles are predicted."""
    return load_table(estimate.candidate.isa).cpu[estimate.cpu_name].issue is not None


def as_predicted(estimate: Estimate) -> Estimate:
    """The estimate with its sums on the scoreboard, and as many of its rows as are quickest there."""
    kernel = msgspec.structs.replace(estimate.candidate.entry.kernel, rows=estimate.rows)
    return replace(estimate, rows=quickest(kernel, estimate.cpu_name).rows, sums_model=_predicted, counted=True)


def _predicted(isa: Isa, kernel: Kernel, cpu: str, depth: int) -> float:
    """Cycles per 128 multiply-accumulates as the kernel is run on `cpu`."""
    return predicted.cycles_per_128_mac(isa, ordered(kernel, cpu), cpu, depth)

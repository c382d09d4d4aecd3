"""Synthesizes depthwise kernels, from sketch to proof."""

from __future__ import annotations

from bitsynth.isa.load import load
from bitsynth.kernel.depthwise import DepthwiseProgram
from bitsynth.proof.proved import Proved
from bitsynth.schedule.depthwise import cheapest
from bitsynth.solver.budget import Budget


def solve(
    isa: str, act_bits: int, w_bits: int, method: str = "multiply", budget: Budget | None = None
) -> Proved[DepthwiseProgram]:
    """Return the cheapest depthwise kernel by `method` for operands of these widths at most, proved.

    NoKernel if the sketch has none.
    """
    return Proved.by_solver(cheapest(load(isa), act_bits, w_bits, method), budget or Budget())

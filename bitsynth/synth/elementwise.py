"""Finds elementwise programs: the stored one, else the cheapest of a sketch's alternatives, proved and stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bitsynth.errors import NoKernel
from bitsynth.isa.load import Isa, load
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.proof.proved import Proved
from bitsynth.schedule.price import rank
from bitsynth.sketches.elementwise import (
    direct,
    glue,
    rescaling,
    residual,
    tables,
    thresholds,
)
from bitsynth.sketches.elementwise.builder import find_orders
from bitsynth.spec.elementwise import ElementwiseSpec, SpecKind
from bitsynth.store.elementwise import ELEMENTWISE

Alternatives = Callable[[Isa, ElementwiseSpec], Iterator[ElementwiseProgram]]

SKETCHES: dict[SpecKind, Alternatives] = {
    SpecKind.DIRECT: direct.alternatives,
    SpecKind.THRESHOLDS: thresholds.alternatives,
    SpecKind.LOOKUP: tables.alternatives,
    SpecKind.PAIRS: tables.alternatives,
    SpecKind.WEIGHTED: glue.write_weighted_sums,
    SpecKind.MEAN: glue.means,
    SpecKind.QUANTIZE: glue.conversions,
    SpecKind.SIGNS: glue.conversions,
    SpecKind.DEQUANTIZE: glue.conversions,
    SpecKind.REQUANTIZE: rescaling.alternatives,
    SpecKind.RESCALE: rescaling.alternatives,
    SpecKind.FIXED: rescaling.alternatives,
    SpecKind.MULTIPLY_SHIFT: rescaling.alternatives,
    SpecKind.GATED: rescaling.alternatives,
    SpecKind.ROUNDED: rescaling.alternatives,
    SpecKind.SCALE: rescaling.alternatives,
    SpecKind.RESIDUAL: residual.alternatives,
}
"""The sketch for each family of specs."""


def get_program(isa: str, spec: ElementwiseSpec) -> Proved[ElementwiseProgram]:
    """Return the program of `spec`: the stored one, else solve and store it; NoKernel if the sketch has none.

    A set that extends another takes the program of that set.
    """
    program = ELEMENTWISE.find(isa, spec)
    if program is None:
        program = solve(load(isa).table.extends or isa, spec)
        ELEMENTWISE.store(program)
    return program


def solve(isa: str, spec: ElementwiseSpec) -> Proved[ElementwiseProgram]:
    """Return the cheapest program of the sketch, proved anew; NoKernel if there is none."""
    from bitsynth.solver.budget import Budget

    cheapest = min(alternatives(isa, spec), key=rank, default=None)
    if cheapest is None:
        raise NoKernel(f"{isa} has no program for {spec.name}: a form of instruction is missing")
    return Proved.by_solver(find_orders(cheapest), Budget())


def alternatives(isa: str, spec: ElementwiseSpec) -> Iterator[ElementwiseProgram]:
    """Yield every program of the sketch for the spec's family, as yet without orders."""
    return SKETCHES[spec.kind](load(isa), spec)

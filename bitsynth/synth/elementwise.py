"""Elementwise programs on demand: stored ones, else the cheapest of a sketch's alternatives, proved and stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bitsynth.errors import NoKernel
from bitsynth.isa.load import Isa, load
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.proof.elementwise.proved import ProvedProgram
from bitsynth.schedule.element_cost import price
from bitsynth.sketches.elementwise import (
    averaging,
    direct,
    edges,
    rescaling,
    residual,
    tables,
    thresholds,
    weighting,
)
from bitsynth.sketches.elementwise.builder import ordered
from bitsynth.spec.elementwise import ElementwiseSpec
from bitsynth.store import elementwise as store

Alternatives = Callable[[Isa, ElementwiseSpec], Iterator[ElementwiseProgram]]

SKETCHES: dict[str, Alternatives] = {
    "thresholds": thresholds.alternatives,
    **dict.fromkeys(("lookup", "pairs"), tables.alternatives),
    "weighted": weighting.alternatives,
    "mean": averaging.alternatives,
    **dict.fromkeys(("quantize", "signs", "dequantize"), edges.alternatives),
    **dict.fromkeys(("requantize", "rescale", "fixed", "gated", "rounded", "scale"), rescaling.alternatives),
    "residual": residual.alternatives,
    "": direct.alternatives,
}
"""The sketch of a kind of specs, by what their names begin with; the last is that of all others."""


def get_program(isa: str, spec: ElementwiseSpec) -> ProvedProgram:
    """The program of `spec`: stored, or solved and stored; a set that extends another has that one's.

    NoKernel if the sketch has none for the instruction set.
    """
    found = store.find(isa, spec)
    if found is None:
        found = solve(load(isa).table.extends or isa, spec)
        store.store(found)
    return found


def solve(isa: str, spec: ElementwiseSpec) -> ProvedProgram:
    """The cheapest program of the sketch, proved anew."""
    from bitsynth.solver.budget import Budget

    found = sorted(alternatives(isa, spec), key=price)
    if not found:
        raise NoKernel(f"{isa} has no program for {spec.name}: a form of instruction is missing")
    return ProvedProgram.by_solver(ordered(found[0]), Budget())


def alternatives(isa: str, spec: ElementwiseSpec) -> Iterator[ElementwiseProgram]:
    """Every program that the sketch of the spec's kind makes, as yet without orders."""
    kind = next(k for k in SKETCHES if spec.name.startswith(k))
    return SKETCHES[kind](load(isa), spec)

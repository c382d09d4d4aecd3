"""The stored programs that the epilogue of a layer on a kernel can be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bitsynth.emit import elementwise
from bitsynth.kernel.elementwise.plain import EpilogueProgram
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.layers.depthwise import DepthwiseKernel
from bitsynth.layers.epilogues.lowering import ProgramInputs
from bitsynth.layers.scheduled import LayerKernel
from bitsynth.schedule.element_cost import price
from bitsynth.spec.elementwise import ElementwiseSpec
from bitsynth.store import elementwise as store

AskedProgram = tuple[ElementwiseSpec, ProgramInputs]
"""A spec, and what its program is to read."""
_Found = tuple[ElementwiseProgram, ProgramInputs]
_LARGEST_UNIT = 128
"""The runtime's BS_LARGEST_UNIT."""


def cheapest(kernel: LayerKernel, wanted: Iterable[AskedProgram]) -> _Found | None:
    """The stored program of fewest cycles, with its inputs."""
    return min(_programs(kernel, wanted), key=lambda found: price(found[0]), default=None)


def _programs(kernel: LayerKernel, wanted: Iterable[AskedProgram]) -> Iterator[_Found]:
    """The stored programs of specs, with their inputs."""
    for spec, inputs in wanted:
        if program := stored(kernel, spec):
            yield program, inputs


def stored(kernel: LayerKernel, spec: ElementwiseSpec) -> ElementwiseProgram | None:
    """The program of `spec` for the kernel's instruction set, or the one that set extends; None if none can be used."""
    proved = store.find(kernel.spec.isa, spec)
    found = proved.program if proved else None
    if found and isinstance(kernel, DepthwiseKernel) and not kernel.order(found):
        return None
    if found is None or found.unit > _LARGEST_UNIT or {*elementwise.needs(found).host} - {*kernel.needs.host}:
        return None
    return found


def in_order(program: EpilogueProgram | None) -> EpilogueProgram | None:
    """The program for elements in the order of channels; None if there is none."""
    if not isinstance(program, ElementwiseProgram):
        return program
    proved = store.find(program.isa, program.spec)
    found = store.in_order(proved) if proved else None
    return found.program if found else None

"""The price of an artifact in cycles, by one function for every kind.

Prices compare artifacts of one kind, so each kind has its own unit of work: for a matmul kernel 128 products at
K = 576, for a depthwise kernel 128 products with a 3 x 3 window, and for an elementwise program one unit of channels.
"""

from __future__ import annotations

from functools import singledispatch

from bitsynth.isa.load import load
from bitsynth.kernel.depthwise import DepthwiseProgram
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.kernel.program import Kernel
from bitsynth.kernel.straight_line import Instructions
from bitsynth.schedule import cost, element_cost


@singledispatch
def count_cycles(artifact: Instructions, cpu: str) -> float:
    """Return cycles of the processor `cpu` for a unit of work of an artifact, with data in the nearest cache.

    A kind of artifact registers its own function.
    """
    raise TypeError(f"no price is known of {type(artifact).__name__}")


@count_cycles.register
def _(artifact: Kernel, cpu: str) -> float:
    return cost.cycles_per_128_mac(load(artifact.isa), artifact, cpu)


@count_cycles.register
def _(artifact: DepthwiseProgram, cpu: str) -> float:
    from bitsynth.schedule import depthwise  # It imports the sketches, which a matmul kernel does without.

    return depthwise.cycles_per_128_mac(load(artifact.isa), artifact, cpu)


@count_cycles.register
def _(artifact: ElementwiseProgram, cpu: str) -> float:
    return element_cost.cycles(artifact, cpu)


def processors_of(artifact: Instructions) -> list[str]:
    """Return the processors that have every instruction of an artifact, in the order of the set's table."""
    isa, forms = load(artifact.isa), {*artifact.forms}
    return [cpu for cpu in isa.table.cpu if forms <= isa.for_cpu(cpu).instrs.keys()]


def price(artifact: Instructions) -> dict[str, float]:
    """Return the cycles of a unit of work on each processor that has the instructions."""
    return {cpu: round(count_cycles(artifact, cpu), 4) for cpu in processors_of(artifact)}


def rank(program: ElementwiseProgram) -> tuple[float, ...]:
    """Return the sort key of programs of one spec.

    It is cycles per element on each of the set's processors, then latency, then instructions.
    """
    cycles = price(program)
    latency = element_cost.latency(program, next(iter(cycles)))
    return (*(x / program.unit for x in cycles.values()), latency, len(program.steps) / program.unit)

"""Execution of elementwise programs in any domain, on the values of one unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.isa.bits import Domain
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.load import load
from bitsynth.isa.step import Step
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.kernel.elementwise import ElementLoop, ElementwiseProgram, names, place
from bitsynth.spec.elementwise import ElementInput

Values = Mapping[str, Any]
"""The payloads of each input, by value and by position in the unit; one alone of what a row or all elements share."""


def at(program: ElementwiseProgram, given: Values, channel: int) -> dict[str, list[Any]]:
    """The values of the element of `channel`, input by input."""
    return {
        x.name: [v[order.index(channel) if order else 0] for v in given[x.name]]
        for x, order in zip(program.spec.inputs, program.orders, strict=True)
    }


def execute(program: ElementwiseProgram, domain: Domain, given: Values) -> list[Any]:
    """The result of each channel of the unit."""
    trace = Trace(load(program.isa), domain)
    trace.bind_constants(program.constants)
    for one in program.spec.inputs:
        found = [[value[0] for value in given[one.name]]] if one.per == "table" else given[one.name]
        for values, registers in zip(found, names(program, one), strict=True):
            _bind(trace, program, one, values, registers)
    if program.loop:
        _turns(trace, program, program.loop, given)
    for step in program.steps:
        trace.run(step)
    return _results(program, domain, [trace.registers[name] for name in program.results])


def _bind(
    trace: Trace, program: ElementwiseProgram, one: ElementInput, values: Sequence[Any], registers: Sequence[str]
) -> None:
    """Put the values of an input, one for each position or one for all, into registers."""
    kind, _ = program.registers(one)
    lanes = list(values) * kind.lanes if one.is_shared else list(values)
    for n, name in enumerate(registers):
        trace.bind(name, Register(kind, tuple(lanes[n * kind.lanes : (n + 1) * kind.lanes])))


def _turns(trace: Trace, program: ElementwiseProgram, loop: ElementLoop, given: Values) -> None:
    """Run the loop: in each turn the next value of the last input is that numbered 0."""
    over = program.spec.inputs[-1]
    first, steps = names(program, over)[0], [Step.parse(line) for line in loop.program]
    for n in range(len(loop.next)):
        trace.bind(f"x0_{n}", trace.registers[loop.start])
    for values in given[over.name]:
        _bind(trace, program, over, values, first)
        for step in steps:
            trace.run(step)
        for n, name in enumerate(loop.next):
            trace.bind(f"x0_{n}", trace.registers[name])


def _results(program: ElementwiseProgram, domain: Domain, registers: Sequence[Register]) -> list[Any]:
    spec = program.spec
    if spec.out != "words":
        flat = [
            lane
            for r in registers
            for lane in r.viewed_as(domain, VecType("u", spec.out_bits, r.type.total_bits // spec.out_bits)).lanes
        ]
        return flat[: program.unit]
    bits = [b for r in registers for lane in r.lanes for b in domain.split(lane, r.type.bits, 1)]
    return [
        domain.join([bits[place(spec, channel, j)] for j in range(spec.planes)], 1) for channel in range(program.unit)
    ]


def run(program: ElementwiseProgram, given: Mapping[str, NDArray[Any]]) -> NDArray[np.uint64]:
    """Results (channels of the unit, inputs) for arrays (values, positions or 1, inputs), as `order` places them."""
    with np.errstate(over="ignore"):
        payloads = {
            x.name: [[_unsigned(v, x.lane.bits) for v in value] for value in given[x.name]] for x in program.spec.inputs
        }
        return np.stack(np.broadcast_arrays(*execute(program, ConcreteDomain(), payloads)))


def wanted(program: ElementwiseProgram, given: Mapping[str, NDArray[Any]]) -> NDArray[np.uint64]:
    """The results that the spec wants for the same arrays."""
    spec = program.spec
    with np.errstate(over="ignore"):
        payloads = {
            x.name: [[_unsigned(v, x.lane.bits) for v in value] for value in given[x.name]] for x in spec.inputs
        }
        rows = [spec.value(ConcreteDomain(), at(program, payloads, c)) for c in range(program.unit)]
        return np.stack(np.broadcast_arrays(*rows))


def _unsigned(values: NDArray[Any], bits: int) -> NDArray[np.uint64]:
    raw = values.view(f"u{values.itemsize}") if values.dtype.kind == "f" else values
    return raw.astype(np.uint64) & np.uint64((1 << bits) - 1)

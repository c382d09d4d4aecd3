"""Executes elementwise programs in any domain, on the values of one unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.isa.array_trace import ArrayTrace
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.domains.domain import Domain
from bitsynth.isa.load import load
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Value
from bitsynth.kernel.elementwise.program import ElementLoop, ElementwiseProgram, names, place
from bitsynth.spec.elementwise import ElementInput, ElementwiseSpec

Values = Mapping[str, Any]
"""The payloads of each input, by value and by position in the unit; one alone of what a row or all elements share."""


def at(program: ElementwiseProgram, given: Values, channel: int) -> dict[str, list[Any]]:
    """Return the values of the element of `channel`, input by input."""
    return {
        x.name: [v[order.index(channel) if order else 0] for v in given[x.name]]
        for x, order in zip(program.spec.inputs, program.orders, strict=True)
    }


def execute(program: ElementwiseProgram, domain: Domain, given: Values) -> list[Any]:
    """Return the result of each channel of the unit."""
    trace = Trace(load(program.isa), domain)
    registers = _execute(program, trace, given)
    if program.spec.out != "words":
        return _lanes(program, domain, registers)
    bits, planes = _bits(domain, registers), range(program.spec.planes)
    places = [[place(program.spec, channel, j) for j in planes] for channel in range(program.unit)]
    return [domain.join([bits[at] for at in of_channel], 1) for of_channel in places]


def _execute(program: ElementwiseProgram, trace: Trace, given: Values) -> list[Register]:
    """Run the program; the registers of results."""
    trace.bind_constants(program.constants)
    for input_ in program.spec.inputs:
        columns = [[value[0] for value in given[input_.name]]] if input_.per == "table" else given[input_.name]
        for values, registers in zip(columns, names(program, input_), strict=True):
            _bind(trace, program, input_, values, registers)
    if program.loop:
        _run_loop(trace, program, program.loop, given)
    for step in program.steps:
        trace.run(step)
    return [trace.registers[name] for name in program.results]


def _bind(
    trace: Trace, program: ElementwiseProgram, input_: ElementInput, values: Sequence[Any], registers: Sequence[Value]
) -> None:
    """Put the values of an input, one for each position or one for all, into registers."""
    kind, _ = program.registers(input_)
    lanes = list(values) * kind.lanes if input_.is_shared else values
    for n, name in enumerate(registers):
        trace.bind(name, trace.register(kind, lanes[n * kind.lanes : (n + 1) * kind.lanes]))


def _run_loop(trace: Trace, program: ElementwiseProgram, loop: ElementLoop, given: Values) -> None:
    """Run the loop; each iteration reads the next value of the last input as value 0."""
    over = program.spec.inputs[-1]
    first = names(program, over)[0]
    for n in range(len(loop.next)):
        trace.bind(Value(f"x0_{n}"), trace.registers[loop.start])
    for values in given[over.name]:
        _bind(trace, program, over, values, first)
        for step in loop.steps:
            trace.run(step)
        for n, name in enumerate(loop.next):
            trace.bind(Value(f"x0_{n}"), trace.registers[name])


def _lanes(program: ElementwiseProgram, domain: Domain, registers: Sequence[Register]) -> list[Any]:
    """Return the lanes of results, channel by channel."""
    size = program.spec.out_bits
    views = [r.view_as(domain, VecType("u", size, r.type.total_bits // size)) for r in registers]
    return [lane for view in views for lane in view.lanes][: program.unit]


def _bits(domain: Domain, registers: Sequence[Register]) -> list[Any]:
    """Return the bits of registers, one behind the other."""
    return [bit for r in registers for lane in r.lanes for bit in domain.split(lane, r.type.bits, 1)]


def run(program: ElementwiseProgram, given: Mapping[str, NDArray[Any]]) -> NDArray[np.uint64]:
    """Return results (channels, inputs) for arrays (values, positions or 1, inputs), in the program's order."""
    domain, spec = ConcreteDomain(), program.spec
    with np.errstate(over="ignore"):
        registers = _execute(program, ArrayTrace(load(program.isa), domain), payloads(spec, given))
        if spec.out != "words":
            return np.stack(np.broadcast_arrays(*_lanes(program, domain, registers)))
        bits = np.stack(np.broadcast_arrays(*_bits(domain, registers)))
        places = [[place(spec, channel, j) for channel in range(program.unit)] for j in range(spec.planes)]
        return np.asarray(domain.join([bits[at] for at in places], 1))


def compute_wanted(program: ElementwiseProgram, given: Mapping[str, NDArray[Any]]) -> NDArray[np.uint64]:
    """Return the results that the spec wants for the same arrays."""
    with np.errstate(over="ignore"):
        results = program.spec.value(ConcreteDomain(), in_channels(program, given))
    inputs = next(iter(given.values())).shape[2]
    return np.broadcast_to(results, (program.unit, inputs))


def in_channels(program: ElementwiseProgram, given: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.uint64]]:
    """Return payloads (values, channels or 1, inputs) of arrays (values, positions or 1, inputs)."""
    bits = payloads(program.spec, given)
    orders = zip(program.spec.inputs, program.orders, strict=True)
    return {x.name: bits[x.name][:, np.argsort(order)] if order else bits[x.name] for x, order in orders}


def payloads(spec: ElementwiseSpec, given: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.uint64]]:
    """Return the bits of arrays of inputs."""
    return {x.name: _to_unsigned(given[x.name], x.lane.bits) for x in spec.inputs}


def _to_unsigned(values: NDArray[Any], bits: int) -> NDArray[np.uint64]:
    raw = values.view(f"u{values.itemsize}") if values.dtype.kind == "f" else values
    return raw.astype(np.uint64) & np.uint64((1 << bits) - 1)

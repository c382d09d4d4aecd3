"""Every elementwise program that is one change away from a given one."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from bitsynth.isa.load import load
from bitsynth.isa.step import Constant, Step
from bitsynth.isa.value import Value
from bitsynth.kernel.elementwise.program import ElementLoop, ElementwiseProgram, names
from support.programs import change

Mutants = Iterator[tuple[str, ElementwiseProgram]]


def mutants(program: ElementwiseProgram) -> Mutants:
    """All of them, each with a line that says what it is, its kind in front."""
    for n, right in enumerate(program.steps):
        for kind, step in _changed_steps(program, right, program.steps[:n]):
            yield f"{kind}: {step} for {right}", change(program, steps=_set(program.steps, n, step))
    if program.loop:
        yield from _of_turns(program, program.loop)
    yield from _of_constants(program)
    yield from _of_orders(program)


def _of_turns(program: ElementwiseProgram, loop: ElementLoop) -> Mutants:
    for n, right in enumerate(loop.steps):
        for kind, step in _changed_steps(program, right, loop.steps[:n]):
            turned = change(loop, steps=_set(loop.steps, n, step))
            yield f"{kind} in turn: {step} for {right}", change(program, loop=turned)


def _set(items: tuple[Any, ...], at: int, value: object) -> tuple[Any, ...]:
    return (*items[:at], value, *items[at + 1 :])


def _changed_steps(program: ElementwiseProgram, step: Step, before: tuple[Step, ...]) -> Iterator[tuple[str, Step]]:
    isa = load(program.isa)
    for op in _alike(program.isa, step.op):
        yield "form", change(step, op=op)
    for i in range(len(step.args)):
        for j in range(i):
            yield "swap", change(step, args=_set(_set(step.args, i, step.args[j]), j, step.args[i]))
        near = [earlier.dst for earlier in before[-4:]]
        for name in {*near, *step.args, *_registers(program)[:8]} - {step.args[i]}:
            yield "operand", change(step, args=_set(step.args, i, name))
    for imm in (step.imm - 1, step.imm + 1):
        if imm in isa[step.op].imms:
            yield "immediate", change(step, imm=imm)


def _registers(program: ElementwiseProgram) -> list[Value]:
    """Registers of inputs and constants."""
    registers = [r for x in program.spec.inputs for value in names(program, x) for r in value]
    return [*(c.name for c in program.constants), *registers]


@cache
def _alike(isa_name: str, op: str) -> tuple[str, ...]:
    """Other forms on registers of the same sizes."""
    isa = load(isa_name)

    def sizes(form: str) -> tuple[list[int], int, bool]:
        return [o.type.total_bits for o in isa[form].operands], isa[form].out.total_bits, bool(isa[form].imm)

    return tuple(i.name for i in isa.instrs.values() if i.on_registers and i.name != op and sizes(i.name) == sizes(op))


def _of_constants(program: ElementwiseProgram) -> Mutants:
    for n, c in enumerate(program.constants):
        bits = int("".join(filter(str.isdigit, c.type.partition("x")[0])))
        for lane, value in {0: c.lanes[0], len(c.lanes) - 1: c.lanes[-1]}.items():
            for other in {(value + 1) % (1 << bits), (value - 1) % (1 << bits), value ^ 1 << bits - 1}:
                lanes = Constant(c.name, c.type, _set(c.lanes, lane, other))
                label = f"constant: {c.name}[{lane}] = {other} for {value}"
                yield label, change(program, constants=_set(program.constants, n, lanes))


def _of_orders(program: ElementwiseProgram) -> Mutants:
    results = program.results
    if len(results) > 1:
        yield "results: reversed", change(program, results=results[::-1])
        yield "results: the first twice", change(program, results=(*results[:-1], results[0]))
    for i, j in ((0, 1), (0, program.unit - 1)):
        swapped = tuple(_exchanged(order, i, j) if order else order for order in program.orders)
        yield f"order: {i} and {j}", change(program, orders=swapped)
        for n, (one, order) in enumerate(zip(program.spec.inputs, program.orders, strict=True)):
            if one.per == "channel":
                orders = _set(program.orders, n, _exchanged(order, i, j))
                yield f"order: {i} and {j} of {one.name}", change(program, orders=orders)


def _exchanged(order: tuple[int, ...], i: int, j: int) -> tuple[int, ...]:
    out = list(order)
    out[i], out[j] = out[j], out[i]
    return tuple(out)

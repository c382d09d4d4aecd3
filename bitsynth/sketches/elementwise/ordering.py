"""Adds moves to programs so that elements lie in the order of channels."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bitsynth.errors import NoKernel
from bitsynth.isa.load import load
from bitsynth.isa.step import Constant, Step
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Value
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.sketches.elementwise.roles import PERMUTED, role

_BLOCK = 32


def in_order(program: ElementwiseProgram) -> ElementwiseProgram:
    """Return the program of the same results whose elements lie in the order of channels: it moves results last.

    NoKernel unless lanes of 32 bits of each result stay together, and a form of instruction moves them.
    """
    if program.is_ordered:
        return program
    isa = load(program.isa)
    kind = VecType("u", _BLOCK, isa[program.store].out.total_bits // _BLOCK)
    filled = role(isa, PERMUTED, kind, kind, kind)
    constants, steps, results = list(program.constants), list(program.steps), list[Value]()
    for result, lanes in zip(program.results, _moves(program, kind.lanes), strict=True):
        constant = next((c for c in constants if (c.type, c.lanes) == (str(kind), lanes)), None)
        if constant is None:
            constant = Constant(_fresh("k", [c.name for c in constants]), str(kind), lanes)
            constants.append(constant)
        given = result, constant.name
        results.append(_fresh("v", [step.dst for step in steps]))
        steps.append(Step(results[-1], filled.op, tuple(given[k] for k in filled.places), filled.imm))
    places = [program.order.index(channel) for channel in range(program.unit)]
    loop = program.loop and msgspec.structs.replace(program.loop, order=tuple(places[c] for c in program.loop.order))
    return msgspec.structs.replace(
        program,
        orders=tuple(tuple(places[channel] for channel in order) for order in program.orders),
        constants=tuple(constants),
        steps=tuple(steps),
        results=tuple(results),
        loop=loop,
        moves=True,
    )


def _moves(program: ElementwiseProgram, count: int) -> list[tuple[int, ...]]:
    """Return, for each result register, the lane that moves to each place; NoKernel if parts of lanes move."""
    bits, order = program.spec.out_bits, program.order
    if program.spec.out == "words" or _BLOCK % bits:
        raise NoKernel(f"{program.name}: results are not whole parts of lanes")
    elements = _BLOCK // bits
    blocks = [channel // elements for channel in order[::elements]]
    if order != tuple(elements * block + k for block in blocks for k in range(elements)):
        raise NoKernel(f"{program.name}: results do not move in lanes of {_BLOCK} bits")
    starts = range(0, len(blocks), count)
    out = [tuple(block - start for block in blocks[start : start + count]) for start in starts]
    if any(sorted(lanes) != list(range(count)) for lanes in out):
        raise NoKernel(f"{program.name}: results move from register to register")
    return out


def _fresh(kind: str, taken: Sequence[Value]) -> Value:
    """Return the first name of a kind behind those that are taken."""
    return Value(f"{kind}{max((int(name[1:]) for name in taken), default=-1) + 1}")

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
_QUARTER = 16
"""Bytes of the parts of registers within which a form moves single bytes."""
MOVED_IN_QUARTERS = "ite(ult(b[i], 128), lookup(a[i // 16 * 16 : i // 16 * 16 + 16], b[i] & 15), 0)"
"""Byte b of the same 16 bytes of a."""


def in_order(program: ElementwiseProgram) -> ElementwiseProgram:
    """Return the program of the same results whose elements lie in the order of channels: it moves results last.

    Lanes of 32 bits move as a whole; where bytes of a lane lie in another order, these move first. NoKernel unless the
    elements of a lane follow each other, in any order, and forms of instructions do these moves.
    """
    if program.is_ordered:
        return program
    total_bits = load(program.isa)[program.store].out.total_bits
    kind, byte = (VecType("u", bits, total_bits // bits) for bits in (_BLOCK, 8))
    constants, steps, results = list(program.constants), list(program.steps), list[Value]()

    def move(meaning: str, kind: VecType, result: Value, lanes: tuple[int, ...]) -> Value:
        filled = role(load(program.isa), meaning, kind, kind, kind)
        constant = next((c for c in constants if (c.type, c.lanes) == (str(kind), lanes)), None)
        if constant is None:
            constant = Constant(_fresh("k", [c.name for c in constants]), str(kind), lanes)
            constants.append(constant)
        given = result, constant.name
        steps.append(
            Step(_fresh("v", [s.dst for s in steps]), filled.op, tuple(given[k] for k in filled.places), filled.imm)
        )
        return steps[-1].dst

    blocks, inside = _moves(program, kind.lanes), _moves_inside(program, byte.lanes)
    for result, lanes, moved in zip(program.results, blocks, inside, strict=True):
        is_sorted = moved == tuple(k % _QUARTER for k in range(byte.lanes))
        whole = result if is_sorted else move(MOVED_IN_QUARTERS, byte, result, moved)
        results.append(move(PERMUTED, kind, whole, lanes))
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
    groups = [order[k : k + elements] for k in range(0, len(order), elements)]
    if any(
        sorted(g) != [elements * block + k for k in range(elements)] for g, block in zip(groups, blocks, strict=True)
    ):
        raise NoKernel(f"{program.name}: results do not move in lanes of {_BLOCK} bits")
    starts = range(0, len(blocks), count)
    out = [tuple(block - start for block in blocks[start : start + count]) for start in starts]
    if any(sorted(lanes) != list(range(count)) for lanes in out):
        raise NoKernel(f"{program.name}: results move from register to register")
    return out


def _moves_inside(program: ElementwiseProgram, count: int) -> list[tuple[int, ...]]:
    """Return, for each result register, the byte of its 16 bytes that moves to each place, so that lanes are sorted.

    NoKernel if elements of other sizes than bytes are not sorted.
    """
    size = program.spec.out_bits // 8
    elements = _BLOCK // program.spec.out_bits
    places = list[int]()
    for start in range(0, program.unit, elements):
        lane = program.order[start : start + elements]
        if size > 1 and list(lane) != sorted(lane):
            raise NoKernel(f"{program.name}: elements of {size} bytes are not sorted in lanes")
        sources = sorted(range(elements), key=lane.__getitem__)
        places += [(start + k) * size + byte for k in sources for byte in range(size)]
    return [tuple(p % _QUARTER for p in places[k : k + count]) for k in range(0, len(places), count)]


def _fresh(kind: str, taken: Sequence[Value]) -> Value:
    """Return the first free name of a kind."""
    return Value(f"{kind}{max((int(name[1:]) for name in taken), default=-1) + 1}")

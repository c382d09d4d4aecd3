"""Flushes of depthwise kernels: accumulators of any width and order, widened and added to int32 sums in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from bitsynth.errors import NoKernel
from bitsynth.isa.load import Isa
from bitsynth.isa.types import VecType
from bitsynth.kernel.depthwise import DepthwiseFlush
from bitsynth.sketches.depthwise.orders import ChannelOrder, orders
from bitsynth.sketches.depthwise.reordering import ordered, ordered_at_last, parts_of
from bitsynth.sketches.depthwise.steps import DepthwiseStep
from bitsynth.sketches.depthwise.widenings import widening_adds, widenings
from bitsynth.sketches.depthwise.writer import FlushWriter, SumRegister
from bitsynth.sketches.lanes.terms import adder

_SUM_BITS = 32


def flushes(isa: Isa, step: DepthwiseStep) -> tuple[DepthwiseFlush, ...]:
    """Return a flush of the step's accumulators for each order that the instruction set can bring them into.

    NoKernel if it cannot bring them into the unit's own.
    """
    own, *others = orders(isa)
    found = [_flush(isa, step, own)]
    for order in others:
        with suppress(NoKernel):
            found.append(_flush(isa, step, order))
    return tuple(found)


def _flush(isa: Isa, step: DepthwiseStep, order: ChannelOrder) -> DepthwiseFlush:
    """Return the flush to sums in `order`; NoKernel if there is none."""
    write, lanes = FlushWriter(), isa.tile.lanes
    places = {order[k : k + lanes]: k // lanes for k in range(0, len(order), lanes)}
    held = [
        SumRegister(acc.name, VecType.parse(acc.type), channels)
        for acc, channels in zip(step.accs, step.channels, strict=True)
    ]
    while held[0].kind.bits < _SUM_BITS:
        if not _holds(held, places):
            held = ordered_at_last(isa, held, order, write)
        adding = widening_adds(isa, held[0].kind)
        if held[0].kind.bits * 2 == _SUM_BITS and adding and _holds(held, places):
            added = [(part, op, x.name) for x in held for part, op in zip(parts_of(x, lanes), adding, strict=True)]
            return write.flush(order, {r: write(op, (f"c{r}", x)) for part, op, x in added for r in [places[part]]})
        held = [half for x in held for half in _widened(isa, x, write)]
    if not _holds(held, places):
        held = ordered(isa, held, order, write)
    add = adder(isa, isa.tile)
    return write.flush(order, {r: write(add, (f"c{r}", x.name)) for x in held for r in [places[x.channels]]})


def _holds(held: Sequence[SumRegister], places: Mapping[ChannelOrder, int]) -> bool:
    """Whether parts of the registers are registers of sums."""
    lanes = len(next(iter(places)))
    return all(part in places for x in held for part in parts_of(x, lanes))


def _widened(isa: Isa, x: SumRegister, write: FlushWriter) -> Iterator[SumRegister]:
    kind = VecType("s", 2 * x.kind.bits, x.kind.lanes // 2)
    for h, ops in enumerate(widenings(isa, x.kind)):
        name = x.name
        for op, imm in ops:
            name = write(op, (name,), imm)
        yield SumRegister(name, kind, x.channels[h * kind.lanes : (h + 1) * kind.lanes])

"""Moves that bring the channels of registers of sums into an order: found by what they do to unknowns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import permutations

from bitsynth.errors import NoKernel
from bitsynth.isa.domains.forms import Inexact, LinearForm, variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa
from bitsynth.sketches.depthwise.orders import ChannelOrder
from bitsynth.sketches.depthwise.widenings import gives, unknowns
from bitsynth.sketches.depthwise.writer import FlushWriter, SumRegister


def parts_of(x: SumRegister, lanes: int) -> list[ChannelOrder]:
    """Return the channels of the registers of int32 that are made of it."""
    return [x.channels[k : k + lanes] for k in range(0, len(x.channels), lanes)]


def ordered_at_last(
    isa: Isa, held: Sequence[SumRegister], order: ChannelOrder, write: FlushWriter
) -> list[SumRegister]:
    """Return the same with channels in `order`, or so but for those of a four, which wider lanes take any way."""
    fours = tuple(ch for k in range(0, len(order), 4) for ch in sorted(order[k : k + 4]))
    for wanted in dict.fromkeys((order, fours)):
        if mixed := _mixed(isa, held, wanted, write):
            return mixed
        with suppress(NoKernel):
            return ordered(isa, held, wanted, write)
    raise NoKernel(f"{isa.name} cannot bring the channels of {len(held)} registers into order")


def ordered(isa: Isa, held: Sequence[SumRegister], order: ChannelOrder, write: FlushWriter) -> list[SumRegister]:
    """Return the same sums with channels in `order`, each register of one or two; NoKernel if that is not to be had.

    Where registers are of more, pairs of them come into order first.
    """
    if any(len(sources) > 2 for _, sources in _wanted(held, order)) and len(held) % 2 == 0:
        place = {channel: k for k, channel in enumerate(order)}
        pairs = zip(held[::2], held[1::2], strict=True)
        held = [
            x for pair in pairs for x in _moved_all(isa, pair, sorted(_channels(pair), key=place.__getitem__), write)
        ]
    return _moved_all(isa, held, order, write)


def _channels(held: Sequence[SumRegister]) -> ChannelOrder:
    return tuple(channel for x in held for channel in x.channels)


def _wanted(held: Sequence[SumRegister], order: Sequence[int]) -> Iterator[tuple[ChannelOrder, list[SumRegister]]]:
    """Yield the channels of each register in `order`, and the registers that hold them."""
    lanes = held[0].kind.lanes
    for k in range(0, len(order), lanes):
        wanted = tuple(order[k : k + lanes])
        yield wanted, [x for x in held if not set(wanted).isdisjoint(x.channels)]


def _moved_all(isa: Isa, held: Sequence[SumRegister], order: Sequence[int], write: FlushWriter) -> list[SumRegister]:
    """Return the same sums with channels in `order`, an instruction each."""
    kind = held[0].kind
    return [SumRegister(_moved(isa, sources, wanted, write), kind, wanted) for wanted, sources in _wanted(held, order)]


def _mixed(isa: Isa, held: Sequence[SumRegister], order: ChannelOrder, write: FlushWriter) -> list[SumRegister]:
    """Return the same of instructions without index, which take lanes of two registers; none if they do not do."""
    lanes, found = isa.tile.lanes, list[tuple[SumRegister, tuple[str, str]]]()
    wanted = {order[k : k + lanes] for k in range(0, len(order), lanes)}
    for x, y in zip(held[::2], held[1::2], strict=len(held) > 1):
        for op, channels in _mixes(isa, x, y):
            mixed = SumRegister(op, x.kind, channels)
            if wanted.issuperset(parts := parts_of(mixed, lanes)):
                found.append((mixed, (x.name, y.name)))
                wanted.difference_update(parts)
    return [replace(mixed, name=write(mixed.name, args)) for mixed, args in found] if not wanted else []


def _mixes(isa: Isa, x: SumRegister, y: SumRegister) -> Iterator[tuple[str, ChannelOrder]]:
    """Yield instructions that take lanes of two registers, and the channels of those."""
    for instr in isa.full_forms:
        if [o.type for o in instr.operands] == [instr.out] * 2 and not instr.imm and instr.out.bits >= x.kind.bits:
            each = instr.out.bits // x.kind.bits
            both = [*x.channels, *y.channels]
            names = [variable((k, i), -1, 0) for k in range(2) for i in range(instr.out.lanes)]
            with suppress(Inexact):
                got = instr(LinearDomain(1), [names[: instr.out.lanes], names[instr.out.lanes :]])
                if all(lane in names for lane in got):
                    places = [names.index(lane) * each for lane in got]
                    yield instr.name, tuple(ch for p in places for ch in both[p : p + each])


def _moved(isa: Isa, sources: Sequence[SumRegister], wanted: ChannelOrder, write: FlushWriter) -> str:
    """Return a register of the channels `wanted`, by one instruction; NoKernel if there is none."""
    both = _channels(sources)
    index = [both.index(ch) for ch in wanted]
    for instr in isa.full_forms:
        if len(instr.operands) != len(sources) + 1 or {o.type for o in instr.operands} != {instr.out} or instr.imm:
            continue
        lanes = _in_lanes(index, sources[0].kind.bits, instr.out.bits)
        if lanes and (places := _index_place(instr, lanes)):
            names = [*(x.name for x in sources), write.constant(instr.out, lanes)]
            given = dict(zip(places, names, strict=True))
            return write(instr.name, tuple(given[k] for k in range(len(given))))
    raise NoKernel(f"{isa.name} cannot bring the channels of {len(sources)} registers into order")


def _in_lanes(index: Sequence[int], have: int, bits: int) -> tuple[int, ...]:
    """Return the index of lanes of `have` bits as one of lanes of `bits`, no fewer; () if it is none."""
    each = bits // have
    runs = [list(index[k : k + each]) for k in range(0, len(index), each)] if each else []
    whole = all(run[0] % each == 0 and run == _run(run[0], each) for run in runs)
    return tuple(run[0] // each for run in runs) if whole else ()


def _run(first: int, count: int) -> list[int]:
    return list(range(first, first + count))


def _index_place(instr: Instr, wanted: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the operands that are registers, and last that of the index, if it takes the lanes `wanted` of them."""
    count = len(instr.operands) - 1
    given = [[LinearForm(0, f.atoms, 0, 1) for f in unknowns(instr.out, str(k))] for k in range(count)]
    every = [x for register in given for x in register]
    for places in permutations(range(count + 1)):
        args: dict[int, Sequence[object]] = dict(zip(places, [*given, list(wanted)], strict=True))
        try:
            if gives(instr, [args[k] for k in range(count + 1)], 0, [every[k] for k in wanted]):
                return places
        except (TypeError, AttributeError):
            continue
    return None

"""Flushes of depthwise kernels: accumulators of any width and order, widened and added to int32 sums in order.

Forms that widen lanes, add them widened, or move them are found by their effect on unknowns. For 16-bit accumulators of
16 channels and int32 sums:

    acc0 (channels 0..7), acc1 (8..15)     widen low and high lanes      4 registers of 32-bit lanes
    move, if widening leaves another order                               channels 0..3, 4..7, 8..11, 12..15
    add to the sums c0 .. c3

Sums may also be finished in another order of a unit's channels: an order that narrowing to bytes brings back, or the
order of programs which make 64 bits of a sum, with the even channels of every four before the odd ones. Each has its
own flush.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import permutations

import numpy as np

from bitsynth.errors import NoKernel
from bitsynth.isa.domains.forms import Inexact, LinearForm, add_forms, as_form, have_same_terms, variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Constant, Step
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.depthwise import DepthwiseFlush
from bitsynth.sketches.depthwise.steps import DepthwiseStep
from bitsynth.sketches.elementwise.roles import narrowing, ran
from bitsynth.sketches.lanes.terms import adder

ChannelOrder = tuple[int, ...]


@lru_cache
def orders(isa: Isa) -> tuple[ChannelOrder, ...]:
    """Return every order in which sums may be finished, the unit's own order first."""
    own = tuple(range(isa.word.lanes))
    narrowed = [order for order in _narrow_order_channels(isa) if order != own]
    swapped = [tuple(order[k - k % 4 + (0, 2, 1, 3)[k % 4]] for k in range(len(order))) for order in narrowed]
    return (own, *narrowed, *swapped)


def _narrow_order_channels(isa: Isa) -> Iterator[ChannelOrder]:
    """Yield orders of int32 lanes from which narrowing to 16 bits, and to 8, gives the unit's own order."""
    kind = replace(isa.tile, sign="s")
    registers = list(np.arange(isa.word.lanes).reshape(-1, kind.lanes, 1).astype(np.uint64))
    while len(registers) > 1 and len(registers) % 2 == 0:
        try:
            narrow = isa[narrowing(isa, kind, fits=True).op]
        except NoKernel:
            return
        registers = [ran(narrow, kind, pair) for pair in zip(registers[::2], registers[1::2], strict=True)]
        kind = replace(kind, bits=kind.bits // 2, lanes=kind.lanes * 2)
        yield tuple(np.argsort(np.concatenate(registers)[:, 0]).tolist())


@dataclass(frozen=True)
class SumRegister:
    """A register of sums and the channels of its lanes."""

    name: Value
    kind: VecType
    channels: ChannelOrder


@dataclass
class FlushWriter:
    """The program of a flush, while its instructions are added."""

    program: list[Step] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)

    def __call__(self, op: str, args: tuple[Value, ...], imm: int = 0) -> Value:
        """Return the register that a step writes; equal steps share a register."""
        step = next((s for s in self.program if (s.op, s.args, s.imm) == (op, args, imm)), None)
        if step is None:
            self.program.append(step := Step(Value.of(Role.TEMPORARY, len(self.program)), op, args, imm))
        return step.dst

    def flush(self, order: ChannelOrder, tile: Mapping[int, Value]) -> DepthwiseFlush:
        """Return the flush to `order` whose sums are `tile`."""
        named = tuple(tile[r] for r in range(len(tile)))
        return DepthwiseFlush(order, tuple(self.constants), tuple(self.program), named)

    def constant(self, kind: VecType, lanes: tuple[int, ...]) -> Value:
        """Return the constant register that holds `lanes`; equal constants share one."""
        equal = next((c for c in self.constants if (c.type, c.lanes) == (str(kind), lanes)), None)
        if equal is None:
            self.constants.append(equal := Constant(Value.of(Role.CONSTANT, len(self.constants)), str(kind), lanes))
        return equal.name


def unknowns(kind: VecType, what: str = "x") -> list[LinearForm]:
    """Return a register of `kind`, each of its lanes an unknown of its own."""
    return [variable((what, i), -1, 0) for i in range(kind.lanes)]


def gives(instr: Instr, args: Sequence[Sequence[object]], imm: int, want: Sequence[LinearForm]) -> bool:
    """Return whether the instruction computes the lanes `want` from its operands, for all their values."""
    try:
        return have_same_terms([as_form(x) for x in instr(LinearDomain(1), args, imm)], want)
    except Inexact:
        return False


@lru_cache
def widening_adds(isa: Isa, kind: VecType) -> tuple[str, str] | None:
    """Return the instructions that add the low and the high lanes of a `kind` to lanes twice as wide; None if there are
    none.
    """
    wide = VecType("s", 2 * kind.bits, kind.lanes // 2)
    sums, x = unknowns(wide, "c"), unknowns(kind)
    halves = x[: wide.lanes], x[wide.lanes :]
    adds = []
    for half in halves:
        want = [add_forms(c, y) for c, y in zip(sums, half, strict=True)]
        fit = (i for i in isa.full_forms if [o.type.bits for o in i.operands] == [wide.bits, kind.bits] and not i.imm)
        adds.append(next((i.name for i in fit if i.operands[1].type == kind and gives(i, [sums, x], 0, want)), None))
    low, high = adds
    return (low, high) if low and high else None


@lru_cache
def widenings(isa: Isa, kind: VecType) -> tuple[tuple[tuple[str, int], ...], ...]:
    """Return the instructions, with immediates, that widen the low and the high lanes of a register of `kind`."""
    half = kind.lanes // 2
    x = unknowns(kind)
    out = [_find_widening(isa, kind, x, x[h * half : (h + 1) * half]) for h in range(2)]
    return tuple(out)


def _find_widening(
    isa: Isa, kind: VecType, x: Sequence[LinearForm], want: Sequence[LinearForm]
) -> tuple[tuple[str, int], ...]:
    """Return one instruction on the whole register, or two: one takes a half of it, the other widens the half."""
    part = VecType("s", kind.bits, kind.lanes // 2)
    unary = [i for i in isa.full_forms if len(i.operands) == 1 and not i.imm and i.out.bits == 2 * kind.bits]
    for instr in unary:
        if instr.operands[0].type == kind and gives(instr, [x], 0, want):
            return ((instr.name, 0),)
    for instr in unary:
        if instr.operands[0].type == part and gives(instr, [unknowns(part)], 0, unknowns(part)):
            for cut, imm in _halvings(isa, kind, part):
                if list(want) == list(x[imm * part.lanes : (imm + 1) * part.lanes]):
                    return ((cut, imm), (instr.name, 0))
    raise NoKernel(f"{isa.name} has no instruction that widens signed lanes of {kind}")


@lru_cache
def _halvings(isa: Isa, kind: VecType, part: VecType) -> tuple[tuple[str, int], ...]:
    """Return instructions with immediates that take the low and the high half of a register of `kind`."""
    x = unknowns(kind)
    return tuple(
        (i.name, h)
        for i in isa.instrs.values()
        if i.imm and [o.type for o in i.operands] == [kind] and i.out == part
        for h in range(2)
        if h in i.imms and gives(i, [x], h, x[h * part.lanes : (h + 1) * part.lanes])
    )


def parts_of(channels: ChannelOrder, lanes: int) -> list[ChannelOrder]:
    """Return the channels of the int32 registers to which a register of these channels is widened."""
    return [channels[k : k + lanes] for k in range(0, len(channels), lanes)]


def order_at_last(isa: Isa, held: Sequence[SumRegister], order: ChannelOrder, write: FlushWriter) -> list[SumRegister]:
    """Return the same with channels in `order`; within four channels any order will do, as wider lanes take them."""
    fours = tuple(ch for k in range(0, len(order), 4) for ch in sorted(order[k : k + 4]))
    for wanted in dict.fromkeys((order, fours)):
        if mixed := _mix_registers(isa, held, wanted, write):
            return mixed
        with suppress(NoKernel):
            return order_channels(isa, held, wanted, write)
    raise NoKernel(f"{isa.name} cannot bring the channels of {len(held)} registers into order")


def order_channels(isa: Isa, held: Sequence[SumRegister], order: ChannelOrder, write: FlushWriter) -> list[SumRegister]:
    """Return the same sums with channels in `order`, each register gathered from one or two registers; else NoKernel.

    If a register needs channels of more than two registers, pairs of registers are brought into order first.
    """
    if any(len(sources) > 2 for _, sources in _registers_in_order(held, order)) and len(held) % 2 == 0:
        place = {channel: k for k, channel in enumerate(order)}
        pairs = zip(held[::2], held[1::2], strict=True)
        held = [
            x
            for pair in pairs
            for x in _reorder_registers(isa, pair, sorted(_channels(pair), key=place.__getitem__), write)
        ]
    return _reorder_registers(isa, held, order, write)


def _channels(held: Sequence[SumRegister]) -> ChannelOrder:
    return tuple(channel for x in held for channel in x.channels)


def _registers_in_order(
    held: Sequence[SumRegister], order: Sequence[int]
) -> Iterator[tuple[ChannelOrder, list[SumRegister]]]:
    """Yield the channels of each register in `order`, and the registers that hold them."""
    lanes = held[0].kind.lanes
    for k in range(0, len(order), lanes):
        wanted = tuple(order[k : k + lanes])
        yield wanted, [x for x in held if not set(wanted).isdisjoint(x.channels)]


def _reorder_registers(
    isa: Isa, held: Sequence[SumRegister], order: Sequence[int], write: FlushWriter
) -> list[SumRegister]:
    """Return the same sums with channels in `order`, an instruction each."""
    kind = held[0].kind
    return [
        SumRegister(_gather_register(isa, sources, wanted, write), kind, wanted)
        for wanted, sources in _registers_in_order(held, order)
    ]


def _mix_registers(isa: Isa, held: Sequence[SumRegister], order: ChannelOrder, write: FlushWriter) -> list[SumRegister]:
    """Return the same by instructions that take lanes of two registers, without an index; [] if these do not
    suffice."""
    lanes, mixes = isa.tile.lanes, list[tuple[str, SumRegister, SumRegister, ChannelOrder]]()
    wanted = {order[k : k + lanes] for k in range(0, len(order), lanes)}
    for x, y in zip(held[::2], held[1::2], strict=len(held) > 1):
        for op, channels in _mixes(isa, x, y):
            if wanted.issuperset(parts := parts_of(channels, lanes)):
                mixes.append((op, x, y, channels))
                wanted.difference_update(parts)
    if wanted:
        return []
    return [SumRegister(write(op, (x.name, y.name)), x.kind, channels) for op, x, y, channels in mixes]


def _mixes(isa: Isa, x: SumRegister, y: SumRegister) -> Iterator[tuple[str, ChannelOrder]]:
    """Yield instructions that take lanes of two registers, and the channels of the lanes that they take."""
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


def _gather_register(isa: Isa, sources: Sequence[SumRegister], wanted: ChannelOrder, write: FlushWriter) -> Value:
    """Return a register of the channels `wanted`, by one instruction; NoKernel if there is none."""
    both = _channels(sources)
    index = [both.index(ch) for ch in wanted]
    for instr in isa.full_forms:
        if len(instr.operands) != len(sources) + 1 or {o.type for o in instr.operands} != {instr.out} or instr.imm:
            continue
        lanes = _in_lanes(index, sources[0].kind.bits, instr.out.bits)
        if lanes and (places := _index_operands(instr, lanes)):
            names = [*(x.name for x in sources), write.constant(instr.out, lanes)]
            given = dict(zip(places, names, strict=True))
            return write(instr.name, tuple(given[k] for k in range(len(given))))
    raise NoKernel(f"{isa.name} cannot bring the channels of {len(sources)} registers into order")


def _in_lanes(index: Sequence[int], have: int, bits: int) -> tuple[int, ...]:
    """Return an index of lanes of `have` bits as an index of wider lanes of `bits`; () if lanes would be split."""
    each = bits // have
    runs = [list(index[k : k + each]) for k in range(0, len(index), each)] if each else []
    whole = all(run[0] % each == 0 and run == _run(run[0], each) for run in runs)
    return tuple(run[0] // each for run in runs) if whole else ()


def _run(first: int, count: int) -> list[int]:
    return list(range(first, first + count))


def _index_operands(instr: Instr, wanted: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the operands that are registers, the index last, if the form takes the lanes `wanted` of them."""
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


_SUM_BITS = 32


def flushes(isa: Isa, step: DepthwiseStep) -> tuple[DepthwiseFlush, ...]:
    """Return a flush of the step's accumulators for each order that the instruction set can bring them into.

    NoKernel if it cannot bring them into the unit's own.
    """
    own, *others = orders(isa)
    flushes_ = [_flush(isa, step, own)]
    for order in others:
        with suppress(NoKernel):
            flushes_.append(_flush(isa, step, order))
    return tuple(flushes_)


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
            held = order_at_last(isa, held, order, write)
        adding = widening_adds(isa, held[0].kind)
        if held[0].kind.bits * 2 == _SUM_BITS and adding and _holds(held, places):
            added = [
                (part, op, x.name) for x in held for part, op in zip(parts_of(x.channels, lanes), adding, strict=True)
            ]
            return write.flush(
                order, {r: write(op, (Value.of(Role.TILE, r), x)) for part, op, x in added for r in [places[part]]}
            )
        held = [half for x in held for half in _widen_register(isa, x, write)]
    if not _holds(held, places):
        held = order_channels(isa, held, order, write)
    add = adder(isa, isa.tile)
    return write.flush(
        order, {r: write(add, (Value.of(Role.TILE, r), x.name)) for x in held for r in [places[x.channels]]}
    )


def _holds(held: Sequence[SumRegister], places: Mapping[ChannelOrder, int]) -> bool:
    """Return whether the registers consist of whole registers of the tile, channel by channel."""
    lanes = len(next(iter(places)))
    return all(part in places for x in held for part in parts_of(x.channels, lanes))


def _widen_register(isa: Isa, x: SumRegister, write: FlushWriter) -> Iterator[SumRegister]:
    kind = VecType("s", 2 * x.kind.bits, x.kind.lanes // 2)
    for h, ops in enumerate(widenings(isa, x.kind)):
        name = x.name
        for op, imm in ops:
            name = write(op, (name,), imm)
        yield SumRegister(name, kind, x.channels[h * kind.lanes : (h + 1) * kind.lanes])

"""Unmixing: accumulators that hold parts of each other's sums are separated before sums are widened.

Rows that share bytes (`sketches/lanes/pairs.py`) have two accumulators. Lane b of the first holds the sums
low[b] + 16 * high[b]. Lane b of the second holds high[b], and in some sets 16 * low[b + 1] too. Modulo 256:

    first      minus 16 times the second                                 low[b], as 256 * low[b + 1] is 0
    second     minus 16 times the first, each lane from the one above    high[b]

16 times a lane is what a write-back takes, or low halves that are masked, then shifted in wider lanes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from bitsynth.errors import NoKernel
from bitsynth.isa.domains.forms import LinearForm, as_form, have_same_terms, variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Metric
from bitsynth.isa.lane import is_bitwise
from bitsynth.isa.load import Isa
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Value
from bitsynth.sketches.reduction.moves import ILLEGAL
from bitsynth.sketches.reduction.writeback import WriteBack, cheapest_write_back, take_from_tile


@dataclass(frozen=True)
class TimesTaken:
    """Takes `times` a register from another one by a write-back."""

    times: int
    take: WriteBack

    def apply(self, trace: Trace, name: Value, target: Value) -> Value:
        """Run the instructions on `name` and `target`, and return the name of the difference."""
        return take_from_tile(trace, self.take, [name], self.times, [target])[0]


@dataclass(frozen=True)
class HalvesTaken:
    """Takes the low halves of a register's lanes from another one, moved to high halves.

    `keep` masks them with `mask`, `shift` moves them by half a lane, up, or down from the lane above.
    """

    keep: str
    mask: tuple[int, ...]
    shift: str
    imm: int
    take: WriteBack

    def apply(self, trace: Trace, name: Value, target: Value) -> Value:
        """Run the instructions on `name` and `target`, and return the name of the difference."""
        return take_from_tile(trace, self.take, [self.move(trace, name)], 1, [target])[0]

    def move(self, trace: Trace, name: Value) -> Value:
        """Run the mask and the shift, and return the name of the moved halves."""
        kept = trace.apply(self.keep, [name, trace.constant(trace.isa[self.keep].operands[1].type, self.mask)])
        return trace.apply(self.shift, [kept], self.imm)


@dataclass(frozen=True)
class Unmixing:
    """Two accumulators' sums, separated: `of_first` takes the second from the first, then `of_second` the other way.

    Without `of_second` the second has nothing of the first.
    """

    of_first: TimesTaken | HalvesTaken
    of_second: HalvesTaken | None = None

    def apply(self, trace: Trace, first: Value, second: Value) -> tuple[Value, Value]:
        """Run the instructions, and return the names of the separated sums."""
        first = self.of_first.apply(trace, second, first)
        return first, self.of_second.apply(trace, first, second) if self.of_second else second


def find_taken(isa: Isa, kind: VecType, coef: int, metric: Metric) -> tuple[float, WriteBack] | None:
    """Return the write-back that takes `coef` times a register of `kind` from another, lane by lane, and its cost."""
    trace = Trace(isa, LinearDomain(1))
    lanes = tuple(variable((i, 0, 0), 0, 1) for i in range(kind.lanes))
    acc = trace.bind(Value("acc"), Register(kind, lanes))
    write_back = cheapest_write_back(trace, [acc], coef, metric, kind)
    return write_back[:2] if write_back and write_back[2] == tuple(range(kind.lanes)) else None


@lru_cache
def cheapest_unmixing(isa: Isa, kind: VecType, span: int, metric: Metric) -> tuple[float, Unmixing]:
    """Return the cheapest way to separate two accumulators of type `kind`, and its cost; NoKernel if there is none.

    In lanes of `span` lanes of `kind` every one of them but the last has in its second accumulator low sums of the lane
    above.
    """
    times = 1 << kind.bits // 2
    by_factor = find_taken(isa, kind, times, metric)
    firsts: list[tuple[float, TimesTaken | HalvesTaken]] = list(_halves_taken(isa, kind, 0, kind.lanes, metric))
    if by_factor:
        firsts.insert(0, (by_factor[0], TimesTaken(times, by_factor[1])))
    seconds = list(_halves_taken(isa, kind, 1, span, metric)) if span > 1 else [(0.0, None)]
    if not firsts or not seconds:
        raise NoKernel(f"{isa.name}: no instruction takes sums shifted up from sums of {kind}")
    first, second = min(firsts, key=lambda x: x[0]), min(seconds, key=lambda x: x[0])
    return first[0] + second[0], Unmixing(first[1], second[1])


def _halves_taken(isa: Isa, kind: VecType, up: int, span: int, metric: Metric) -> Iterator[tuple[float, HalvesTaken]]:
    """Yield ways to take 16 times lane b + `up` from lane b, and their costs; nothing where `span` lanes end."""
    taken = find_taken(isa, kind, 1, metric)
    if taken is None:
        return
    half, from_ = kind.bits // 2, [b + up if b % span + up < span else None for b in range(kind.lanes)]
    masks = [(1 << half) - 1 if b in from_ else 0 for b in range(kind.lanes)]
    keeps = [i for i in isa.full_forms if len(i.operands) == 2 and not i.imm and is_bitwise(i.tree)]
    shifts = [i for i in isa.full_forms if len(i.operands) == 1 and i.imm and half in i.imms]
    for keep in keeps:
        operand = keep.operands[1].type
        lanes = Register(kind, tuple(masks)).view_as(LinearDomain(1), operand).lanes
        for shift in shifts:
            way = HalvesTaken(keep.name, lanes, shift.name, half, taken[1])
            if _moves_halves(isa, kind, way, from_):
                yield metric(keep) + metric(shift) + taken[0], way


def _moves_halves(isa: Isa, kind: VecType, way: HalvesTaken, from_: list[int | None]) -> bool:
    """Return whether lane b becomes the low half of lane from_[b], moved up, or 0 for None."""
    trace = Trace(isa, LinearDomain(1))
    # Sums wrap: a lane holds any number, and only its low half is moved.
    lanes = [variable(b, 0, 1 << 2 * kind.bits) for b in range(kind.lanes)]
    x = trace.bind(Value("x"), Register(kind, tuple(lanes)))
    try:
        moved = trace.registers[way.move(trace, x)].view_as(trace.domain, kind)
        got = [as_form(lane) for lane in moved.lanes]
    except ILLEGAL:
        return False
    nothing = LinearForm(0, {}, 0, 0)
    want = [nothing if b is None else lanes[b].scale(1 << kind.bits // 2) for b in from_]
    return have_same_terms(got, want)

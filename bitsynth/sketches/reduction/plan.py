"""The reduction sketch of popcount kernels: from counts to int32 columns.

A plan has up to `PRE` levels inside the loop, one accumulating instruction, and when the accumulators are flushed up to
`POST` levels and a write-back that takes coef * sum from the int32 tile:

    in the loop    two registers of counts    level: add pairs of bytes       acc0 = adalp acc0 t0
    at a flush     acc0                       level: addp, widened            c0 = sub c0 t1

All plans of the sketch are enumerated cheapest first (uniform-cost search over contents of lanes), so the plan found is
minimal in it. `flush_program` writes its flush, with one write-back for each multiple of its sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from bitsynth.errors import NoKernel
from bitsynth.isa.domains.forms import Inexact, LinearForm, variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Instr, Metric
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.isa.trace import ConstantPool, Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Role, Value
from bitsynth.sketches.reduction.moves import ILLEGAL, AnyMove, Move, all_moves, arithmetic, atoms, signature
from bitsynth.sketches.reduction.writeback import (
    Flush,
    WriteBack,
    bind_tile,
    cheapest_flush,
    cheapest_write_back,
    take_from_tile,
)

PRE = 3
_GENERAL_COEF = 6
"""Neither 1 nor a power of two: a plan is priced by the write-back that takes any multiple of its sums."""
_ROUNDING = 1e-9


@dataclass(frozen=True)
class ReductionPlan:
    """A reduction of `given`, found by `plan`."""

    given: ReductionInput
    pre: tuple[Move, ...]
    accumulate: str
    accs: int
    acc_type: VecType
    post: tuple[AnyMove, ...]
    slots: tuple[int, ...]
    in_loop: float
    per_flush: float
    flushes: int

    @property
    def cost(self) -> float:
        """The cost of the flushes of one column block, in the metric."""
        return self.per_flush * self.flushes


@dataclass(frozen=True)
class ReductionInput:
    """The registers to reduce: `groups` of them, of lanes `bits` wide, each in [least, most].

    A column has `slot_bytes` of a register. The instructions are from `menu`, or any.
    """

    groups: int
    most: int
    least: int = 0
    bits: int = 8
    slot_bytes: int = 8
    menu: tuple[str, ...] | None = None

    def allows(self, op: str) -> bool:
        """Return whether the form `op` is on the menu."""
        return self.menu is None or op.split(".", maxsplit=1)[0] in self.menu


def start(isa: Isa, given: ReductionInput) -> tuple[Trace, list[Value]]:
    """Return registers of counts: each lane of a column's slot is an atom."""
    trace = Trace(isa, LinearDomain(1))
    kind = VecType("u", given.bits, isa.table.vector_bits // given.bits)
    each = 8 * given.slot_bytes // given.bits
    names = []
    for g in range(given.groups):
        places = [(g * kind.lanes // each + b // each, b % each) for b in range(kind.lanes)]
        lanes = tuple(variable((slot, b, 0), given.least, given.most) for slot, b in places)
        names.append(trace.bind(Value(f"n{g}"), Register(kind, lanes)))
    return trace, names


@lru_cache
def plan(isa: Isa, given: ReductionInput, steps: int, metric: Metric) -> ReductionPlan:
    """Return the cheapest plan for `steps` steps, each adding to a lane a number within the range of `given`."""
    if given.groups * isa.word.lanes // given.slot_bytes % isa.tile.lanes:
        raise NoKernel(f"{isa.name}: {given.groups} registers do not fill the int32 tile")
    best: ReductionPlan | None = None
    for part in _loops(isa, given, steps, metric):
        most = _key(best, steps)[0] if best else float("inf")
        if part.bound >= most:
            break
        for candidate in _plans(isa, given, part, steps, metric, most):
            if best is None or _key(candidate, steps) < _key(best, steps):
                best = candidate
    if best is None:
        raise NoKernel(f"{isa.name}: no reduction of {given.groups} registers in the sketch")
    return best


def _key(p: ReductionPlan, steps: int) -> tuple[float, int]:
    return p.in_loop * steps + p.cost, p.accs


def _pre_levels(isa: Isa, given: ReductionInput) -> Iterator[tuple[Move, ...]]:
    """Yield legal in-loop sequences of pair levels, the same instruction names in the same order."""
    stack: list[tuple[Move, ...]] = [()]
    while stack:
        levels = stack.pop()
        yield levels
        if len(levels) < PRE and given.groups >> (len(levels) + 1):
            extended = [(*levels, m) for m in all_moves(isa) if m.kind == "pair" and given.allows(m.op)]
            stack += [s for s in reversed(extended) if _legal(isa, given, s)]


def _legal(isa: Isa, given: ReductionInput, levels: Sequence[Move]) -> bool:
    trace, names = start(isa, given)
    whole = atoms(signature(trace, names))
    try:
        for level in levels:
            names = level.apply(trace, names)
        return atoms(signature(trace, names)) == whole
    except ILLEGAL:
        return False


Lanes = tuple[LinearForm | int, ...]


class _LoopPart(NamedTuple):
    """The part of a plan in the loop, with a lower bound on the whole plan's cost."""

    bound: float
    pre: tuple[Move, ...]
    instr: Instr
    lanes: list[Lanes]


def _loops(isa: Isa, given: ReductionInput, steps: int, metric: Metric) -> list[_LoopPart]:
    """Return the parts in the loop, the part with the lowest bound first."""
    out: list[_LoopPart] = []
    for pre in _pre_levels(isa, given):
        trace, names = start(isa, given)
        for level in pre:
            names = level.apply(trace, names)
        before = sum(metric(isa[s.op]) for s in trace.steps)
        for instr in arithmetic(isa):
            lanes = find_accumulated(trace, names, instr) if _may_accumulate(given, trace, names, instr) else None
            if lanes is not None:
                loop = before + len(names) * metric(instr)
                bound = loop * steps + len(names) * metric(isa.gate)
                out.append(_LoopPart(bound, pre, instr, lanes))
    return sorted(out, key=lambda part: part.bound)


def _may_accumulate(given: ReductionInput, trace: Trace, names: Sequence[Value], instr: Instr) -> bool:
    sign = "s" if given.least < 0 else "u"
    plain = instr.out.sign == sign and len(instr.operands) == 2 and not instr.imm and given.allows(instr.name)
    same = instr.operands[0].type == instr.out
    return plain and same and instr.operands[1].type.bits == trace.registers[names[0]].type.bits


def _plans(
    isa: Isa, given: ReductionInput, part: _LoopPart, steps: int, metric: Metric, most: float
) -> Iterator[ReductionPlan]:
    """Yield cheaper and cheaper plans with this part in the loop, for all that may cost no more than `most`."""
    _, pre, instr, lanes = part
    in_loop = len(lanes) * metric(instr)
    count = len(lanes)
    for level in reversed(pre):
        in_loop += count * metric(isa[level.op])
        count *= 2
    zeroing = len(lanes) * metric(isa.gate)
    tile_registers = count * isa.word.lanes // given.slot_bytes // isa.tile.lanes
    least = zeroing + tile_registers * min(metric(i) for i in arithmetic(isa))
    best = most - in_loop * steps + _ROUNDING
    for flushes in _flush_counts(steps):
        if flushes * least >= best:
            return
        flush = _flush(isa, lanes, instr.out, -(-steps // flushes), metric, best / flushes - zeroing + _ROUNDING)
        if flush and (flush[0] + zeroing) * flushes < best:
            cost, post, slots, _ = flush
            best = (cost + zeroing) * flushes
            accs, per_flush = len(lanes), cost + zeroing
            yield ReductionPlan(given, pre, instr.name, accs, instr.out, post, slots, in_loop, per_flush, flushes)


def _flush_counts(steps: int) -> list[int]:
    """Return the numbers of flushes 1, 2, 3, ... as far as they give different flush periods."""
    return sorted({-(-steps // period) for period in range(1, steps + 1)})


def find_accumulated(trace: Trace, names: Sequence[Value], instr: Instr) -> list[Lanes] | None:
    """Return the forms that one step adds to each accumulator lane; None if `instr` does not accumulate."""
    out = []
    try:
        for r, name in enumerate(names):
            probe = Trace(trace.isa, trace.domain, dict(trace.registers))
            start_lanes = tuple(variable(("acc", i), 0, 0) for i in range(instr.out.lanes))
            probe.bind(Value("acc"), Register(instr.out, start_lanes))
            lanes = probe.registers[probe.apply(instr.name, [Value("acc"), name])].lanes
            added = tuple(_without(x, ("acc", i)) for i, x in enumerate(lanes))
            out.append(added)
            trace.bind(Value(f"added{r}"), Register(instr.out, added))
        whole = atoms(signature(trace, names))
        return out if atoms(signature(trace, [Value(f"added{r}") for r in range(len(names))])) == whole else None
    except ILLEGAL:
        return None


def _without(x: object, key: tuple[str, int]) -> LinearForm | int:
    if not isinstance(x, LinearForm) or x.atoms.get(key) != {1: 1}:
        raise Inexact("not an accumulation")
    rest = {k: v for k, v in x.atoms.items() if k != key}
    return LinearForm(x.const, rest, x.lo, x.hi) if rest else x.const


def _flush(
    isa: Isa, added: Sequence[Lanes], kind: VecType, period: int, metric: Metric, ceiling: float
) -> Flush | None:
    """Return the cheapest flush of accumulators filled for `period` steps, if it is cheaper than `ceiling`."""
    return cheapest_flush(*after_loop(isa, added, kind, period), _GENERAL_COEF, metric, isa.tile, ceiling)


def after_loop(isa: Isa, added: Sequence[Lanes], kind: VecType, period: int) -> tuple[Trace, list[Value]]:
    """Return accumulators after `period` steps, one atom a lane."""
    trace = Trace(isa, LinearDomain(1))
    names = []
    for r, lanes in enumerate(added):
        held = tuple(sum_periods(x, (r, i), period) for i, x in enumerate(lanes))
        names.append(trace.bind(Value.of(Role.ACCUMULATOR, r), Register(kind, held)))
    return trace, names


def sum_periods(x: LinearForm | int, place: tuple[int, int], period: int) -> LinearForm | int:
    """Return the sum of `period` steps in the lane at `place`, (register, lane), when each step adds `x`."""
    if isinstance(x, int):
        return x * period
    slot = next(iter(x.atoms))[0]  # type: ignore[index]
    return variable((slot, *place), x.lo * period, x.hi * period)


def flush_trace(isa: Isa, plan: ReductionPlan, names: Sequence[Value], constants: ConstantPool, first: int) -> Trace:
    """Return a trace in which `names` hold what the plan's accumulators hold at a flush."""
    trace, counted = start(isa, replace(plan.given, most=1, least=min(0, plan.given.least)))
    for level in plan.pre:
        counted = level.apply(trace, counted)
    added = find_accumulated(trace, counted, isa[plan.accumulate])
    if added is None:
        raise NoKernel(f"{isa.name}: {plan.accumulate} does not accumulate")
    flush = Trace(isa, LinearDomain(1), constants=constants, first=first)
    for r, (name, lanes) in enumerate(zip(names, added, strict=True)):
        flush.bind(name, Register(plan.acc_type, tuple(sum_periods(x, (r, i), 1) for i, x in enumerate(lanes))))
    bind_tile(flush, isa.tile)
    return flush


def flush_program(
    isa: Isa, plan: ReductionPlan, classes: Mapping[int, Sequence[Value]], constants: ConstantPool, metric: Metric
) -> tuple[tuple[Step, ...], tuple[Value, ...]]:
    """Return instructions and final tile registers: for each class of accumulators the tile minus coef * sum."""
    tile = [Value.of(Role.TILE, r) for r in range(len(plan.slots) // isa.tile.lanes)]
    program: list[Step] = []
    for coef, names in classes.items():
        trace = flush_trace(isa, plan, names, constants, len(program))
        for k, name in enumerate(tile):
            trace.registers[name] = trace.registers[Value.of(Role.TILE, k)]
        sums: Sequence[Value] = names
        for level in plan.post:
            sums = level.apply(trace, sums)
        tile = take_from_tile(trace, _best_write_back(isa, plan, coef, metric), sums, coef, tile)
        program += trace.steps
    return tuple(program), tuple(tile)


@lru_cache
def _best_write_back(isa: Isa, plan: ReductionPlan, coef: int, metric: Metric) -> WriteBack:
    """Return the cheapest write-back of the plan's sums for `coef`."""
    trace = flush_trace(isa, plan, [Value.of(Role.ACCUMULATOR, r) for r in range(plan.accs)], {}, 0)
    sums: Sequence[Value] = [Value.of(Role.ACCUMULATOR, r) for r in range(plan.accs)]
    for level in plan.post:
        sums = level.apply(trace, sums)
    if (best := cheapest_write_back(trace, sums, coef, metric, isa.tile)) is None:
        raise NoKernel(f"{isa.name}: no instruction takes {coef} times a sum from the tile")
    return best[1]

"""Flushes of reductions: levels that merge or widen sums, then the write-back, coef * sum taken from the tile.

`cheapest_flush` searches levels of moves, cheapest first, until each lane holds the sum of one column. The write-back
subtracts coef * sum lane by lane, from the int32 tile or from wider accumulators; a negative coefficient adds:

    16-bit acc0, columns 0 1 0 1 ...       level: add adjacent pairs, widened        32-bit sums of columns
    coef 3                                 write-back: t = mul sum k3; c0 = sub c0 t, or one fused form
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count as counter

from bitsynth.errors import SpecError
from bitsynth.isa.domains.forms import Inexact, LinearForm, variable
from bitsynth.isa.instr import Instr, Metric
from bitsynth.isa.load import Isa
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Role, Value
from bitsynth.sketches.reduction.moves import (
    ILLEGAL,
    AnyMove,
    Signature,
    all_moves,
    arithmetic,
    atoms,
    largest_sum,
    signature,
)

_MAX_REGISTERS = 8

_ROUNDING = 1e-9
"""Relative errors of sums of costs are smaller: a bound that is lower by this part is one in floats too."""


@dataclass(frozen=True)
class WriteBack:
    """The step tile - coef * sum: an optional scaling instruction, then one that subtracts.

    A `fused` one multiplies. If it adds up `parts` products of narrower lanes, it is run
    once for each of them, the others times 0.
    """

    scale: str | None
    op: str
    high: str | None
    fused: bool
    parts: int = 1


def cheapest_write_back(
    trace: Trace, names: Sequence[Value], coef: int, metric: Metric, kind: VecType
) -> tuple[float, WriteBack, tuple[int, ...]] | None:
    """Return the cheapest way to take coef * sum from registers of `kind`; None unless every lane is a whole column."""
    held = [lane for _, lanes in signature(trace, names) for lane in lanes if lane]
    if len(held) != len({slot for slot, _ in held}):
        return None
    best: tuple[float, WriteBack, tuple[int, ...]] | None = None
    for option in write_backs(trace.isa, coef, kind):
        if trace.isa[option.op].operands[1].type.bits != trace.registers[names[0]].type.bits:
            continue
        cost = _cost(trace.isa, option, len(names), metric)
        if best is not None and cost >= best[0]:
            continue
        probe = Trace(trace.isa, trace.domain, dict(trace.registers), list(trace.steps), dict(trace.constants))
        tile = bind_tile(probe, kind)
        try:
            out = take_from_tile(probe, option, names, coef, tile)
            slots = _columns(probe, out, coef)
        except ILLEGAL:
            continue
        best = (cost, option, slots)
    return best


def _cost(isa: Isa, option: WriteBack, registers: int, metric: Metric) -> float:
    """Return the cost of the write-back of `registers` sums."""
    ops = [op for op in (option.scale, option.op, option.high) if op]
    return registers * option.parts * sum(metric(isa[op]) for op in ops)


def bind_tile(trace: Trace, kind: VecType) -> list[Value]:
    """Return registers c0.. of `kind` to take sums from, more than are needed."""
    return [
        trace.bind(
            Value.of(Role.TILE, r), Register(kind, tuple(variable(("c", r, i), 0, 0) for i in range(kind.lanes)))
        )
        for r in range(_MAX_REGISTERS)
    ]


@lru_cache
def write_backs(isa: Isa, coef: int, kind: VecType) -> tuple[WriteBack, ...]:
    """Return candidate write-backs for `coef`: fused multiplication, or scaling first."""
    size = abs(coef)
    out: list[WriteBack] = []
    scales = [None] if size == 1 else [i.name for i in arithmetic(isa) if i.out == kind and _scales(i, size)]
    for instr in arithmetic(isa):
        if not _alike(instr.out, kind) or instr.imm or not _alike(instr.operands[0].type, kind):
            continue
        high = isa.high_half(instr)
        if len(instr.operands) == 3:
            ratio = instr.operands[1].type.lanes // kind.lanes
            out += [WriteBack(None, instr.name, high, True, parts) for parts in sorted({1, ratio})]
        elif len(instr.operands) == 2:
            out += [WriteBack(scale, instr.name, high, False) for scale in scales]
    unique = {(*(op and isa[op].lane for op in (f.scale, f.op)), f.parts): f for f in reversed(out)}
    return tuple(f for f in out if f in unique.values())


def _alike(a: VecType, b: VecType) -> bool:
    """Return whether both have the same lanes, whatever their sign."""
    return (a.bits, a.lanes) == (b.bits, b.lanes)


def _scales(instr: Instr, coef: int) -> bool:
    """Return whether an instruction is a shift by a register-wide immediate or a product of lanes."""
    if instr.imm:
        return len(instr.operands) == 1 and coef & (coef - 1) == 0 and coef.bit_length() - 1 in instr.imms
    return len(instr.operands) == 2 and all(o.type == instr.out for o in instr.operands)


def take_from_tile(
    trace: Trace, option: WriteBack, names: Sequence[Value], coef: int, tile: Sequence[Value]
) -> list[Value]:
    """Run the write-back; the names of the new tile registers."""
    out: list[Value] = []
    free = iter(tile)
    for name in names:
        scaled = _scale(trace, option.scale, name, abs(coef)) if option.scale else name
        for op in (option.op, option.high) if option.high else (option.op,):
            for part in range(option.parts):
                if (target := next(free, None)) is None:
                    raise SpecError("more sums than tile registers")
                out.append(trace.apply(op, [target, scaled, *_factors(trace, option, op, part, coef)]))
    return out


def _factors(trace: Trace, option: WriteBack, op: str, part: int, coef: int) -> list[Value]:
    """Return the constant that a fused write-back multiplies by: the coefficient in the lanes of `part`."""
    if not option.fused:
        return []
    kind = trace.isa[op].operands[-1].type
    return [trace.constant(kind, [abs(coef) if k % option.parts == part else 0 for k in range(kind.lanes)])]


def _scale(trace: Trace, op: str, name: Value, coef: int) -> Value:
    instr = trace.isa[op]
    if instr.imm:
        return trace.apply(op, [name], coef.bit_length() - 1)
    return trace.apply(op, [name, trace.constant(instr.out, (coef,) * instr.out.lanes)])


def _columns(trace: Trace, tile: Sequence[Value], coef: int) -> tuple[int, ...]:
    """Return the column order: slots[s] is the column whose lane took -coef * all atoms of slot s."""
    taken: dict[int, int] = {}
    for r, name in enumerate(tile):
        register = trace.registers[name]
        for i, x in enumerate(register.lanes):
            if not isinstance(x, LinearForm) or x.atoms.get(("c", r, i)) != {1: 1} or x.const:
                raise Inexact("the tile is not kept")
            rest = {k: by for k, by in x.atoms.items() if k != ("c", r, i)}
            slots = {k[0] for k in rest if isinstance(k, tuple)}
            if len(slots) != 1 or any(by != {-coef: 1} for by in rest.values()):
                raise Inexact("a tile lane does not take a column")
            slot = slots.pop()
            if slot in taken:
                raise Inexact("a column is split over two lanes")
            taken[slot] = r * register.type.lanes + i
    if sorted(taken) != list(range(len(taken))):
        raise Inexact("a column is missing")
    return tuple(taken[s] for s in range(len(taken)))


POST = 3


Flush = tuple[float, tuple[AnyMove, ...], tuple[int, ...], WriteBack]


def cheapest_flush(
    trace: Trace, names: list[Value], coef: int, metric: Metric, target: VecType, ceiling: float = float("inf")
) -> Flush | None:
    """Find the cheapest way to take coef * sums from registers of type `target`: levels, order, write-back.

    None if none is cheaper than `ceiling`.
    """
    isa = trace.isa
    start = signature(trace, names)
    columns = len({lane[0] for _, lanes in start for lane in lanes if lane})
    whole, least = atoms(start), _least_write_back(isa, columns, coef, metric, target)
    ties = counter()
    queue: list[tuple[float, int, tuple[AnyMove, ...], Trace, list[Value]]] = [(0.0, next(ties), (), trace, names)]
    seen: set[Signature] = set()
    goal: Flush | None = None
    while queue:
        cost, _, levels, trace, names = heapq.heappop(queue)
        if cost >= ceiling:
            return goal
        # States with the same content are visited once, the cheapest first.
        sig = signature(trace, names)
        if sig in seen:
            continue
        seen.add(sig)
        # End here by a write-back,
        write_back = cheapest_write_back(trace, names, coef, metric, target)
        if write_back and (goal is None or cost + write_back[0] < goal[0]):
            goal = (cost + write_back[0], levels, write_back[2], write_back[1])
            ceiling = min(ceiling, goal[0])
        # or apply one more level, if the write-back behind it may still cost less than the ceiling, and if the levels
        # that are left can add up all lanes of a column.
        left = POST - len(levels)
        if left > 0 and _count_held(sig) <= columns * largest_sum(isa) ** left:
            for move in all_moves(isa):
                higher = cost + sum(metric(isa[op]) for op in move.ops(len(names)))
                if higher + least < ceiling and move.fits(trace, names) and (step := _step(trace, names, move, whole)):
                    heapq.heappush(queue, (higher, next(ties), (*levels, move), *step))
    return goal


def _least_write_back(isa: Isa, columns: int, coef: int, metric: Metric, target: VecType) -> float:
    """Return a lower bound on the cost of every write-back of `columns` columns.

    Levels keep every column, so each write-back gives at least as many registers of `target` as the columns fill. The
    bound is this number times the least cost of one such register. For example, 64 columns fill four registers of 16
    lanes; if no option costs less than 1.5 for a register, every write-back costs at least 6.
    """
    per_register = [
        _cost(isa, option, 1, metric) / option.parts / (2 if option.high else 1)
        for option in write_backs(isa, coef, target)
    ]
    return -(-columns // target.lanes) * min(per_register, default=0.0) * (1 - _ROUNDING)


def _step(trace: Trace, names: Sequence[Value], move: AnyMove, whole: int) -> tuple[Trace, list[Value]] | None:
    extended = Trace(trace.isa, trace.domain, dict(trace.registers), list(trace.steps), dict(trace.constants))
    try:
        after = move.apply(extended, names)
        sig = signature(extended, after)
        if atoms(sig) != whole or not _progress(sig, signature(trace, names)):
            return None
    except ILLEGAL:
        return None
    return extended, after


def _progress(after: Signature, before: Signature) -> bool:
    """Return whether sums were merged, or brought into fewer registers or wider lanes, and not merely permuted."""
    fewer, same = _count_held(after) < _count_held(before), _count_held(after) == _count_held(before)
    return fewer or (same and (len(after) < len(before) or _width(after) > _width(before)))


def _count_held(sig: Signature) -> int:
    """Return the number of lanes that hold something."""
    return sum(lane is not None for _, lanes in sig for lane in lanes)


def _width(sig: Signature) -> int:
    return VecType.parse(sig[0][0]).bits

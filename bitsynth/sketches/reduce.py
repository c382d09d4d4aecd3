"""The reduction sketch: from counted bytes to int32 columns.

A plan has up to `PRE` levels inside the loop, one accumulating instruction, and when the
accumulators are flushed up to `POST` levels and a finish that takes coef * sum from the
int32 tile. Every plan of the sketch is enumerated cheapest first (uniform-cost search
over what the lanes hold), so the plan found is minimal inside it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count as counter

from bitsynth.errors import NoKernel, SpecError
from bitsynth.isa.domains.linear import Form, Inexact, LinearDomain, variable
from bitsynth.isa.instr import Instr
from bitsynth.isa.lane import is_bitwise
from bitsynth.isa.load import Isa, load
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.program import Constant
from bitsynth.sketches.moves import Move, Signature, all_moves, arithmetic, atoms, signature

PRE = 3
POST = 3
Constants = dict[tuple[VecType, tuple[int, ...]], Constant]
_ILLEGAL = (Inexact, SpecError, NotImplementedError)
Metric = Callable[[Instr], float]


@dataclass(frozen=True)
class Finish:
    """tile - coef * sum: an optional scaling instruction, then one that subtracts."""

    scale: str | None
    op: str
    high: str | None
    fused: bool


@dataclass(frozen=True)
class Plan:
    """A reduction of `given`, found by `plan`."""

    given: Bytes
    pre: tuple[Move, ...]
    accumulate: str
    accs: int
    acc_type: VecType
    post: tuple[Move, ...]
    slots: tuple[int, ...]
    in_loop: float
    per_flush: float
    flushes: int

    @property
    def cost(self) -> float:
        """What the flushes cost one column block, in the metric."""
        return self.per_flush * self.flushes


@dataclass(frozen=True)
class Bytes:
    """What is reduced: `groups` registers of bytes in [least, most], by the instructions of `menu` or any."""

    groups: int
    most: int
    least: int = 0
    menu: tuple[str, ...] | None = None

    def allows(self, op: str) -> bool:
        return self.menu is None or op.split(".", maxsplit=1)[0] in self.menu


def start(isa: Isa, given: Bytes) -> tuple[Trace, list[str]]:
    """Registers of bytes: byte b of 64-bit slot s is an atom."""
    trace = Trace(isa, LinearDomain(1))
    per_register = isa.word.lanes
    names = []
    for g in range(given.groups):
        lanes = tuple(variable(((g * per_register + b) // 8, b), given.least, given.most) for b in range(per_register))
        names.append(trace.bind(f"n{g}", Register(isa.word, lanes)))
    return trace, names


@lru_cache
def plan(isa_name: str, given: Bytes, steps: int, metric: Metric) -> Plan:
    """The cheapest plan when an accumulator's byte grows within `given`'s range, for `steps` steps."""
    isa = load(isa_name)
    if given.groups * isa.word.lanes // 8 % tile_type(isa).lanes:
        raise NoKernel(f"{isa_name}: {given.groups} registers do not fill the int32 tile")
    best: Plan | None = None
    for bound, pre, instr, lanes in _loops(isa, given, steps, metric):
        if best is not None and bound >= _key(best, steps)[0]:
            break
        for candidate in _plans(isa, given, pre, instr, lanes, steps, metric):
            if best is None or _key(candidate, steps) < _key(best, steps):
                best = candidate
    if best is None:
        raise NoKernel(f"{isa_name}: no reduction of {given.groups} registers in the sketch")
    return best


def _key(p: Plan, steps: int) -> tuple[float, int]:
    return p.in_loop * steps + p.cost, p.accs


def _pre_levels(isa: Isa, given: Bytes) -> Iterator[tuple[Move, ...]]:
    """Legal in-loop sequences of pair levels, the same instruction names in the same order."""
    stack: list[tuple[Move, ...]] = [()]
    while stack:
        levels = stack.pop()
        yield levels
        if len(levels) < PRE and given.groups >> (len(levels) + 1):
            extended = [(*levels, m) for m in all_moves(isa.name) if m.kind == "pair" and given.allows(m.op)]
            stack += [s for s in reversed(extended) if _legal(isa, given, s)]


def _legal(isa: Isa, given: Bytes, levels: Sequence[Move]) -> bool:
    trace, names = start(isa, given)
    whole = atoms(signature(trace, names))
    try:
        for level in levels:
            names = level.apply(trace, names)
        return atoms(signature(trace, names)) == whole
    except _ILLEGAL:
        return False


Lanes = tuple[Form | int, ...]
_Loop = tuple[float, tuple[Move, ...], Instr, list[Lanes]]


def _loops(isa: Isa, given: Bytes, steps: int, metric: Metric) -> list[_Loop]:
    """In-loop parts with a lower bound on the whole plan's cost, lowest first."""
    out: list[_Loop] = []
    for pre in _pre_levels(isa, given):
        trace, names = start(isa, given)
        for level in pre:
            names = level.apply(trace, names)
        before = sum(metric(isa[s.op]) for s in trace.steps)
        for instr in arithmetic(isa):
            lanes = _accumulated(trace, names, instr) if _may_accumulate(given, trace, names, instr) else None
            if lanes is not None:
                loop = before + len(names) * metric(instr)
                out.append((loop * steps + _zeroing(isa, len(names), metric), pre, instr, lanes))
    return sorted(out, key=lambda x: x[0])


def _may_accumulate(given: Bytes, trace: Trace, names: Sequence[str], instr: Instr) -> bool:
    sign = "s" if given.least < 0 else "u"
    plain = instr.out.sign == sign and len(instr.operands) == 2 and not instr.imm and given.allows(instr.name)
    same = instr.operands[0].type == instr.out
    return plain and same and instr.operands[1].type.bits == trace.registers[names[0]].type.bits


def _zeroing(isa: Isa, accs: int, metric: Metric) -> float:
    """Setting the accumulators to zero costs what a gate costs."""
    return accs * metric(next(i for i in isa.instrs.values() if i.out == isa.word and is_bitwise(i.tree)))


def _plans(
    isa: Isa, given: Bytes, pre: tuple[Move, ...], instr: Instr, lanes: list[Lanes], steps: int, metric: Metric
) -> Iterator[Plan]:
    in_loop = len(lanes) * metric(instr)
    count = len(lanes)
    for level in reversed(pre):
        in_loop += count * metric(isa[level.op])
        count *= 2
    zeroing = _zeroing(isa, len(lanes), metric)
    tile_registers = count * isa.word.lanes // 8 // tile_type(isa).lanes
    least = zeroing + tile_registers * min(metric(i) for i in arithmetic(isa))
    best = float("inf")
    for flushes in _flush_counts(steps):
        if flushes * least >= best:
            return
        found = _flush(isa, lanes, instr.out, -(-steps // flushes), metric)
        if found and (found[0] + zeroing) * flushes < best:
            cost, post, slots = found
            best = (cost + zeroing) * flushes
            plan = (given, pre, instr.name, len(lanes), instr.out, post, slots, in_loop, cost + zeroing, flushes)
            yield Plan(*plan)


def _flush_counts(steps: int) -> list[int]:
    """1, 2, 3, ... as far as they give different flush periods."""
    return sorted({-(-steps // period) for period in range(1, steps + 1)})


def _accumulated(trace: Trace, names: Sequence[str], instr: Instr) -> list[Lanes] | None:
    """What one step adds to each accumulator lane; None if `instr` does not accumulate."""
    out = []
    try:
        for r, name in enumerate(names):
            probe = Trace(trace.isa, trace.domain, dict(trace.registers))
            start_lanes = tuple(variable(("acc", i), 0, 0) for i in range(instr.out.lanes))
            probe.bind("acc", Register(instr.out, start_lanes))
            lanes = probe.registers[probe.apply(instr.name, ["acc", name])].lanes
            added = tuple(_without(x, ("acc", i)) for i, x in enumerate(lanes))
            out.append(added)
            trace.bind(f"added{r}", Register(instr.out, added))
        whole = atoms(signature(trace, names))
        return out if atoms(signature(trace, [f"added{r}" for r in range(len(names))])) == whole else None
    except _ILLEGAL:
        return None


def _without(x: object, key: tuple[str, int]) -> Form | int:
    if not isinstance(x, Form) or x.atoms.get(key) != {1: 1}:
        raise Inexact("not an accumulation")
    rest = {k: v for k, v in x.atoms.items() if k != key}
    return Form(x.const, rest, x.lo, x.hi) if rest else x.const


def _flush(
    isa: Isa, added: Sequence[Lanes], kind: VecType, period: int, metric: Metric
) -> tuple[float, tuple[Move, ...], tuple[int, ...]] | None:
    """The cheapest flush of accumulators filled for `period` steps: cost, levels, slot order."""
    trace, names = after_loop(isa, added, kind, period)
    whole = atoms(signature(trace, names))
    ties = counter()
    queue: list[tuple[float, int, tuple[Move, ...], Trace, list[str]]] = [(0.0, next(ties), (), trace, names)]
    seen: set[Signature] = set()
    goal: tuple[float, tuple[Move, ...], tuple[int, ...]] | None = None
    while queue:
        cost, _, levels, trace, names = heapq.heappop(queue)
        if goal is not None and cost >= goal[0]:
            return goal
        sig = signature(trace, names)
        if sig in seen:
            continue
        seen.add(sig)
        finished = finish(trace, names, 6, metric)
        if finished and (goal is None or cost + finished[0] < goal[0]):
            goal = (cost + finished[0], levels, finished[2])
        if len(levels) < POST:
            for move in all_moves(isa.name):
                if move.fits(trace, names) and (step := _step(trace, names, move, whole, metric)) is not None:
                    heapq.heappush(queue, (cost + step[0], next(ties), (*levels, move), step[1], step[2]))
    return goal


def after_loop(isa: Isa, added: Sequence[Lanes], kind: VecType, period: int) -> tuple[Trace, list[str]]:
    """Accumulators after `period` steps, one atom a lane."""
    trace = Trace(isa, LinearDomain(1))
    names = []
    for r, lanes in enumerate(added):
        held = tuple(_total(x, (r, i), period) for i, x in enumerate(lanes))
        names.append(trace.bind(f"acc{r}", Register(kind, held)))
    return trace, names


def flush_trace(isa: Isa, plan: Plan, names: Sequence[str], constants: Constants, first: int) -> Trace:
    """A trace in which `names` hold what the plan's accumulators hold when they are flushed."""
    trace, counted = start(isa, Bytes(plan.given.groups, 1, min(0, plan.given.least)))
    for level in plan.pre:
        counted = level.apply(trace, counted)
    added = _accumulated(trace, counted, isa[plan.accumulate])
    if added is None:
        raise NoKernel(f"{isa.name}: {plan.accumulate} does not accumulate")
    flush = Trace(isa, LinearDomain(1), constants=constants, first=first)
    for r, (name, lanes) in enumerate(zip(names, added, strict=True)):
        flush.bind(name, Register(plan.acc_type, tuple(_total(x, (r, i), 1) for i, x in enumerate(lanes))))
    bind_tile(flush)
    return flush


def _total(x: Form | int, place: tuple[int, int], period: int) -> Form | int:
    if isinstance(x, int):
        return x * period
    slot = next(iter(x.atoms))[0]  # type: ignore[index]
    return variable((slot, *place), x.lo * period, x.hi * period)


def _step(
    trace: Trace, names: Sequence[str], move: Move, whole: int, metric: Metric
) -> tuple[float, Trace, list[str]] | None:
    grown = Trace(trace.isa, trace.domain, dict(trace.registers), list(trace.steps), dict(trace.constants))
    try:
        after = move.apply(grown, names)
        sig = signature(grown, after)
        if atoms(sig) != whole or not _progress(sig, signature(trace, names)):
            return None
    except _ILLEGAL:
        return None
    return sum(metric(trace.isa[s.op]) for s in grown.steps[len(trace.steps) :]), grown, after


def _progress(after: Signature, before: Signature) -> bool:
    """Sums were merged, widened or brought into fewer registers; a mere permutation is no level."""
    return _extent(after) < _extent(before)


def _extent(sig: Signature) -> tuple[int, int, int]:
    lanes = sum(lane is not None for _, held in sig for lane in held)
    return lanes, len(sig), -VecType.parse(sig[0][0]).bits


def finish(
    trace: Trace, names: Sequence[str], coef: int, metric: Metric
) -> tuple[float, Finish, tuple[int, ...]] | None:
    """The cheapest way to take coef * sum from the tile; None unless every lane is a whole column."""
    held = [lane for _, lanes in signature(trace, names) for lane in lanes if lane]
    if len(held) != len({slot for slot, _ in held}):
        return None
    best: tuple[float, Finish, tuple[int, ...]] | None = None
    for option in finishes(trace.isa.name, coef):
        if trace.isa[option.op].operands[1].type.bits != trace.registers[names[0]].type.bits:
            continue
        probe = Trace(trace.isa, trace.domain, dict(trace.registers), [], dict(trace.constants))
        tile = bind_tile(probe)
        try:
            out = take_from_tile(probe, option, names, coef, tile)
            slots = _columns(probe, out, coef)
        except _ILLEGAL:
            continue
        cost = sum(metric(trace.isa[s.op]) for s in probe.steps)
        if best is None or cost < best[0]:
            best = (cost, option, slots)
    return best


def tile_type(isa: Isa) -> VecType:
    """A register of the int32 tile."""
    return VecType("u", 32, isa.table.vector_bits // 32)


def bind_tile(trace: Trace) -> list[str]:
    """Tile registers c0.., more than any tile has."""
    kind = tile_type(trace.isa)
    return [
        trace.bind(f"c{r}", Register(kind, tuple(variable(("c", r, i), 0, 0) for i in range(kind.lanes))))
        for r in range(32 // kind.lanes)
    ]


@lru_cache
def finishes(isa_name: str, coef: int) -> tuple[Finish, ...]:
    """Candidate finishes for `coef`: fused multiply-subtract, or scale and subtract."""
    isa = load(isa_name)
    kind = tile_type(isa)
    out: list[Finish] = []
    scales = [None] if coef == 1 else [i.name for i in arithmetic(isa) if i.out == kind and _scales(i, coef)]
    for instr in arithmetic(isa):
        if not _alike(instr.out, kind) or instr.imm or not _alike(instr.operands[0].type, kind):
            continue
        high = _partner(isa, instr)
        if len(instr.operands) == 3:
            out.append(Finish(None, instr.name, high, True))
        elif len(instr.operands) == 2:
            out += [Finish(scale, instr.name, high, False) for scale in scales]
    unique = {tuple(op and isa[op].lane for op in (f.scale, f.op)): f for f in reversed(out)}
    return tuple(f for f in out if f in unique.values())


def _alike(a: VecType, b: VecType) -> bool:
    """The same lanes, whatever their sign."""
    return (a.bits, a.lanes) == (b.bits, b.lanes)


def _partner(isa: Isa, instr: Instr) -> str | None:
    name = f"{instr.high}.{instr.name.split('.', 1)[1]}"
    return name if name in isa.instrs else None


def _scales(instr: Instr, coef: int) -> bool:
    """True for a shift by a register-wide immediate or a product of lanes."""
    if instr.imm:
        return len(instr.operands) == 1 and coef & (coef - 1) == 0 and coef.bit_length() - 1 in instr.imms
    return len(instr.operands) == 2 and all(o.type == instr.out for o in instr.operands)


def take_from_tile(trace: Trace, option: Finish, names: Sequence[str], coef: int, tile: Sequence[str]) -> list[str]:
    """Run the finish; returns the new tile registers."""
    isa = trace.isa
    out: list[str] = []
    free = iter(tile)
    for name in names:
        if option.scale:
            name = _scaled(trace, option.scale, name, coef)
        for op in (option.op, option.high) if option.high else (option.op,):
            operand = isa[op].operands[-1].type
            extra = [trace.constant(operand, (coef,) * operand.lanes)] if option.fused else []
            if (target := next(free, None)) is None:
                raise SpecError("more sums than tile registers")
            out.append(trace.apply(op, [target, name, *extra]))
    return out


def _scaled(trace: Trace, op: str, name: str, coef: int) -> str:
    instr = trace.isa[op]
    if instr.imm:
        return trace.apply(op, [name], coef.bit_length() - 1)
    return trace.apply(op, [name, trace.constant(instr.out, (coef,) * instr.out.lanes)])


def _columns(trace: Trace, tile: Sequence[str], coef: int) -> tuple[int, ...]:
    """The column order: slots[s] is the column whose lane took -coef * all atoms of slot s."""
    taken: dict[int, int] = {}
    for r, name in enumerate(tile):
        register = trace.registers[name]
        for i, x in enumerate(register.lanes):
            if not isinstance(x, Form) or x.atoms.get(("c", r, i)) != {1: 1} or x.const:
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

"""The write-back that ends a flush: coef * sum taken from the int32 tile, or from wider accumulators, lane by lane.

A negative coefficient adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from bitsynth.errors import SpecError
from bitsynth.isa.domains.forms import Inexact, LinearForm, variable
from bitsynth.isa.instr import Instr, Metric
from bitsynth.isa.load import Isa
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.sketches.reduction.moves import ILLEGAL, arithmetic, signature

_MAX_REGISTERS = 8


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
    trace: Trace, names: Sequence[str], coef: int, metric: Metric, kind: VecType
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


def bind_tile(trace: Trace, kind: VecType) -> list[str]:
    """Return registers c0.. of `kind` to take sums from, more than are needed."""
    return [
        trace.bind(f"c{r}", Register(kind, tuple(variable(("c", r, i), 0, 0) for i in range(kind.lanes))))
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
    """Whether both have the same lanes, whatever their sign."""
    return (a.bits, a.lanes) == (b.bits, b.lanes)


def _scales(instr: Instr, coef: int) -> bool:
    """Whether it is a shift by a register-wide immediate or a product of lanes."""
    if instr.imm:
        return len(instr.operands) == 1 and coef & (coef - 1) == 0 and coef.bit_length() - 1 in instr.imms
    return len(instr.operands) == 2 and all(o.type == instr.out for o in instr.operands)


def take_from_tile(trace: Trace, option: WriteBack, names: Sequence[str], coef: int, tile: Sequence[str]) -> list[str]:
    """Run the write-back; the names of the new tile registers."""
    out: list[str] = []
    free = iter(tile)
    for name in names:
        scaled = _scaled(trace, option.scale, name, abs(coef)) if option.scale else name
        for op in (option.op, option.high) if option.high else (option.op,):
            for part in range(option.parts):
                if (target := next(free, None)) is None:
                    raise SpecError("more sums than tile registers")
                out.append(trace.apply(op, [target, scaled, *_factors(trace, option, op, part, coef)]))
    return out


def _factors(trace: Trace, option: WriteBack, op: str, part: int, coef: int) -> list[str]:
    """Return the constant that a fused write-back multiplies by: the coefficient in the lanes of `part`."""
    if not option.fused:
        return []
    kind = trace.isa[op].operands[-1].type
    return [trace.constant(kind, [abs(coef) if k % option.parts == part else 0 for k in range(kind.lanes)])]


def _scaled(trace: Trace, op: str, name: str, coef: int) -> str:
    instr = trace.isa[op]
    if instr.imm:
        return trace.apply(op, [name], coef.bit_length() - 1)
    return trace.apply(op, [name, trace.constant(instr.out, (coef,) * instr.out.lanes)])


def _columns(trace: Trace, tile: Sequence[str], coef: int) -> tuple[int, ...]:
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

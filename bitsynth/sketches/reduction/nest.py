"""Writes the loops of a widening path around a step, and its flush."""

from __future__ import annotations

from collections.abc import Sequence

from bitsynth.isa.domains.forms import variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.load import Isa
from bitsynth.isa.trace import ConstantPool, Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.kernel.program import Acc, Loop
from bitsynth.sketches.reduction.stages import WideningPath, WideningStage, filled
from bitsynth.sketches.reduction.writeback import take_from_tile

Nest = tuple[tuple[Loop, ...], tuple[str, ...], tuple[str, ...]]


def loop_nest(isa: Isa, path: WideningPath, step: Loop, constants: ConstantPool, number: int = 0) -> Nest:
    """Return the loops around `step`, the flush and its results, of pass `number` of a chain."""
    loops = [Loop(path.stages[0].trip_count, step.program, step.accs)]
    names = [acc.name for acc in step.accs]
    have = path.start
    for stage in path.stages[:-1]:
        count = len(names) * stage.registers
        wider = [f"acc{len(names) + k}" for k in range(count)]
        lines, after = _take(isa, stage, have, names, wider, constants)
        accs = tuple(Acc(w, str(stage.kind), a) for w, a in zip(wider, after, strict=True))
        times = path.stages[len(loops)].trip_count
        loops.append(Loop(times, lines, accs))
        names, have = wider, stage.kind
    if number < len(path.shifts):
        return (tuple(loops), *_shifted(isa, path, names, path.shifts[number], constants))
    last = path.stages[-1]
    tile = [f"c{r}" for r in range(len(names) * last.registers)]
    flush, tile = _take(isa, last, have, names, tile, constants)
    return tuple(loops), flush, tuple(tile)


def _shifted(
    isa: Isa, path: WideningPath, names: Sequence[str], times: int, constants: ConstantPool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return instructions that double the shared accumulators `names` `times` times, and the final names."""
    kind = path.stages[0].kind
    trace = Trace(isa, LinearDomain(1), constants=constants)
    for name in names:
        trace.bind(name, filled(kind, 1))
    out = list(names)
    for _ in range(times):
        assert path.double is not None
        out = [take_from_tile(trace, path.double, [name], -1, [name])[0] for name in out]
    return tuple(map(str, trace.steps)), tuple(out)


def _take(
    isa: Isa, stage: WideningStage, have: VecType, names: Sequence[str], into: Sequence[str], constants: ConstantPool
) -> tuple[tuple[str, ...], list[str]]:
    """Return the instructions of one stage for all accumulators `names`, and the new names of `into`."""
    trace = Trace(isa, LinearDomain(1), constants=constants)
    for name in into:
        trace.bind(name, Register(stage.kind, tuple(variable((name, i), 0, 0) for i in range(stage.kind.lanes))))
    out: list[str] = []
    for name in names:
        trace.bind(name, filled(have, 1))
    for k, name in enumerate(_unmixed(trace, stage, have, names)):
        trace.bind(name, filled(have, 1))
        sums = [name]
        for move in stage.moves:
            sums = move.apply(trace, sums)
        own = into[k * stage.registers : (k + 1) * stage.registers]
        out += take_from_tile(trace, stage.write_back, sums, stage.coef, own)
    return tuple(map(str, trace.steps)), out


def _unmixed(trace: Trace, stage: WideningStage, have: VecType, names: Sequence[str]) -> Sequence[str]:
    """Return the accumulators; if the stage separates rows, each second one is subtracted from the one before."""
    if stage.unmix is None:
        return names
    high = names[1::2]
    low = take_from_tile(trace, stage.unmix, high, 1 << have.bits // 2, names[::2])
    return [name for pair in zip(low, high, strict=True) for name in pair]

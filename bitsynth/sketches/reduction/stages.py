"""Widening reduction: the path from narrow accumulators to the tile, where every lane is a column.

A path leads there directly, or by wider accumulators. Each accumulator register is reduced by itself, so one is planned
and the plan is used for all. Both paths are the cheapest of the flush search (`writeback.py`); the cheaper is taken:

    acc0: 16 bytes, up to 21 steps    stage: uaddw low, uaddw2 high    acc4, acc5: 8 lanes of 16 bits, up to 260 runs
    acc4                              flush: usubw from c0, c1         int32 tile

Separating narrow lanes into low and high ones may leave the low ones unmasked: their sums are mixed with the sums of
the high lanes, and wrap, until the next stage subtracts the high sums. Passes whose sums differ by a power of two may
share the wider accumulators: each shifts them left, by doubling, for the next, and the last goes to the tile.

`loop_nest` writes the loops of a path around a step, and its flush.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from bitsynth.errors import NoKernel
from bitsynth.isa.domains.forms import variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.instr import Metric
from bitsynth.isa.load import Isa
from bitsynth.isa.step import Step
from bitsynth.isa.trace import ConstantPool, Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.program import Acc, Loop
from bitsynth.sketches.reduction.moves import AnyMove, Halves
from bitsynth.sketches.reduction.unmixing import TimesTaken, Unmixing, cheapest_unmixing, find_taken
from bitsynth.sketches.reduction.writeback import WriteBack, cheapest_flush, take_from_tile


@dataclass(frozen=True)
class SumLanes:
    """The lanes of an accumulator: their type, whether sums may be negative, and how many lanes a column has.

    Example: of 16 lanes, two a column, lanes 0 and 1 have the sums of column 0, and lanes 2 and 3 the sums of column 1.
    """

    kind: VecType
    signed: bool = False
    per_column: int = 1

    @property
    def most(self) -> int:
        """The greatest sum that a lane holds, and the size of the least if sums are signed."""
        return (1 << self.kind.bits - self.signed) - 1

    def fill(self, most: int) -> Register:
        """Return an accumulator whose lanes each hold a sum of at most that size."""
        least = -most if self.signed else 0
        places = (divmod(i, self.per_column) for i in range(self.kind.lanes))
        return Register(self.kind, tuple(variable((column, part, 0), least, most) for column, part in places))


@dataclass(frozen=True)
class LaneSums:
    """The content of accumulators with lanes `start`: `steps` steps, each adding up to `increment` to a lane.

    The tile gets `coef` times that. With `shifts` passes share accumulators, which are shifted left by that many bits
    between one and the next, and the last of them adds to the tile.
    """

    start: SumLanes
    increment: int
    steps: int
    coef: int
    shifts: tuple[int, ...] = ()


@dataclass(frozen=True)
class WideningStage:
    """A stage for accumulators filled by `trip_count` runs: moves, then a write-back into registers of `kind`.

    Before that `unmix` separates the sums of each two accumulators.
    Lane i of the accumulator ends in lane order[i] of those, counted on through the registers.
    """

    trip_count: int
    moves: tuple[AnyMove, ...]
    write_back: WriteBack
    kind: VecType
    order: tuple[int, ...]
    coef: int
    unmix: Unmixing | None = None

    @property
    def registers(self) -> int:
        """The number of registers of `kind` that one accumulator fills."""
        return len(self.order) // self.kind.lanes


@dataclass(frozen=True)
class WideningPath:
    """Stages from accumulators with lanes `start` to the tile, how often each is run, and what all cost.

    It serves one pass more than there are `shifts`: each shifts its sums left by that many bits for the next.
    """

    start: SumLanes
    stages: tuple[WideningStage, ...]
    runs: tuple[int, ...]
    cost: float
    shifts: tuple[int, ...] = ()
    double: WriteBack | None = None

    @property
    def order(self) -> tuple[int, ...]:
        """The tile lane each column of the accumulator ends in."""
        width = self.start.kind.lanes // self.start.per_column
        places = tuple(range(width))
        for stage in self.stages:
            places = tuple(p // width * len(stage.order) + stage.order[p % width] for p in places)
            width = stage.kind.lanes
        return places


@lru_cache(maxsize=4096)
def cheapest(isa: Isa, sums: LaneSums, metric: Metric, moving: float) -> WideningPath:
    """Return the cheapest path of `sums` to the tile; a register of the tile costs `moving` to load and store.

    Raises NoKernel if there is none.
    """
    candidates = (_path(isa, sums, kinds, metric, moving) for kinds in _kinds(isa, sums.start.kind))
    plain = [path for path in candidates if path]
    paths = [*plain, *(mixed for path in plain if (mixed := _mix_lanes(isa, path, metric)))]
    if not paths:
        raise NoKernel(
            f"{isa.name}: no way from {sums.start.kind} accumulators that grow by {sums.increment} to the tile"
        )
    return min(paths, key=lambda w: (w.cost, len(w.stages)))


def _kinds(isa: Isa, start: VecType) -> list[tuple[VecType, ...]]:
    """Return the types sums pass through: the tile's at once, or one between."""
    between = [VecType("u", bits, isa.table.vector_bits // bits) for bits in (16,) if bits > start.bits]
    return [(isa.tile,), *((kind, isa.tile) for kind in between)]


def _path(isa: Isa, sums: LaneSums, kinds: Sequence[VecType], metric: Metric, moving: float) -> WideningPath | None:
    """Return the path through registers of `kinds`; None if there is none."""
    shifts = sums.shifts
    if shifts and len(kinds) == 1:
        return None
    stages: list[WideningStage] = []
    counts: list[int] = []
    have, most, runs, registers, cost = sums.start, sums.increment, sums.steps, 1, 0.0
    for kind in kinds:
        last = kind == isa.tile
        most *= _count_held(shifts) if last else 1
        times = min(have.most // most, runs)
        stage = _stage(isa, have, times * most, kind, sums.coef if last else -1, times, metric) if times else None
        if stage is None:
            return None
        runs = -(-runs // times)
        cost += (stage[1] + metric(isa.gate)) * registers * runs * (1 if last else len(shifts) + 1)
        have, most, registers = SumLanes(kind), times * most, registers * stage[0].registers
        stages.append(stage[0])
        counts.append(runs)
    cost += moving * registers * runs
    path = WideningPath(sums.start, tuple(stages), tuple(counts), cost, shifts)
    return _with_shifts(isa, path, metric) if shifts else path


def _count_held(shifts: Sequence[int]) -> int:
    """Return the greatest multiple of one pass's sums that shared accumulators hold after the last pass."""
    held = 1
    for times in shifts:
        held = (held << times) + 1
    return held


def _with_shifts(isa: Isa, path: WideningPath, metric: Metric) -> WideningPath | None:
    """Return the path with the write-back that doubles shared accumulators; None if there is none."""
    kind = path.stages[0].kind
    doubling = find_taken(isa, kind, -1, metric)
    if doubling is None:
        return None
    registers = path.stages[0].registers * path.runs[-1]
    return replace(path, double=doubling[1], cost=path.cost + doubling[0] * registers * sum(path.shifts))


def _mix_lanes(isa: Isa, path: WideningPath, metric: Metric) -> WideningPath | None:
    """Return the path with low lanes unmasked in its first stage; None if that does not part lanes, or is the last."""
    first, *rest = path.stages
    match first.moves:
        case (Halves(keep=str(keep)) as parted,) if rest:
            times = 1 << parted.narrow.bits
            add = find_taken(isa, first.kind, times, metric)
            if add is None:
                return None
            unmix = Unmixing(TimesTaken(times, add[1]))
            stages = (replace(first, moves=(replace(parted, keep=None),)), replace(rest[0], unmix=unmix), *rest[1:])
            widenings = path.runs[0] * (len(path.shifts) + 1)
            cost = path.cost - metric(isa[keep]) * widenings + add[0] * path.runs[1]
            return replace(path, stages=stages, cost=cost)
    return None


def unmix_first(isa: Isa, path: WideningPath, span: int, metric: Metric) -> WideningPath:
    """Return the path from accumulators that hold each other's sums, two by two (`unmixing.py`).

    NoKernel if nothing separates them.
    """
    cost, unmix = cheapest_unmixing(isa, path.start.kind, span, metric)
    first, *rest = path.stages
    stages = (replace(first, unmix=unmix), *rest)
    return replace(path, stages=stages, cost=path.cost + cost / 2 * path.runs[0] * (len(path.shifts) + 1))


@lru_cache(maxsize=4096)
def _stage(
    isa: Isa, have: SumLanes, most: int, kind: VecType, coef: int, times: int, metric: Metric
) -> tuple[WideningStage, float] | None:
    trace = Trace(isa, LinearDomain(1))
    acc = trace.bind(Value("acc"), have.fill(most))
    flush = cheapest_flush(trace, [acc], coef, metric, kind)
    if flush is None:
        return None
    cost, moves, order, write_back = flush
    return WideningStage(times, moves, write_back, kind, order, coef), cost


Nest = tuple[tuple[Loop, ...], tuple[Step, ...], tuple[Value, ...]]


def loop_nest(isa: Isa, path: WideningPath, step: Loop, constants: ConstantPool, number: int = 0) -> Nest:
    """Return the loops around `step`, the flush and its results, of pass `number` of a chain."""
    loops = [Loop(path.stages[0].trip_count, step.steps, step.accs)]
    names = [acc.name for acc in step.accs]
    have = path.start
    for stage in path.stages[:-1]:
        count = len(names) * stage.registers
        wider = [Value.of(Role.ACCUMULATOR, len(names) + k) for k in range(count)]
        lines, after = _take(isa, stage, have, names, wider, constants)
        accs = tuple(Acc(w, str(stage.kind), a) for w, a in zip(wider, after, strict=True))
        times = path.stages[len(loops)].trip_count
        loops.append(Loop(times, lines, accs))
        names, have = wider, SumLanes(stage.kind)
    if number < len(path.shifts):
        return (tuple(loops), *_double_accumulators(isa, path, names, path.shifts[number], constants))
    last = path.stages[-1]
    tile = [Value.of(Role.TILE, r) for r in range(len(names) * last.registers)]
    flush, tile = _take(isa, last, have, names, tile, constants)
    return tuple(loops), flush, tuple(tile)


def _double_accumulators(
    isa: Isa, path: WideningPath, names: Sequence[Value], times: int, constants: ConstantPool
) -> tuple[tuple[Step, ...], tuple[Value, ...]]:
    """Return instructions that double the shared accumulators `names` `times` times, and the final names."""
    kind = path.stages[0].kind
    trace = Trace(isa, LinearDomain(1), constants=constants)
    for name in names:
        trace.bind(name, SumLanes(kind).fill(1))
    out = list(names)
    for _ in range(times):
        assert path.double is not None
        out = [take_from_tile(trace, path.double, [name], -1, [name])[0] for name in out]
    return tuple(trace.steps), tuple(out)


def _take(
    isa: Isa,
    stage: WideningStage,
    have: SumLanes,
    names: Sequence[Value],
    into: Sequence[Value],
    constants: ConstantPool,
) -> tuple[tuple[Step, ...], list[Value]]:
    """Return the instructions of one stage for all accumulators `names`, and the new names of `into`."""
    trace = Trace(isa, LinearDomain(1), constants=constants)
    for name in into:
        trace.bind(name, Register(stage.kind, tuple(variable((name, i), 0, 0) for i in range(stage.kind.lanes))))
    out: list[Value] = []
    for name in names:
        trace.bind(name, have.fill(1))
    for k, name in enumerate(_unmix_lanes(trace, stage, names)):
        trace.bind(name, have.fill(1))
        sums = [name]
        for move in stage.moves:
            sums = move.apply(trace, sums)
        own = into[k * stage.registers : (k + 1) * stage.registers]
        out += take_from_tile(trace, stage.write_back, sums, stage.coef, own)
    return tuple(trace.steps), out


def _unmix_lanes(trace: Trace, stage: WideningStage, names: Sequence[Value]) -> Sequence[Value]:
    """Return the accumulators in pairs whose sums the stage separates, if it separates any."""
    if stage.unmix is None:
        return names
    pairs = zip(names[::2], names[1::2], strict=True)
    return [name for first, second in pairs for name in stage.unmix.apply(trace, first, second)]

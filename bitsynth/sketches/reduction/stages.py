"""From narrow accumulators to the tile, where every lane is a column: directly, or by wider ones.

Each accumulator register goes its own way, so one is planned and the plan is used for all.
Both ways are the cheapest of the flush search (`reduce`), and the cheaper of the two is taken.

What parts narrow lanes into low and high ones may leave the low ones unmasked: their sums are
mixed with those of the high ones, and wrap, until the next stage takes the high sums away.

Passes whose sums differ by a power of two may share the wider accumulators: each doubles them
for the next, and the last goes to the tile.
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
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.kernel.program import Acc, Loop
from bitsynth.sketches.reduction.moves import AnyMove, Halves
from bitsynth.sketches.reduction.plan import Constants, cheapest_flush
from bitsynth.sketches.reduction.writeback import Finish, finish, take_from_tile


@dataclass(frozen=True)
class Stage:
    """What is done with accumulators filled by `trip_count` runs: moves, then a finish into registers of `kind`.

    Before that `unmix` takes every second accumulator's lanes, shifted up, from those of the one before.
    Lane i of the accumulator ends in lane order[i] of those, counted on through the registers.
    """

    trip_count: int
    moves: tuple[AnyMove, ...]
    finish: Finish
    kind: VecType
    order: tuple[int, ...]
    coef: int
    unmix: Finish | None = None

    @property
    def registers(self) -> int:
        """How many registers of `kind` one accumulator fills."""
        return len(self.order) // self.kind.lanes


@dataclass(frozen=True)
class Way:
    """Stages from accumulators of type `start` to the tile, how often each is run, and what all cost.

    Of as many passes as there are `doublings`, and one more: each doubles its sums so often before the next.
    """

    start: VecType
    stages: tuple[Stage, ...]
    runs: tuple[int, ...]
    cost: float
    doublings: tuple[int, ...] = ()
    double: Finish | None = None

    @property
    def order(self) -> tuple[int, ...]:
        """The tile lane each lane of the accumulator ends in."""
        places = tuple(range(self.start.lanes))
        width = self.start.lanes
        for stage in self.stages:
            places = tuple(p // width * len(stage.order) + stage.order[p % width] for p in places)
            width = stage.kind.lanes
        return places


@lru_cache(maxsize=4096)
def cheapest(
    isa: Isa,
    start: VecType,
    increment: int,
    steps: int,
    coef: int,
    metric: Metric,
    moving: float,
    doublings: tuple[int, ...] = (),
) -> Way:
    """The cheaper way when a step adds up to `increment` to a lane; NoKernel if there is none.

    What is summed is taken `coef` times from the tile, of which a register costs `moving` to load and store.
    With `doublings` passes share accumulators, the last of them what goes to the tile.
    """
    found = (_way(isa, start, kinds, increment, steps, coef, metric, moving, doublings) for kinds in _kinds(isa, start))
    plain = [way for way in found if way]
    ways = [*plain, *(mixed for way in plain if (mixed := _mixed(isa, way, metric)))]
    if not ways:
        raise NoKernel(f"{isa.name}: no way from {start} accumulators that grow by {increment} to the tile")
    return min(ways, key=lambda w: (w.cost, len(w.stages)))


def _kinds(isa: Isa, start: VecType) -> list[tuple[VecType, ...]]:
    """The types sums pass through: the tile's at once, or one between."""
    between = [VecType("u", bits, isa.table.vector_bits // bits) for bits in (16,) if bits > start.bits]
    return [(isa.tile,), *((kind, isa.tile) for kind in between)]


def _way(
    isa: Isa,
    start: VecType,
    kinds: Sequence[VecType],
    increment: int,
    steps: int,
    coef: int,
    metric: Metric,
    moving: float,
    doublings: tuple[int, ...],
) -> Way | None:
    if doublings and len(kinds) == 1:
        return None
    stages: list[Stage] = []
    counts: list[int] = []
    have, most, runs, registers, cost = start, increment, steps, 1, 0.0
    for kind in kinds:
        last = kind == isa.tile
        most *= _held_after(doublings) if last else 1
        times = min(((1 << have.bits) - 1) // most, runs)
        stage = _stage(isa, have, times * most, kind, coef if last else -1, times, metric) if times else None
        if stage is None:
            return None
        runs = -(-runs // times)
        cost += (stage[1] + metric(isa.gate)) * registers * runs * (1 if last else len(doublings) + 1)
        have, most, registers = kind, times * most, registers * stage[0].registers
        stages.append(stage[0])
        counts.append(runs)
    cost += moving * registers * runs
    way = Way(start, tuple(stages), tuple(counts), cost, doublings)
    return _doubling(isa, way, metric) if doublings else way


def _held_after(doublings: Sequence[int]) -> int:
    """How often shared accumulators hold what one pass adds, after the last."""
    held = 1
    for times in doublings:
        held = (held << times) + 1
    return held


def _doubling(isa: Isa, way: Way, metric: Metric) -> Way | None:
    """The way with what doubles shared accumulators; None where nothing does."""
    kind = way.stages[0].kind
    found = _added(isa, kind, -1, metric)
    if found is None:
        return None
    registers = way.stages[0].registers * way.runs[-1]
    return replace(way, double=found[1], cost=way.cost + found[0] * registers * sum(way.doublings))


def _added(isa: Isa, kind: VecType, coef: int, metric: Metric) -> tuple[float, Finish] | None:
    """What takes `coef` times a register of `kind` from another, lane by lane, and its cost."""
    trace = Trace(isa, LinearDomain(1))
    trace.bind("acc", _filled(kind, 1))
    found = finish(trace, ["acc"], coef, metric, kind)
    return found[:2] if found and found[2] == tuple(range(kind.lanes)) else None


def _mixed(isa: Isa, way: Way, metric: Metric) -> Way | None:
    """The way with low lanes unmasked in its first stage; None where that does not part lanes, or is the last."""
    first, *rest = way.stages
    match first.moves:
        case (Halves(keep=str(keep)) as parted,) if rest:
            found = _added(isa, first.kind, 1 << parted.narrow.bits, metric)
            if found is None:
                return None
            stages = (replace(first, moves=(replace(parted, keep=None),)), replace(rest[0], unmix=found[1]), *rest[1:])
            folds = way.runs[0] * (len(way.doublings) + 1)
            cost = way.cost - metric(isa[keep]) * folds + found[0] * way.runs[1]
            return replace(way, stages=stages, cost=cost)
    return None


@lru_cache(maxsize=4096)
def _stage(
    isa: Isa, have: VecType, most: int, kind: VecType, coef: int, times: int, metric: Metric
) -> tuple[Stage, float] | None:
    trace = Trace(isa, LinearDomain(1))
    trace.bind("acc", _filled(have, most))
    found = cheapest_flush(trace, ["acc"], coef, metric, kind)
    if found is None:
        return None
    cost, moves, order, finish = found
    return Stage(times, moves, finish, kind, order, coef), cost


def _filled(kind: VecType, most: int) -> Register:
    return Register(kind, tuple(variable((i, 0, 0), 0, most) for i in range(kind.lanes)))


Nest = tuple[tuple[Loop, ...], tuple[str, ...], tuple[str, ...]]


def nest(isa: Isa, way: Way, step: Loop, constants: Constants, number: int = 0) -> Nest:
    """The loops around `step`, the flush and what it gives, of pass `number` of those that share accumulators."""
    loops = [Loop(way.stages[0].trip_count, step.program, step.accs)]
    names = [acc.name for acc in step.accs]
    have = way.start
    for stage in way.stages[:-1]:
        count = len(names) * stage.registers
        wider = [f"acc{len(names) + k}" for k in range(count)]
        lines, after = _take(isa, stage, have, names, wider, constants)
        accs = tuple(Acc(w, str(stage.kind), a) for w, a in zip(wider, after, strict=True))
        times = way.stages[len(loops)].trip_count
        loops.append(Loop(times, lines, accs))
        names, have = wider, stage.kind
    if number < len(way.doublings):
        return (tuple(loops), *_doubled(isa, way, names, way.doublings[number], constants))
    last = way.stages[-1]
    tile = [f"c{r}" for r in range(len(names) * last.registers)]
    flush, tile = _take(isa, last, have, names, tile, constants)
    return tuple(loops), flush, tuple(tile)


def _doubled(
    isa: Isa, way: Way, names: Sequence[str], times: int, constants: Constants
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Shared accumulators `names`, each doubled `trip_count` times: program lines, and what they become."""
    kind = way.stages[0].kind
    trace = Trace(isa, LinearDomain(1), constants=constants)
    for name in names:
        trace.bind(name, _filled(kind, 1))
    out = list(names)
    for _ in range(times):
        assert way.double is not None
        out = [take_from_tile(trace, way.double, [name], -1, [name])[0] for name in out]
    return tuple(map(str, trace.steps)), tuple(out)


def _take(
    isa: Isa, stage: Stage, have: VecType, names: Sequence[str], into: Sequence[str], constants: Constants
) -> tuple[tuple[str, ...], list[str]]:
    """One stage for all accumulators `names`: program lines, and what the registers `into` become."""
    trace = Trace(isa, LinearDomain(1), constants=constants)
    for name in into:
        trace.bind(name, Register(stage.kind, tuple(variable((name, i), 0, 0) for i in range(stage.kind.lanes))))
    out: list[str] = []
    for name in names:
        trace.bind(name, _filled(have, 1))
    for k, name in enumerate(_unmixed(trace, stage, have, names)):
        trace.bind(name, _filled(have, 1))
        sums = [name]
        for move in stage.moves:
            sums = move.apply(trace, sums)
        own = into[k * stage.registers : (k + 1) * stage.registers]
        out += take_from_tile(trace, stage.finish, sums, stage.coef, own)
    return tuple(map(str, trace.steps)), out


def _unmixed(trace: Trace, stage: Stage, have: VecType, names: Sequence[str]) -> Sequence[str]:
    """The accumulators, every second one's lanes taken from those of the one before where the stage does that."""
    if stage.unmix is None:
        return names
    high = names[1::2]
    low = take_from_tile(trace, stage.unmix, high, 1 << have.bits // 2, names[::2])
    return [name for pair in zip(low, high, strict=True) for name in pair]

"""Loop summaries: what a kernel's loops add to accumulators, and its flushes to the tile, in the linear domain.

A program runs on linear forms instead of numbers: sums of unknown bits or products with known coefficients and a known
range. One run shows what a step adds to each lane of an accumulator; multiplication by the number of runs bounds what a
loop adds; so no loop is ever unrolled. For a step with bytes acc0, t0 = cnt(a0 ^ w0), acc0 = acc0 + t0:

    step       acc0[i] gets 8 bits of the step's product: a form in [0, 8]           `step_summary`
    loop 0     after 31 runs acc0[i] is an unknown sum in [0, 248]: no overflow      `LoopSummary.after`
    loop 1     acc1[j] gets acc0[2j] + acc0[2j + 1], in [0, 496]                      `loop_summary`
    flush      tile column c gets acc1[...]: the sums of its lanes, each once         `pass_summary`
    together   each sum replaced by what a step adds to it                           `compose`

Nothing here is assumed: a program whose effect cannot be shown exact is Refuted. The checker composes the summaries
(`checker.py`); the scheduler asks how many runs a loop may make (`schedule/flush.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import cast

from bitsynth.errors import Refuted, SpecError
from bitsynth.isa.domains.forms import Inexact, LinearForm, add_forms, as_form, is_of_codes, is_plane, variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.domains.sums import Ranges, find_range, tighten
from bitsynth.isa.load import Isa
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.payloads import bind_inputs
from bitsynth.kernel.program import Acc, Kernel, Loop, Pass

TraceFactory = Callable[[Isa, LinearDomain], Trace]

LaneForms = Mapping[Hashable, LinearForm]
"""A linear form for each lane of a loop's accumulators; keys are ("acc", name, lane)."""


def any_value(key: Hashable, kind: VecType) -> LinearForm:
    """Return an unknown lane: any value of its width."""
    return variable(key, 0, (1 << kind.bits) - 1)


def increments_of(
    trace: Trace, loop: Loop, domain: LinearDomain, *, carried: bool = False
) -> dict[Hashable, LinearForm]:
    """Return what one run of the loop's program adds to each accumulator lane: planes, or sums of innermost lanes.

    Most programs add the same whatever the accumulators hold. One that saturates does so only for values that the runs
    before can leave; these are not known if the first run starts from what a pass `carried`.
    """
    keys = {key: VecType.parse(acc.type) for acc in loop.accs for key in keys_of(acc, VecType.parse(acc.type))}
    try:
        return _run_once(trace, loop, domain, {key: any_value(key, kind) for key, kind in keys.items()})
    except Inexact:
        if carried:
            raise
        increments = _run_once(trace, loop, domain, {key: variable(key, 0, 0) for key in keys})
        full = {key: _fill(key, form, loop.trip_count - 1) for key, form in increments.items()}
        if _run_once(trace, loop, domain, full) != increments:
            raise Inexact("what a run adds depends on the runs before") from None
        return increments


def _run_once(trace: Trace, loop: Loop, domain: LinearDomain, before: LaneForms) -> dict[Hashable, LinearForm]:
    """Return what a run adds to accumulators that hold `before`."""
    bind_accumulators(trace, loop, before)
    for step in loop.steps:
        trace.run(step)
    return {key: form for acc in loop.accs for key, form in _increments_of_acc(trace, acc, before, domain)}


def _increments_of_acc(
    trace: Trace, acc: Acc, before: LaneForms, domain: LinearDomain
) -> list[tuple[Hashable, LinearForm]]:
    kind = VecType.parse(acc.type)
    if acc.next not in trace.registers:
        raise SpecError(f"accumulator {acc.name} becomes {acc.next}, which has no value")
    register = trace.registers[acc.next].view_as(trace.domain, kind)
    out: list[tuple[Hashable, LinearForm]] = []
    for i, (key, x) in enumerate(zip(keys_of(acc, kind), register.lanes, strict=True)):
        form = as_form(x)
        rest = dict(form.atoms)
        if rest.pop(key, None) != {1: 1} or not all(is_of_codes(k) or k in domain.ranges for k in rest):
            raise Inexact(f"{acc.name} lane {i} is not itself plus what the step adds")
        increment = LinearForm(form.const, rest, form.lo - before[key].lo, form.hi - before[key].hi)
        out.append((key, tighten(increment, domain.rows) if increment.lo < 0 else increment))
    return out


def bind_accumulators(trace: Trace, loop: Loop, lanes: LaneForms) -> None:
    """Bind the loop's accumulators to the values `lanes`."""
    for acc in loop.accs:
        kind = VecType.parse(acc.type)
        trace.bind(acc.name, Register(kind, tuple(lanes[key] for key in keys_of(acc, kind))))


def keys_of(acc: Acc, kind: VecType) -> list[Hashable]:
    """Return the keys of an accumulator's lanes."""
    return [("acc", acc.name, i) for i in range(kind.lanes)]


def _fill(key: Hashable, form: LinearForm, period: int) -> LinearForm:
    return variable(key, min(0, form.lo * period), max(0, form.hi * period))


@dataclass(frozen=True)
class LoopSummary:
    """The sums that a loop adds to each lane of its accumulators, as forms over the sums of the innermost lanes.

    `ranges` are the ranges of these sums in a whole run. A lane of w bits may wrap: it then differs from its sum by a
    multiple of 2**w, and a difference of lanes may fit again.
    """

    lanes: LaneForms
    ranges: Ranges

    @staticmethod
    def of_step(added: LaneForms, number: int = 0) -> LoopSummary:
        """Return the summary of a step of pass `number`, in which the sum of each innermost lane is an unknown."""
        ranges: Ranges = {("sum", number, key): (form.lo, form.hi) for key, form in added.items()}
        return LoopSummary(
            {key: variable(("sum", number, key), form.lo, form.hi) for key, form in added.items()}, ranges
        )

    def after(self, times: int, before: LoopSummary | None = None) -> LoopSummary:
        """Return the summary after any number of runs up to `times`, which start from `before`, or from zero."""
        ranges = {key: (min(0, lo * times), max(0, hi * times)) for key, (lo, hi) in self.ranges.items()}
        lanes = self.lanes
        if before is not None:
            ranges |= before.ranges
            lanes = {key: add_forms(before.lanes[key], form) for key, form in lanes.items()}
        return LoopSummary({key: find_range(form, ranges) for key, form in lanes.items()}, ranges)


def step_summary(isa: Isa, kernel: Kernel, loop: Pass, new_trace: TraceFactory = Trace) -> dict[Hashable, LinearForm]:
    """Return what one step adds to each accumulator lane of the innermost loop; Refuted if that is not exact."""
    rows = 1 << kernel.code_bits
    domain = LinearDomain(rows)
    trace, first = new_trace(isa, domain), new_trace(isa, domain)
    bind_inputs(trace, kernel, loop)
    first.registers |= trace.registers
    first.memo = trace.memo = {}  # The first run does to inputs what every run does.
    try:
        increments = increments_of(trace, loop.step, domain)
        if loop.step.first:
            _check_first(first, loop.step, increments)
    except Inexact as why:
        raise Refuted(f"the step cannot be shown exact: {why}") from None
    return increments


def _check_first(trace: Trace, loop: Loop, increments: LaneForms) -> None:
    """Raise Inexact unless the first run leaves in the accumulators what any run adds to them."""
    for step in loop.first:
        trace.run(step)
    for acc in loop.accs:
        kind = VecType.parse(acc.type)
        lanes = trace.registers[acc.start].view_as(trace.domain, kind).lanes
        for key, x in zip(keys_of(acc, kind), lanes, strict=True):
            if ((form := as_form(x)).const, form.atoms) != (increments[key].const, increments[key].atoms):
                raise Inexact(f"the first run leaves in {acc.name} another sum than a run adds")


@dataclass(frozen=True)
class PassSummary:
    """The summary of a pass.

    Attributes:
        held: The accumulators of each loop, from the level asked for on, at the end of that loop.
        carried: What the next pass starts from, if the pass carries.
        taken: What the flush adds to each column of the tile, else.
    """

    held: tuple[LoopSummary, ...]
    carried: LoopSummary | None = None
    taken: tuple[LinearForm, ...] = ()


def pass_summary(
    isa: Isa,
    kernel: Kernel,
    loop: Pass,
    sums: LoopSummary,
    carried: LoopSummary | None = None,
    new_trace: TraceFactory = Trace,
    level: int = 0,
) -> PassSummary:
    """Return the summary of a pass whose loop `level` adds `sums` in a run.

    Accumulators start from zero, except the outermost loop's, which start from the sums `carried` by the pass before.
    """
    outermost = len(loop.loops) - 1
    held: list[LoopSummary] = []
    for n in range(level, len(loop.loops)):
        start = carried if n == outermost else None
        if held:
            sums = loop_summary(isa, kernel, loop, n, held[-1], start is not None, new_trace)
        held.append(sums.after(loop.loops[n].trip_count, start))
    if loop.carries:
        return PassSummary(tuple(held), carried=_carry(isa, kernel, loop, held[-1], new_trace))
    return PassSummary(tuple(held), taken=flush(isa, kernel, loop, held[-1], new_trace))


def loop_summary(
    isa: Isa,
    kernel: Kernel,
    loop: Pass,
    level: int,
    held: LoopSummary,
    carried: bool = False,
    new_trace: TraceFactory = Trace,
) -> LoopSummary:
    """Return the summary of one run of loop `level`, when the accumulators of the loop inside hold `held`.

    `carried`: its own accumulators start from what the pass before carried. Refuted if it is not exact.
    """
    domain = LinearDomain(1, held.ranges)
    trace = new_trace(isa, domain)
    trace.bind_constants(kernel.constants)
    bind_accumulators(trace, loop.loops[level - 1], held.lanes)
    try:
        increments = increments_of(trace, loop.loops[level], domain, carried=carried)
    except Inexact as why:
        raise Refuted(f"loop {level} cannot be shown exact: {why}") from None
    for form in increments.values():
        if form.const:
            raise Refuted(f"loop {level}: a lane gets {form.const} a run, however many steps it ends")
    return LoopSummary(increments, held.ranges)


def _carry(isa: Isa, kernel: Kernel, loop: Pass, held: LoopSummary, new_trace: TraceFactory) -> LoopSummary:
    """Return what the next pass starts from, as forms of sums in innermost lanes."""
    trace = _at_flush(isa, kernel, loop, held, new_trace)
    lanes: dict[Hashable, LinearForm] = {}
    try:
        for step in loop.flush:
            trace.run(step)
        for acc in loop.carried.accs:
            kind = VecType.parse(acc.type)
            values = trace.registers[acc.next].view_as(trace.domain, kind).lanes
            lanes |= {key: as_form(x) for key, x in zip(keys_of(acc, kind), values, strict=True)}
    except Inexact as why:
        raise Refuted(f"what is carried cannot be shown exact after {loop.flush_every} steps: {why}") from None
    if any(form.const or not form.atoms.keys() <= held.ranges.keys() for form in lanes.values()):
        raise Refuted("what is carried is more than sums")
    return LoopSummary({key: find_range(form, held.ranges) for key, form in lanes.items()}, held.ranges)


def _at_flush(isa: Isa, kernel: Kernel, loop: Pass, held: LoopSummary, new_trace: TraceFactory) -> Trace:
    """Return a trace at the start of a flush: the outermost accumulators are as full as they can be."""
    trace = new_trace(isa, LinearDomain(1, held.ranges))
    trace.bind_constants(kernel.constants)
    bind_accumulators(trace, loop.loops[-1], held.lanes)
    return trace


def flush(isa: Isa, kernel: Kernel, loop: Pass, held: LoopSummary, new_trace: TraceFactory) -> tuple[LinearForm, ...]:
    """Return what a flush adds to each tile column, as forms of sums in innermost lanes."""
    trace = _at_flush(isa, kernel, loop, held, new_trace)
    tile = isa.tile
    count = kernel.tile_registers(isa.table.vector_bits) * kernel.together
    for r in range(count):
        lanes = tuple(any_value(("c", r, i), tile) for i in range(tile.lanes))
        trace.bind(Value.of(Role.TILE, r), Register(tile, lanes))
    if len(loop.tile) != count:
        raise SpecError(f"a flush must give {count} tile registers, not {len(loop.tile)}")
    try:
        for step in loop.flush:
            trace.run(step)
        return tuple(x for r, name in enumerate(loop.tile) for x in _tile_lanes(trace, name, r, tile, held.ranges))
    except Inexact as why:
        raise Refuted(f"the flush cannot be shown exact after {loop.flush_every} steps: {why}") from None


def _tile_lanes(trace: Trace, name: Value, r: int, kind: VecType, sums: Ranges) -> list[LinearForm]:
    """Return what a flush adds to the lanes of tile register r; Inexact unless these are sums alone."""
    if name not in trace.registers:
        raise SpecError(f"the tile becomes {name}, which has no value")
    out = []
    for i, x in enumerate(trace.registers[name].view_as(trace.domain, kind).lanes):
        rest = dict(as_form(x).atoms)
        if rest.pop(("c", r, i), None) != {1: 1} or not rest.keys() <= sums.keys():
            raise Inexact(f"tile lane {r * kind.lanes + i} is not itself plus sums")
        if (extra := as_form(x).const) != 0:
            raise Inexact(f"tile lane {r * kind.lanes + i} gets {extra} a flush, however many steps it ends")
        out.append(LinearForm(0, rest, 0, 0))
    return out


def compose(taken: LinearForm, increments: Sequence[LaneForms]) -> LinearForm:
    """Return the form with each sum of an innermost lane of pass n replaced by what a step adds, `increments[n]`."""
    total = LinearForm(0, {}, 0, 0)
    for lane, by in taken.atoms.items():
        _, number, key = cast("tuple[str, int, Hashable]", lane)
        for coef in by:
            total = add_forms(total, increments[number][key].scale(coef))
    return total


def separate_rows(kernel: Kernel, added: LaneForms, number: int) -> tuple[LoopSummary, LaneForms]:
    """Return the summary of a step of pass `number`, and what it adds to each unknown sum.

    If pairs of rows share bytes, a lane x gets x1 + 16 * x2 where another lane y gets x2. With one unknown for each
    lane, nothing would be known of x - 16 * y. So the unknowns are the sums of x1 and of x2: atoms that all lanes count
    alike, up to a factor of each atom, are one unknown.
    """
    if kernel.together == 1:
        return LoopSummary.of_step(added, number), added
    # Atoms by the lanes that count them, and how often each does.
    lanes_of: dict[Hashable, dict[Hashable, int]] = {}
    positions: dict[Hashable, int] = {}
    for lane, form in added.items():
        for atom, by in form.atoms.items():
            ((times, mask), *others) = by.items()
            if form.const or others or not is_plane(atom) or positions.setdefault(atom, mask) != mask:
                raise Refuted("rows that share bytes cannot be separated: lanes count the positions of K differently")
            lanes_of.setdefault(atom, {})[lane] = times
    parts: dict[tuple[tuple[Hashable, int], ...], dict[Hashable, int]] = {}
    for atom, counts in lanes_of.items():
        common = gcd(*counts.values())
        parts.setdefault(tuple((lane, times // common) for lane, times in counts.items()), {})[atom] = common
    shares: dict[Hashable, LinearForm] = {}
    lanes = {lane: LinearForm(0, {}, 0, 0) for lane in added}
    for n, (counts_of_part, part) in enumerate(parts.items()):
        most = sum(times * positions[atom].bit_count() for atom, times in part.items())
        shares["part", n] = LinearForm(0, {atom: {times: positions[atom]} for atom, times in part.items()}, 0, most)
        unknown = variable(("sum", number, ("part", n)), 0, most)
        for lane, times in counts_of_part:
            lanes[lane] = add_forms(lanes[lane], unknown.scale(times))
    ranges: Ranges = {("sum", number, key): (form.lo, form.hi) for key, form in shares.items()}
    return LoopSummary(lanes, ranges), shares

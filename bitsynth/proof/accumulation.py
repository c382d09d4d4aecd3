"""Loop summaries: what a kernel's loops add to accumulators, and its flushes to the tile, in the linear domain.

Nothing here is assumed: a program whose effect cannot be shown exact is Refuted. The checker composes
these summaries (`checker`), the scheduler asks how many trips a loop may make (`schedule.flush`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import cast

from bitsynth.errors import Refuted, SpecError
from bitsynth.isa.domains.forms import Inexact, LinearForm, add_forms, as_form, variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.domains.ranges import Ranges, ranged
from bitsynth.isa.load import Isa
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.kernel.payloads import bind_inputs
from bitsynth.kernel.program import Kernel, Loop, Pass
from bitsynth.proof.increments import LaneForms, any_value, bind_accumulators, increments_of, keys_of

TraceFactory = Callable[[Isa, LinearDomain], Trace]


@dataclass(frozen=True)
class LoopSummary:
    """The sums that a loop adds to each lane of its accumulators, of what steps add to innermost lanes.

    `ranges` are those of the innermost lanes' sums in a whole run. Lanes that wrap differ from
    their sums by a multiple of 2**w; what is left when some are taken from others may fit again.
    """

    lanes: LaneForms
    ranges: Ranges

    @staticmethod
    def of_step(added: LaneForms, number: int = 0) -> LoopSummary:
        """The summary of a step of pass `number`: every innermost lane gets what the step adds to it."""
        ranges: Ranges = {("sum", number, key): (form.lo, form.hi) for key, form in added.items()}
        return LoopSummary(
            {key: variable(("sum", number, key), form.lo, form.hi) for key, form in added.items()}, ranges
        )

    def after(self, times: int, before: LoopSummary | None = None) -> LoopSummary:
        """The summary after any number of runs up to `times` that start from `before`, or from zero."""
        ranges = {key: (min(0, lo * times), max(0, hi * times)) for key, (lo, hi) in self.ranges.items()}
        lanes = self.lanes
        if before is not None:
            ranges |= before.ranges
            lanes = {key: add_forms(before.lanes[key], form) for key, form in lanes.items()}
        return LoopSummary({key: ranged(form, ranges) for key, form in lanes.items()}, ranges)


def step_summary(isa: Isa, kernel: Kernel, loop: Pass, new_trace: TraceFactory = Trace) -> dict[Hashable, LinearForm]:
    """The forms that one step adds to each accumulator lane of the innermost loop, keyed ("acc", name, lane)."""
    rows = 1 << kernel.code_bits
    domain = LinearDomain(rows)
    trace, first = new_trace(isa, domain), new_trace(isa, domain)
    bind_inputs(trace, kernel, loop)
    first.registers |= trace.registers
    first.known = trace.known = {}  # The first run does to inputs what every run does.
    try:
        increments = increments_of(trace, loop.step, domain)
        if loop.step.first:
            _check_first(first, loop.step, increments)
    except Inexact as why:
        raise Refuted(f"the step cannot be shown exact: {why}") from None
    return increments


def _check_first(trace: Trace, loop: Loop, increments: LaneForms) -> None:
    """Refuted unless the first run leaves in the accumulators what a run adds to them."""
    for step in loop.first_steps:
        trace.run(step)
    for acc in loop.accs:
        kind = VecType.parse(acc.type)
        lanes = trace.registers[acc.start].viewed_as(trace.domain, kind).lanes
        for key, x in zip(keys_of(acc, kind), lanes, strict=True):
            if ((form := as_form(x)).const, form.atoms) != (increments[key].const, increments[key].atoms):
                raise Inexact(f"the first run leaves in {acc.name} another sum than a run adds")


@dataclass(frozen=True)
class PassSummary:
    """The content of accumulators at the end of loop n after the first asked for: `held[n]`.

    Then what the next pass starts from, or what the tile takes.
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
    """The summary of a pass whose loop `level` adds `sums` a run: the loops around it, then the carry or the flush.

    Accumulators start from zero, those of the outermost loop from what another pass `carried`.
    """
    outermost = len(loop.loops) - 1
    held: list[LoopSummary] = []
    for n in range(level, len(loop.loops)):
        start = carried if n == outermost else None
        if held:
            sums = loop_summary(isa, kernel, loop, n, held[-1], start is not None, new_trace)
        held.append(sums.after(loop.loops[n].trip_count, start))
    if loop.carries:
        return PassSummary(tuple(held), carried=_carried(isa, kernel, loop, held[-1], new_trace))
    return PassSummary(tuple(held), taken=_flushed(isa, kernel, loop, held[-1], new_trace))


def loop_summary(
    isa: Isa,
    kernel: Kernel,
    loop: Pass,
    level: int,
    held: LoopSummary,
    carried: bool = False,
    new_trace: TraceFactory = Trace,
) -> LoopSummary:
    """The summary of one run of loop `level`, whose inner loop's accumulators have `held`.

    `carried` says that its own start from what another pass left.
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


def _carried(isa: Isa, kernel: Kernel, loop: Pass, held: LoopSummary, new_trace: TraceFactory) -> LoopSummary:
    """The lanes that the next pass starts from, over innermost lanes: accumulators are as full as they may be."""
    trace = _at_flush(isa, kernel, loop, held, new_trace)
    lanes: dict[Hashable, LinearForm] = {}
    try:
        for step in loop.flush_steps:
            trace.run(step)
        for acc in loop.carried.accs:
            kind = VecType.parse(acc.type)
            made = trace.registers[acc.next].viewed_as(trace.domain, kind).lanes
            lanes |= {key: as_form(x) for key, x in zip(keys_of(acc, kind), made, strict=True)}
    except Inexact as why:
        raise Refuted(f"what is carried cannot be shown exact after {loop.flush_every} steps: {why}") from None
    if any(form.const or not form.atoms.keys() <= held.ranges.keys() for form in lanes.values()):
        raise Refuted("what is carried is more than sums")
    return LoopSummary({key: ranged(form, held.ranges) for key, form in lanes.items()}, held.ranges)


def _at_flush(isa: Isa, kernel: Kernel, loop: Pass, held: LoopSummary, new_trace: TraceFactory) -> Trace:
    """A trace at the start of a flush: the outermost accumulators hold all sums."""
    trace = new_trace(isa, LinearDomain(1, held.ranges))
    trace.bind_constants(kernel.constants)
    bind_accumulators(trace, loop.loops[-1], held.lanes)
    return trace


def _flushed(
    isa: Isa, kernel: Kernel, loop: Pass, held: LoopSummary, new_trace: TraceFactory
) -> tuple[LinearForm, ...]:
    """The forms that a flush adds to each tile column, over innermost lanes of accumulators as full as they may be."""
    trace = _at_flush(isa, kernel, loop, held, new_trace)
    tile = isa.tile
    count = kernel.tile_registers(isa.table.vector_bits) * kernel.together
    for r in range(count):
        trace.bind(f"c{r}", Register(tile, tuple(any_value(("c", r, i), tile) for i in range(tile.lanes))))
    if len(loop.tile) != count:
        raise SpecError(f"a flush must give {count} tile registers, not {len(loop.tile)}")
    try:
        for step in loop.flush_steps:
            trace.run(step)
        return tuple(x for r, name in enumerate(loop.tile) for x in _tile_lanes(trace, name, r, tile, held.ranges))
    except Inexact as why:
        raise Refuted(f"the flush cannot be shown exact after {loop.flush_every} steps: {why}") from None


def _tile_lanes(trace: Trace, name: str, r: int, kind: VecType, sums: Ranges) -> list[LinearForm]:
    if name not in trace.registers:
        raise SpecError(f"the tile becomes {name}, which has no value")
    out = []
    for i, x in enumerate(trace.registers[name].viewed_as(trace.domain, kind).lanes):
        rest = dict(as_form(x).atoms)
        if rest.pop(("c", r, i), None) != {1: 1} or not rest.keys() <= sums.keys():
            raise Inexact(f"tile lane {r * kind.lanes + i} is not itself plus sums")
        if (extra := as_form(x).const) != 0:
            raise Inexact(f"tile lane {r * kind.lanes + i} gets {extra} a flush, however many steps it ends")
        out.append(LinearForm(0, rest, 0, 0))
    return out


def compose(taken: LinearForm, increments: Sequence[LaneForms]) -> LinearForm:
    """The form `taken`, with the sum of each innermost lane of pass n replaced by what a step adds: increments[n]."""
    total = LinearForm(0, {}, 0, 0)
    for lane, by in taken.atoms.items():
        _, number, key = cast("tuple[str, int, Hashable]", lane)
        for coef in by:
            total = add_forms(total, increments[number][key].scaled(coef))
    return total

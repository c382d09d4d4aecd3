"""Increments: what one run of a loop's program adds to each lane of its accumulators, in the linear domain."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from bitsynth.errors import SpecError
from bitsynth.isa.domains.forms import Inexact, LinearForm, as_form, is_of_codes, variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.domains.ranges import tightened
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.kernel.program import Acc, Loop

LaneForms = Mapping[Hashable, LinearForm]
"""A linear form for each lane of a loop's accumulators, keyed ("acc", name, lane)."""


def any_value(key: Hashable, kind: VecType) -> LinearForm:
    """A lane of which nothing is known: any value of its width."""
    return variable(key, 0, (1 << kind.bits) - 1)


def increments_of(
    trace: Trace, loop: Loop, domain: LinearDomain, *, carried: bool = False
) -> dict[Hashable, LinearForm]:
    """The forms that one run of the loop's program adds to each accumulator lane: planes, or sums of innermost lanes.

    Most programs add the same to whatever the accumulators hold. One that saturates does so
    to what the runs before leave in them, which is not known if the first starts from what was `carried`.
    """
    keys = {key: VecType.parse(acc.type) for acc in loop.accs for key in keys_of(acc, VecType.parse(acc.type))}
    try:
        return _run_once(trace, loop, domain, {key: any_value(key, kind) for key, kind in keys.items()})
    except Inexact:
        if carried:
            raise
        increments = _run_once(trace, loop, domain, {key: variable(key, 0, 0) for key in keys})
        full = {key: _filled(key, form, loop.trip_count - 1) for key, form in increments.items()}
        if _run_once(trace, loop, domain, full) != increments:
            raise Inexact("what a run adds depends on the runs before") from None
        return increments


def _run_once(trace: Trace, loop: Loop, domain: LinearDomain, before: LaneForms) -> dict[Hashable, LinearForm]:
    """The forms that a run adds to accumulators that hold `before`."""
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
    register = trace.registers[acc.next].viewed_as(trace.domain, kind)
    out: list[tuple[Hashable, LinearForm]] = []
    for i, (key, x) in enumerate(zip(keys_of(acc, kind), register.lanes, strict=True)):
        form = as_form(x)
        rest = dict(form.atoms)
        if rest.pop(key, None) != {1: 1} or not all(is_of_codes(k) or k in domain.ranges for k in rest):
            raise Inexact(f"{acc.name} lane {i} is not itself plus what the step adds")
        increment = LinearForm(form.const, rest, form.lo - before[key].lo, form.hi - before[key].hi)
        out.append((key, tightened(increment, domain.rows) if increment.lo < 0 else increment))
    return out


def bind_accumulators(trace: Trace, loop: Loop, lanes: LaneForms) -> None:
    """Bind the loop's accumulators, holding `lanes`."""
    for acc in loop.accs:
        kind = VecType.parse(acc.type)
        trace.bind(acc.name, Register(kind, tuple(lanes[key] for key in keys_of(acc, kind))))


def keys_of(acc: Acc, kind: VecType) -> list[Hashable]:
    """The keys of an accumulator's lanes."""
    return [("acc", acc.name, i) for i in range(kind.lanes)]


def _filled(key: Hashable, form: LinearForm, period: int) -> LinearForm:
    return variable(key, min(0, form.lo * period), max(0, form.hi * period))

"""Lanes that get a multiple of what others get, and a rest: sums of two rows that lie side by side in a byte."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from bitsynth.isa.domains.forms import LinearForm, add_forms, is_plane
from bitsynth.kernel.program import Kernel
from bitsynth.proof.accumulation import LoopSummary
from bitsynth.proof.increments import LaneForms


def unmixed(kernel: Kernel, added: LaneForms, number: int) -> tuple[LoopSummary, LaneForms]:
    """The summary of a step of pass `number`, and what it adds to each unknown sum.

    If rows are together, a lane may get a multiple of what another gets, and a rest: their sums are two unknowns, of
    the rest and of what the other gets, or what fits again when one is taken from the other would not be known.
    """
    if kernel.together == 1:
        return LoopSummary.of_step(added, number), added
    mixed = _mixed(added)
    unknown = {key: mixed[key].rest if key in mixed else form for key, form in added.items()}
    sums = LoopSummary.of_step(unknown, number)
    lanes = {
        key: add_forms(form, sums.lanes[mixed[key].other].scaled(mixed[key].times)) if key in mixed else form
        for key, form in sums.lanes.items()
    }
    return LoopSummary(lanes, sums.ranges), unknown


@dataclass(frozen=True)
class _Mixed:
    """What a lane gets: so many `times` what the `other` lane gets, and a `rest`."""

    other: Hashable
    times: int
    rest: LinearForm


def _mixed(added: LaneForms) -> dict[Hashable, _Mixed]:
    """The lanes that get a multiple of what another lane gets, and other bits."""
    holders: dict[Hashable, list[Hashable]] = {}
    for key, form in added.items():
        for atom in form.atoms:
            holders.setdefault(atom, []).append(key)
    out: dict[Hashable, _Mixed] = {}
    for other, part in added.items():
        for key in holders[next(iter(part.atoms))] if part.atoms else ():
            found = _multiple(added[key], part)
            if found is not None:
                out[key] = _Mixed(other, *found)
    return {key: mixed for key, mixed in out.items() if mixed.other not in out}


def _multiple(whole: LinearForm, part: LinearForm) -> tuple[int, LinearForm] | None:
    """How many times `whole` has `part`, and what else of other bits; None if it is no such sum."""
    first = next(iter(part.atoms))
    by, wanted = whole.atoms.get(first, {}), part.atoms[first]
    times = next(iter(by), 0) // next(iter(wanted))
    rest = {key: atoms for key, atoms in whole.atoms.items() if key not in part.atoms}
    if not rest or part.const or whole.const or not all(is_plane(key) for key in rest):
        return None
    if any(whole.atoms.get(k) != {c * times: m for c, m in a.items()} for k, a in part.atoms.items()):
        return None
    ends = [sorted((0, c * mask.bit_count())) for atoms in rest.values() for c, mask in atoms.items()]
    return times, LinearForm(0, rest, sum(lo for lo, _ in ends), sum(hi for _, hi in ends))

"""Accepts entries of files, which anybody may have written: each is checked again, or refused."""

from __future__ import annotations

import math

from bitsynth.errors import SpecError
from bitsynth.isa.step import from_json
from bitsynth.proof.proved import Proved
from bitsynth.spec.options import METHODS
from bitsynth.store.entry import Entry, ProvedEntry, RunnerUp

_MAX_REASON = 1000


def accept(entry: Entry) -> ProvedEntry:
    """Return the entry, proved by the checker and by its record of what Z3 discharged.

    SpecError says what does not hold.
    """
    certificate, kernel = entry.certificate, entry.kernel
    entry.options.isa(kernel.isa)
    proved = Proved.on_record(kernel, certificate.instructions)
    proved_entry = ProvedEntry(proved, entry.options, certificate.minimality, entry.cost.lower_bound, entry.runners_up)
    again = proved_entry.entry
    facts = {
        "method": entry.method == again.method and entry.asked in ("", entry.method),
        "channels": not entry.channels or (not kernel.swapped and kernel.columns <= entry.channels),
        "positions of K a step": entry.k_step in (0, kernel.k_step),
        "runners-up": all(_plausible(x, entry.method) for x in entry.runners_up),
        "minimality claims": all(c.isprintable() for c in certificate.minimality),
        "lower bound": 0 <= entry.cost.lower_bound <= entry.cost.ops_per_128_mac,
        "name": entry.name == again.name,
        "lemmas": certificate.lemmas == again.certificate.lemmas,
        "largest K": certificate.k_max == again.certificate.k_max,
        "cost": entry.cost == again.cost,
    }
    if wrong := [what for what, holds in facts.items() if not holds]:
        raise SpecError(f"{', '.join(wrong)} differ")
    return proved_entry


def accept_text(text: bytes) -> ProvedEntry:
    """Return the entry of JSON `text`, such as a pickled kernel has, accepted as by `accept`."""
    return accept(from_json(text, Entry))


def _plausible(other: RunnerUp, winner: str) -> bool:
    """Return whether a runner-up is another method, with a cost or with a reason of one line."""
    if other.method not in METHODS or other.method == winner:
        return False
    if other.cost is not None:
        return 0 <= other.cost < math.inf and not other.why
    return bool(other.why) and other.why.isprintable() and len(other.why) < _MAX_REASON

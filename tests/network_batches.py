"""Networks that run in one library: many small ones are compiled in a fraction of the time that each would take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bitsynth import toolchain
from bitsynth.isa.load import Requirements, load
from bitsynth.network.machine import NetworkMachine
from bitsynth.network.run import Network
from bitsynth.run.runner import runner_for

QUICK = ("-O0",)
"""Flags of networks that run a few times."""


def compiled_together(isa: str, networks: Iterable[Network]) -> None:
    """Compile networks for a set, each as it is and with every edge in a place of its own, in as few libraries."""
    left = [machine for net in networks for machine in (net._machine, net._tracing)]
    for k, machine in enumerate(left):
        machine.name = f"network{k}"
    while left:
        shared: dict[str, str] = {}
        some = [m for m in left if _takes(shared, m.shared_sources)]
        left = [m for m in left if m not in some]
        _compile(isa, some, shared)


def _takes(shared: dict[str, str], more: dict[str, str]) -> bool:
    """Whether shared files can have more among them, which then are; not if one has another text."""
    fits = all(shared.get(name, text) == text for name, text in more.items())
    if fits:
        shared.update(more)
    return fits


def _compile(isa: str, machines: Sequence[NetworkMachine], shared: dict[str, str]) -> None:
    sources = {name: text for m in machines for name, text in m.own_sources.items()}
    needs = _together(isa, [m.text.needs for m in machines])
    library = toolchain.compile_for(load(isa), sources | shared, needs=needs, flags=QUICK, kept=shared)
    runner = runner_for(load(isa), library, needs=needs)
    for machine in machines:
        machine.__dict__["runner"] = runner


def _together(isa: str, needs: Sequence[Requirements]) -> Requirements:
    every = [load(isa).requirements(), *needs]
    parts = (tuple(dict.fromkeys(x for n in every for x in getattr(n, k))) for k in ("macros", "cc_flags", "host"))
    return Requirements(*parts)

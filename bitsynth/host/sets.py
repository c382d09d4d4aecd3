"""Instruction sets of this machine, and sets whose kernels can replace another set's."""

from __future__ import annotations

from collections.abc import Iterable

from bitsynth.errors import NoKernel
from bitsynth.host import features
from bitsynth.host.placement import runs_natively
from bitsynth.isa import architecture
from bitsynth.isa.load import load_table, names, narrower


def sets_of(isa: str) -> list[str]:
    """Return the instruction sets whose kernels layers on `isa` may use: its own and narrower ones."""
    return [isa, *narrower(load_table(isa))]


def widest(isa: str) -> str:
    """Return `isa`, or for "auto" the best instruction set that this processor runs; NoKernel if it runs none."""
    if isa != "auto":
        return isa
    if not (known := native_sets()):
        raise NoKernel(f"this processor runs none of {', '.join(names())}; name one with isa")
    return best(known)


def best(known: Iterable[str]) -> str:
    """Return the best of several sets that one processor runs: the widest words and registers, then extensions."""
    return max(known, key=_extent)


def _extent(name: str) -> tuple[int, int, int, bool]:
    table = load_table(name)
    return architecture.named(table.arch).bits, table.vector_bits, len(sets_of(name)), bool(table.extends)


def native_sets() -> list[str]:
    """Return the instruction sets that this processor runs."""
    known = {name: load_table(name) for name in names()}
    return [name for name, table in known.items() if table.arch == features.arch() and runs_natively(table)]

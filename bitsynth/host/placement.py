"""Where code for an instruction set runs: on this processor, or under an emulator."""

from __future__ import annotations

import os
from collections.abc import Iterable

from bitsynth.errors import NoKernel, SpecError, ToolError
from bitsynth.host import features
from bitsynth.host.facts import here
from bitsynth.isa import architecture
from bitsynth.isa.load import load_table, names, narrower
from bitsynth.isa.tables import IsaTable

KINDS = ("native", "qemu", "unicorn")


def get_forced_runner() -> str:
    """Return the runner that BITSYNTH_RUNNER asks for; "" if it asks for none."""
    kind = os.environ.get("BITSYNTH_RUNNER", "")
    if kind and kind not in KINDS:
        raise ToolError(f"BITSYNTH_RUNNER is {kind!r}; it can be {', '.join(KINDS)}")
    return kind


def runs_natively(isa: IsaTable) -> bool:
    """Return whether code for `isa` runs on this processor itself."""
    if not architecture.find_architecture(isa.arch).emulator:
        return isa.arch == features.arch()
    kind = get_forced_runner()
    return kind == "native" or (not kind and features.matches(isa))


def is_emulated(isa: IsaTable) -> bool:
    """Return whether code for `isa` runs under an emulator; never for an architecture without one."""
    return architecture.find_architecture(isa.arch).emulator is not None and not runs_natively(isa)


def has_times(isa: IsaTable) -> bool:
    """Return whether calls of code for `isa` can be timed: no emulator runs the code, or this whole system."""
    return runs_natively(isa) and not here().emulator


def cpu_here(isa: IsaTable) -> str:
    """Return the processor of `isa` that runs code for `isa` here; "" if it is not known."""
    has_names = architecture.find_architecture(isa.arch).processors and runs_natively(isa)
    return here().cpu(isa) if has_names else ""


def require_native(isa: IsaTable, advice: str = "") -> None:
    """Raise SpecError if this processor does not run code for `isa` itself, so that there are no times."""
    if not runs_natively(isa):
        raise no_times(f"this processor ({features.arch()}) does not run {isa.name}", advice)
    if by := here().emulator:
        raise no_times(f"this system is run by {by}", advice)


def no_times(why: str, advice: str = "") -> SpecError:
    """Return the error for something to be timed that only an emulator would run."""
    return SpecError(f"{why}, and an emulator tells no time{advice and ': '}{advice}")


def sets_of(isa: str) -> list[str]:
    """Return the instruction sets whose kernels layers on `isa` may use: its own and narrower ones.

    A set with matrix registers has kernels for these alone; other kernels come from the set that it extends.
    """
    table = load_table(isa)
    extended = sets_of(table.extends) if table.extends and table.matrices else []
    return list(dict.fromkeys([isa, *extended, *narrower(table)]))


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
    return architecture.find_architecture(table.arch).bits, table.vector_bits, len(sets_of(name)), bool(table.extends)


def native_sets() -> list[str]:
    """Return the instruction sets that this processor runs and that "auto" may stand for."""
    tables = (load_table(name) for name in names())
    return [table.name for table in tables if table.auto and _is_native(table)]


def _is_native(table: IsaTable) -> bool:
    """Return whether this processor has a set's features; for sets with an emulator BITSYNTH_RUNNER may override it."""
    emulator = architecture.find_architecture(table.arch).emulator
    return runs_natively(table) if emulator and table.arch == features.arch() else features.matches(table)

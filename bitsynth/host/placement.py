"""Where code for an instruction set runs: on this processor, or under an emulator."""

from __future__ import annotations

import os

from bitsynth.errors import SpecError, ToolError
from bitsynth.host import features
from bitsynth.host.facts import here
from bitsynth.isa import architecture
from bitsynth.isa.tables import IsaTable

KINDS = ("native", "qemu", "unicorn")


def forced() -> str:
    """Return the runner that BITSYNTH_RUNNER asks for; "" if it asks for none."""
    kind = os.environ.get("BITSYNTH_RUNNER", "")
    if kind and kind not in KINDS:
        raise ToolError(f"BITSYNTH_RUNNER is {kind!r}; it can be {', '.join(KINDS)}")
    return kind


def runs_natively(isa: IsaTable) -> bool:
    """Return whether code for `isa` runs on this processor itself."""
    if not architecture.named(isa.arch).emulator:
        return isa.arch == features.arch()
    kind = forced()
    return kind == "native" or (not kind and features.matches(isa))


def is_emulated(isa: IsaTable) -> bool:
    """Return whether code for `isa` runs under an emulator; never for an architecture without one."""
    return architecture.named(isa.arch).emulator is not None and not runs_natively(isa)


def has_times(isa: IsaTable) -> bool:
    """Return whether calls of code for `isa` can be timed: no emulator runs them, nor this whole system."""
    return runs_natively(isa) and not here().emulator


def cpu_here(isa: IsaTable) -> str:
    """Return the processor, among those in `isa`, that runs code for `isa` here; "" if it is not known."""
    has_names = architecture.named(isa.arch).processors and runs_natively(isa)
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

"""The machines that options name: an instruction set and its processor, and a board."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from bitsynth.cli import output
from bitsynth.host.facts import here
from bitsynth.host.placement import cpu_here, widest
from bitsynth.isa.load import load_table

if TYPE_CHECKING:
    from bitsynth.device import Device


def set_and_processor(isa: str, cpu: str) -> tuple[str, str]:
    """Return the instruction set, and the processor to be fast on; "" if none was named and this one is not known.

    For "auto" these are the best set of this processor, and the processor itself. A warning says so if it has no cost
    model. NoKernel if this processor runs none of the sets.
    """
    if isa != "auto":
        return isa, cpu
    isa = widest(isa)
    table = load_table(isa)
    if cpu or (cpu := cpu_here(table)):
        return isa, cpu
    first, *others = table.cpu
    output.warning(
        f"this processor ({here().title}) has no cost model in {isa}: cycles are for {first}"
        + (f"; name another with --cpu: {', '.join(others)}" if others else "")
    )
    return isa, ""


def open_board(host: str | None, emulator: str) -> AbstractContextManager[Device | None]:
    """Return a board to be opened as a context; None is opened if no host is named."""
    if not host:
        return nullcontext()
    from bitsynth.device import Device

    return Device(host, emulator=emulator)

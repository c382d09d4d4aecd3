"""`bitsynth list` of elementwise programs: a table of each instruction set's, or facts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from bitsynth.cli import output
from bitsynth.cli.commands.listed import origin, require_name
from bitsynth.errors import BitsynthError
from bitsynth.printable import printable
from bitsynth.store import elementwise, kernels
from bitsynth.store.elementwise import ProgramEntry

NOTE = "cycles of a program are those of a unit of channels, in memory nearby"


@dataclass(frozen=True)
class ListedProgram:
    """A stored file: its entry, or what is wrong with it."""

    path: Path
    isa: str
    origin: str
    entry: ProgramEntry | None
    problem: str


def programs(isas: Collection[str], check: bool) -> list[ListedProgram]:
    """The stored programs of `isas`, of all if there are none; to `check` them is to load them."""
    places = ((path, kernels.place(path)[1].parts[0]) for path in elementwise.every())
    return [_read(path, isa, check) for path, isa in places if not isas or isa in isas]


def _read(path: Path, isa: str, check: bool) -> ListedProgram:
    try:
        if check:
            elementwise.load_program(path)
        entry = elementwise.read_entry(path)
        require_name(path, entry.name)
    except BitsynthError as why:
        return ListedProgram(path, isa, origin(path), None, str(why))
    return ListedProgram(path, isa, origin(path), entry, "")


def write_programs(found: list[ListedProgram]) -> None:
    """Print a table for each instruction set."""
    for isa in sorted({p.isa for p in found}):
        rows = [p for p in found if p.isa == isa]
        cpus = list(dict.fromkeys(cpu for p in rows if p.entry for cpu in p.entry.cycles))
        output.write(output.fitting(partial(_table, rows, cpus), partial(_table, rows, [])), "")
    if found:
        output.write(Text(NOTE, "dim"))


def _table(found: list[ListedProgram], cpus: list[str], gap: int) -> Table:
    numbers = ("unit", "instructions", *cpus)
    table = output.table("program", *numbers, "from", right=numbers, whole=["program"], gap=gap)
    for p in found:
        if p.entry is None:
            name = Text(printable(p.path.stem, kept=""), "red")
            table.add_row(name, *["-"] * len(numbers), Text(f"{p.origin}, broken", "red"))
            continue
        program, cycles = p.entry.program, p.entry.cycles
        shown = (f"{cycles[cpu]:.2f}" if cpu in cycles else "-" for cpu in cpus)
        table.add_row(p.entry.name, str(program.unit), str(_instructions(p.entry)), *shown, p.origin)
    return table


def _instructions(entry: ProgramEntry) -> int:
    """The steps of a unit, turns of its loop among them."""
    loop = entry.program.loop
    return len(entry.program.program) + (len(loop.program) * entry.program.spec.inputs[-1].count if loop else 0)


def program_facts(p: ListedProgram) -> dict[str, Any]:
    """What `list --json` says of a program."""
    facts: dict[str, Any] = {
        "name": p.path.stem,
        "from": p.origin,
        "variant": elementwise.FOLDER,
        "path": str(p.path),
        "problem": p.problem or None,
    }
    if p.entry:
        facts |= {
            "isa": p.entry.program.isa,
            "method": elementwise.FOLDER,
            "unit": p.entry.program.unit,
            "instructions": _instructions(p.entry),
            "cycles": p.entry.cycles,
        }
    return facts

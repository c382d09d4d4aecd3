"""`bitsynth list`: list the cached kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from bitsynth import paths
from bitsynth.cli import output
from bitsynth.cli.artifacts import ARTIFACTS
from bitsynth.cli.artifacts.artifact import ListRow, ListTable, NamedArtifact
from bitsynth.cli.options.instruction_sets import Isas
from bitsynth.cli.options.kernels import All, Check, ManyActBits, ManyWBits, Method, Variants
from bitsynth.cli.options.output import Json
from bitsynth.cli.parse import parse_bits
from bitsynth.errors import BitsynthError, SpecError
from bitsynth.isa.load import load
from bitsynth.isa.load import names as isa_names
from bitsynth.printable import printable
from bitsynth.spec.options import KernelOptions
from bitsynth.store import files

_WIDTHS = re.compile(r"bs_(?:mm|dw)_a(\d)[us]?_w(\d)", re.ASCII)
_TABLES = tuple(dict.fromkeys(artifact.table for artifact in ARTIFACTS.values()))
_HINTS = (
    "`bitsynth list --isa SET --act-bits 2` lists kernels of one set and width",
    "`bitsynth list --all` lists every kernel",
    "variants: a53, fastest there; c64, for 64 output channels; k128, steps of 128",
)


def list_kernels(
    isa: Isas = "",
    act_bits: ManyActBits = "",
    w_bits: ManyWBits = "",
    method: Method = None,
    variant: Variants = "",
    every: All = False,
    check: Check = False,
    as_json: Json = False,
) -> None:
    """List the cached kernels: yours and the shipped ones.

    Every kernel that fits the options has a line. Without options, a terminal gets one line for each instruction set.
    """
    wanted = _Wanted.of(isa, act_bits, w_bits, method, variant)
    isa_names()  # SpecError for a faulty BITSYNTH_ISA, and not once for each kernel.
    summary = not (as_json or every or check or wanted != _Wanted()) and output.on_terminal()
    all_listed = every or check or summary or bool(variant)
    tables = [table for table in _TABLES if table.has_widths or all_listed]
    by_table = {table: list(_find(wanted, table, check)) for table in tables}
    listed = [each for rows in by_table.values() for each in rows]
    if as_json:
        output.write_json([_facts(each) for each in listed])
    elif summary:
        output.write(_summary(listed), "", *(Text(line, "dim") for line in _HINTS))
    else:
        for table, rows in by_table.items():
            _write(table, rows)
        output.write(*([] if listed else ["no kernel matches"]))
    for each in listed:
        if each.problem:
            output.warning(printable(each.problem, kept=""))


@dataclass(frozen=True)
class _Wanted:
    """The kernels to list: of these sets, bits, method and variant; of any if none is given."""

    isas: frozenset[str] = frozenset()
    act_bits: frozenset[int] = frozenset()
    w_bits: frozenset[int] = frozenset()
    method: str | None = None
    variant: str = ""

    @classmethod
    def of(cls, isa: str, act_bits: str, w_bits: str, method: str | None, variant: str) -> _Wanted:
        """Return the kernels that the options ask for; SpecError if no kernel can be like that."""
        isas = (load(name).name for name in isa.split(",")) if isa else ()
        KernelOptions(method)
        act, wgt = (parse_bits(o, x) if x else [] for o, x in (("--act-bits", act_bits), ("--w-bits", w_bits)))
        return cls(frozenset(isas), frozenset(act), frozenset(wgt), method, variant)

    def has(self, place: Path, table: ListTable) -> bool:
        """Return whether the file at a place can match. A kernel's file whose name has no widths matches any."""
        if (self.isas and place.parts[0] not in self.isas) or self.variant not in ("", "/".join(place.parts[1:-1])):
            return False
        if not table.has_widths:
            return not (self.act_bits or self.w_bits or self.method)
        widths = _WIDTHS.match(place.name)
        pairs = zip((self.act_bits, self.w_bits), widths.groups() if widths else (), strict=False)
        return all(not some or int(bits) in some for some, bits in pairs)

    def takes(self, listed: _Listed) -> bool:
        """Return whether an artifact matches by its content. A file that cannot be read is listed."""
        return self.method is None or listed.row is None or listed.row.method == self.method


@dataclass(frozen=True)
class _Listed:
    """A stored artifact: its row, or why the file cannot be read."""

    artifact: type[NamedArtifact[Any, Any]]
    path: Path
    row: ListRow | None
    problem: str

    @property
    def isa(self) -> str:
        """Return the instruction set that the file is stored under."""
        return files.place(self.path)[1].parts[0]

    @property
    def variant(self) -> str:
        """Return the folders between the instruction set's folder and the file."""
        return "/".join(files.place(self.path)[1].parts[1:-1])

    @property
    def origin(self) -> str:
        """Return whether the file is the "user"'s or "shipped"."""
        return "user" if files.place(self.path)[0] == paths.user_kernels() else "shipped"


def _find(wanted: _Wanted, table: ListTable, check: bool) -> Iterator[_Listed]:
    """Yield the stored artifacts of a table, by variants."""
    kinds = [artifact for artifact in ARTIFACTS.values() if artifact.table == table]
    places = [(artifact, path) for artifact in kinds for path in artifact.kind.every()]
    rows = [_read(artifact, path, check) for artifact, path in places if wanted.has(files.place(path)[1], table)]
    yield from sorted(filter(wanted.takes, rows), key=lambda listed: listed.variant)


def _read(artifact: type[NamedArtifact[Any, Any]], path: Path, check: bool) -> _Listed:
    """Read the artifact in `path`. Its figures are the file's own, or with `check` computed again."""
    try:
        if check:
            artifact.kind.load(path)
        record = artifact.kind.read(path)
        row = artifact.row(record)
        if record.name != path.stem:
            raise SpecError(f"{path} holds {record.name}; delete it or give it back its name")
    except BitsynthError as why:
        return _Listed(artifact, path, None, str(why))
    return _Listed(artifact, path, row, "")


def _write(table: ListTable, artifacts: list[_Listed]) -> None:
    """Print a table for each instruction set, and its notes."""
    for isa in sorted({each.isa for each in artifacts}):
        rows = [each for each in artifacts if each.isa == isa]
        cpus = list(dict.fromkeys(cpu for each in rows if each.row for cpu in each.row.cycles))
        makes = (partial(_table, table, rows, cpus), partial(_table, table, rows, []))
        output.write(output.fit_table(*makes, partial(_table, table, rows, [], brief=True)), "")
    kinds = [artifact for artifact in ARTIFACTS.values() if any(each.artifact == artifact for each in artifacts)]
    notes = [*(table.notes if artifacts else ()), *(artifact.note for artifact in kinds if artifact.note)]
    output.write(*(Text(line, "dim") for line in notes))


def _table(table: ListTable, artifacts: list[_Listed], cpus: list[str], gap: int, *, brief: bool = False) -> Table:
    """Return a table with a row for each artifact.

    A brief table has no columns after the cycles, and shows a shipped kernel's variant alone as its origin.
    """
    after = () if brief else table.after
    columns = (*table.before, *cpus, *after)
    shown = output.table(table.title, *columns, "from", right=(*table.right, *cpus), whole=[table.title], gap=gap)
    for each in artifacts:
        origin = f"{each.origin}, {each.variant}" if table.has_widths and each.variant else each.origin
        origin = each.variant if brief and table.has_widths and each.variant and each.origin == "shipped" else origin
        if each.row is None:
            name = Text(printable(each.path.stem, kept=""), "red")
            shown.add_row(name, *["-"] * len(columns), Text(f"{origin}, broken", "red"))
            continue
        row = each.row
        cycles = (f"{row.cycles[cpu]:.2f}" if cpu in row.cycles else "-" for cpu in cpus)
        shown.add_row(each.path.stem, *row.before, *cycles, *(() if brief else row.after), origin)
    return shown


def _summary(artifacts: list[_Listed]) -> Table:
    """Return a table with a row for each instruction set: counts of kernels and programs, and variants.

    How many are the user's is a column only if there are any: variants need the width.
    """
    has_yours = any(each.origin == "user" for each in artifacts)
    numbers = ("kernels", "programs", *(["yours"] if has_yours else []))
    table = output.table("set", *numbers, "variants, besides the cheapest in operations", right=numbers, whole=["set"])
    kernels, programs = ([each for each in artifacts if each.artifact.table.has_widths is has] for has in (True, False))
    for isa in sorted({each.isa for each in kernels}):
        rows = [each for each in kernels if each.isa == isa]
        its = [each for each in programs if each.isa == isa]
        yours = [each.origin for each in (*rows, *its)].count("user")
        variants = ", ".join(sorted({each.variant for each in rows} - {""}))
        table.add_row(isa, str(len(rows)), str(len(its) or "-"), *([str(yours or "-")] if has_yours else []), variants)
    return table


def _facts(listed: _Listed) -> dict[str, Any]:
    """Return the facts of a stored artifact, for JSON."""
    facts = {
        "name": listed.path.stem,
        "from": listed.origin,
        "variant": listed.variant,
        "path": str(listed.path),
        "problem": listed.problem or None,
    }
    return facts | (listed.row.facts if listed.row else {})

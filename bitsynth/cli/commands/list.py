"""`bitsynth list`: list the cached kernels."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from bitsynth import paths
from bitsynth.cli import output
from bitsynth.cli.options.instruction_sets import Isas
from bitsynth.cli.options.kernels import All, Check, ManyActBits, ManyWBits, Method, Variants
from bitsynth.cli.options.output import Json
from bitsynth.cli.parse import parse_bits
from bitsynth.errors import BitsynthError, SpecError
from bitsynth.isa.load import load
from bitsynth.isa.load import names as isa_names
from bitsynth.printable import printable
from bitsynth.spec.options import KernelOptions, scope
from bitsynth.store import files
from bitsynth.store.depthwise import DEPTHWISE, DepthwiseEntry
from bitsynth.store.elementwise import ELEMENTWISE, ProgramEntry
from bitsynth.store.entry import Entry
from bitsynth.store.matmul import MATMUL

_WIDTHS = re.compile(r"bs_(?:mm|dw)_a(\d)[us]?_w(\d)", re.ASCII)
_HINTS = (
    "`bitsynth list --isa SET --act-bits 2` lists kernels of one set and width",
    "`bitsynth list --all` lists every kernel",
    "variants: a53, fastest there; c64, for 64 output channels; k128, steps of 128",
)
_NOTES = (
    "ops, bound and cycles are per 128 multiply-accumulates; loads are not in ops",
    "figures are those in the files; --check computes them again",
    "bound and min are claims; `bitsynth verify` solves them again",
)
_OF_PROGRAMS = "cycles of a program are for one unit of channels, with data in L1"
_OF_DEPTHWISE = "bs_dw, depthwise: for operands up to the widths in the name; figures are for a 3 x 3 window"


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
    found = [c for p in _every_kernel() if wanted.has(p) and wanted.takes(c := _read_kernel(p, check))]
    found.sort(key=lambda c: c.variant)
    summary = not (as_json or every or check or wanted != _Wanted()) and output.on_terminal()
    are_wanted = wanted.has_programs and (every or check or summary or bool(wanted.variant))
    programs = _programs(wanted.isas, check) if are_wanted else []
    if as_json:
        output.write_json([*map(_kernel_facts, found), *map(_program_facts, programs)])
    elif summary:
        output.write(_summary(found, programs), "", *(Text(line, "dim") for line in _HINTS))
    else:
        _write_all(found)
        _write_programs(programs)
        output.write(*([] if found or programs else ["no kernel matches"]))
    for problem in (*(c.problem for c in found), *(p.problem for p in programs)):
        if problem:
            output.warning(printable(problem, kept=""))


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

    @property
    def has_programs(self) -> bool:
        """Return whether elementwise programs can match: they have neither widths nor a method."""
        return self.variant in ("", ELEMENTWISE.name) and not (self.act_bits or self.w_bits or self.method)

    def has(self, path: Path) -> bool:
        """Return whether a file can match by its place. A file whose name has no widths matches any."""
        place = files.place(path)[1]
        if (self.isas and place.parts[0] not in self.isas) or self.variant not in ("", "/".join(place.parts[1:-1])):
            return False
        widths = _WIDTHS.match(path.stem)
        pairs = zip((self.act_bits, self.w_bits), widths.groups() if widths else (), strict=False)
        return all(not some or int(one) in some for some, one in pairs)

    def takes(self, c: _Listed) -> bool:
        """Return whether a kernel matches by its content. A file that cannot be read is listed."""
        return self.method is None or c.figures is None or c.figures.method == self.method


@dataclass(frozen=True)
class _Figures:
    """Figures of a kernel in its file.

    `bound` and `k_max` are None if the file claims none; `minimal` names the sketch in which the kernel is the best. A
    depthwise kernel takes operands of `act_bits` and `w_bits` bits, or fewer.
    """

    name: str
    isa: str
    act_bits: int
    w_bits: int
    method: str
    ops: float
    bound: float | None
    minimal: str | None
    cycles: dict[str, float]
    k_max: int | None


@dataclass(frozen=True)
class _Listed:
    """A stored kernel: its figures, or why the file cannot be read."""

    path: Path
    origin: str
    variant: str
    figures: _Figures | None
    problem: str

    @property
    def isa(self) -> str:
        """Return the instruction set that the file is stored under."""
        return files.place(self.path)[1].parts[0]


def _every_kernel() -> Iterator[Path]:
    """Yield the files of all stored kernels, matmul kernels first."""
    yield from MATMUL.every()
    yield from DEPTHWISE.every()


def _origin(path: Path) -> str:
    """Return whether a stored file is the "user"'s or "shipped"."""
    return "user" if files.place(path)[0] == paths.user_kernels() else "shipped"


def _require_name(path: Path, name: str) -> None:
    """Raise SpecError unless the file has the name of the kernel in it."""
    if name != path.stem:
        raise SpecError(f"{path} holds {name}; delete it or give it back its name")


def _read_kernel(path: Path, check: bool) -> _Listed:
    """Read the kernel in `path`. Its figures are the file's own, or with `check` computed again."""
    variant = "/".join(files.place(path)[1].parts[1:-1])
    try:
        figures = _depthwise_figures(path, check) if variant == DEPTHWISE.name else _matmul_figures(path, check)
        _require_name(path, figures.name)
    except BitsynthError as why:
        return _Listed(path, _origin(path), variant, None, str(why))
    return _Listed(path, _origin(path), variant, figures, "")


def _matmul_figures(path: Path, check: bool) -> _Figures:
    entry: Entry = MATMUL.load(path).entry if check else MATMUL.read(path)
    kernel, cost = entry.kernel, entry.cost
    minimal = scope(load(kernel.isa), kernel.method, entry.options) if cost.minimal else None
    return _Figures(
        entry.name,
        kernel.isa,
        kernel.act_bits,
        kernel.w_bits,
        kernel.method,
        cost.ops_per_128_mac,
        cost.lower_bound,
        minimal,
        dict(cost.cycles),
        entry.certificate.k_max,
    )


def _depthwise_figures(path: Path, check: bool) -> _Figures:
    if check:
        DEPTHWISE.load(path)
    entry: DepthwiseEntry = DEPTHWISE.read(path)
    program, cost = entry.program, entry.cost
    return _Figures(
        entry.name,
        program.isa,
        program.act_bits,
        program.w_bits,
        DEPTHWISE.name,
        cost.ops_per_128_mac,
        None,
        entry.minimality,
        dict(cost.cycles),
        None,
    )


def _write_all(found: list[_Listed]) -> None:
    for isa in sorted({c.isa for c in found}):
        rows = [c for c in found if c.isa == isa]
        cpus = list(dict.fromkeys(cpu for c in rows if c.figures for cpu in c.figures.cycles))
        output.write(output.fit_table(partial(_kernel_table, rows, cpus), partial(_kernel_table, rows, [])), "")
    notes = [*_NOTES, *([_OF_DEPTHWISE] if any(c.variant == DEPTHWISE.name for c in found) else [])]
    output.write(*(Text(line, "dim") for line in notes if found))


def _summary(found: list[_Listed], programs: list[_ListedProgram]) -> Table:
    """Return a table with a row for each instruction set: counts of kernels and programs, and variants."""
    numbers = ("kernels", "programs", "yours")
    table = output.table("set", *numbers, "variants, besides the cheapest in operations", right=numbers, whole=["set"])
    for isa in sorted({c.isa for c in found}):
        rows = [c for c in found if c.isa == isa]
        its = [p for p in programs if p.isa == isa]
        yours = [*(c.origin for c in rows), *(p.origin for p in its)].count("user")
        table.add_row(
            isa,
            str(len(rows)),
            str(len(its) or "-"),
            str(yours or "-"),
            ", ".join(sorted({c.variant for c in rows} - {""})),
        )
    return table


def _kernel_table(found: list[_Listed], cpus: list[str], gap: int) -> Table:
    numbers = ("ops", "bound", *cpus, "K max")
    table = output.table(
        "kernel", "method", "ops", "bound", "min", *cpus, "K max", "from", right=numbers, whole=["kernel"], gap=gap
    )
    for c in found:
        origin = f"{c.origin}, {c.variant}" if c.variant else c.origin
        if c.figures is None:
            table.add_row(
                Text(printable(c.path.stem, kept=""), "red"), *["-"] * (5 + len(cpus)), Text(f"{origin}, broken", "red")
            )
            continue
        f = c.figures
        table.add_row(
            f.name,
            f.method,
            f"{f.ops:.2f}",
            "-" if f.bound is None else f"{f.bound:.3g}",
            "yes" if f.minimal else "no",
            *(f"{f.cycles[cpu]:.2f}" if cpu in f.cycles else "-" for cpu in cpus),
            "-" if f.k_max is None else _rounded(f.k_max),
            origin,
        )
    return table


def _rounded(n: int) -> str:
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if n >= size:
            return f"{n / size:.3g}{unit}"
    return str(n)


def _file_facts(listed: _Listed | _ListedProgram, variant: str) -> dict[str, Any]:
    """Return the facts that every stored file has, for JSON."""
    return {
        "name": listed.path.stem,
        "from": listed.origin,
        "variant": variant,
        "path": str(listed.path),
        "problem": listed.problem or None,
    }


def _kernel_facts(c: _Listed) -> dict[str, Any]:
    """Return the facts of a kernel, for JSON."""
    facts = _file_facts(c, c.variant)
    if c.figures:
        f = c.figures
        facts |= {
            "isa": f.isa,
            "act_bits": f.act_bits,
            "w_bits": f.w_bits,
            "method": f.method,
            "ops_per_128_mac": f.ops,
            "lower_bound": f.bound,
            "minimal": f.minimal,
            "cycles": f.cycles,
            "k_max": f.k_max,
        }
    return facts


@dataclass(frozen=True)
class _ListedProgram:
    """A stored program: its entry, or why the file cannot be read."""

    path: Path
    isa: str
    origin: str
    entry: ProgramEntry | None
    problem: str


def _programs(isas: Collection[str], check: bool) -> list[_ListedProgram]:
    """Read the stored programs of `isas`, or of all sets if that is empty; with `check` their proofs too."""
    places = ((path, files.place(path)[1].parts[0]) for path in ELEMENTWISE.every())
    return [_read_program(path, isa, check) for path, isa in places if not isas or isa in isas]


def _read_program(path: Path, isa: str, check: bool) -> _ListedProgram:
    try:
        if check:
            ELEMENTWISE.load(path)
        entry = ELEMENTWISE.read(path)
        _require_name(path, entry.name)
    except BitsynthError as why:
        return _ListedProgram(path, isa, _origin(path), None, str(why))
    return _ListedProgram(path, isa, _origin(path), entry, "")


def _write_programs(found: list[_ListedProgram]) -> None:
    """Print a table for each instruction set."""
    for isa in sorted({p.isa for p in found}):
        rows = [p for p in found if p.isa == isa]
        cpus = list(dict.fromkeys(cpu for p in rows if p.entry for cpu in p.entry.cycles))
        output.write(output.fit_table(partial(_program_table, rows, cpus), partial(_program_table, rows, [])), "")
    if found:
        output.write(Text(_OF_PROGRAMS, "dim"))


def _program_table(found: list[_ListedProgram], cpus: list[str], gap: int) -> Table:
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
    """Return the number of instructions of a unit, with all iterations of its loop."""
    loop = entry.program.loop
    return len(entry.program.program) + (len(loop.program) * entry.program.spec.inputs[-1].count if loop else 0)


def _program_facts(p: _ListedProgram) -> dict[str, Any]:
    """Return the facts of a program, for JSON."""
    facts = _file_facts(p, ELEMENTWISE.name)
    if p.entry:
        facts |= {
            "isa": p.entry.program.isa,
            "method": ELEMENTWISE.name,
            "unit": p.entry.program.unit,
            "instructions": _instructions(p.entry),
            "cycles": p.entry.cycles,
        }
    return facts

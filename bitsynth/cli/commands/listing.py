"""`bitsynth list`: the kernels in the cache."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from bitsynth.cli import output
from bitsynth.cli.commands import list_elementwise, listed
from bitsynth.cli.commands.list_elementwise import ListedProgram
from bitsynth.cli.commands.listed import Listed
from bitsynth.cli.options.instruction_sets import Isas
from bitsynth.cli.options.kernels import All, Check, ManyActBits, ManyWBits, Method, Variants
from bitsynth.cli.options.output import Json
from bitsynth.cli.parse import bits
from bitsynth.isa.load import load
from bitsynth.printable import printable
from bitsynth.spec.options import KernelOptions
from bitsynth.store import depthwise, elementwise, kernels

_WIDTHS = re.compile(r"bs_(?:mm|dw)_a(\d)[us]?_w(\d)", re.ASCII)
_HINTS = (
    "`bitsynth list --isa SET --act-bits 2` lists those of a set and of widths",
    "`bitsynth list --all` lists every one",
    "a53: fewest cycles there; c64: for 64 output channels; k128: of 128 positions",
)
_NOTES = (
    "ops, bound and cycles are per 128 multiply-accumulates; loads are not in ops",
    "figures are what files say; with --check they are computed anew",
    "bound and min are claims, which `bitsynth verify` solves again",
)
_OF_DEPTHWISE = "bs_dw, depthwise: operands of the widths named and narrower ones; of a 3 x 3 window"


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
    """List the cached kernels, the user's over the shipped ones.

    All that fit the options, a line each; without any, a terminal gets a line for each instruction set.
    """
    wanted = _Wanted.of(isa, act_bits, w_bits, method, variant)
    found = [c for p in listed.every() if wanted.has(p) and wanted.takes(c := listed.read(p, check))]
    found.sort(key=lambda c: c.variant)
    summary = not (as_json or every or check or wanted != _Wanted()) and output.on_terminal()
    asked = wanted.has_programs and (every or check or summary or bool(wanted.variant))
    programs = list_elementwise.programs(wanted.isas, check) if asked else []
    if as_json:
        output.write_json([*map(_facts, found), *map(list_elementwise.program_facts, programs)])
    elif summary:
        output.write(_summary(found, programs), "", *(Text(line, "dim") for line in _HINTS))
    else:
        _write_all(found)
        list_elementwise.write_programs(programs)
        output.write(*([] if found or programs else ["no kernel is like that"]))
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
        """The kernels that the options ask for; SpecError for what no kernel can be."""
        isas = (load(name).name for name in isa.split(",")) if isa else ()
        KernelOptions(method)
        act, wgt = (bits(o, x) if x else [] for o, x in (("--act-bits", act_bits), ("--w-bits", w_bits)))
        return cls(frozenset(isas), frozenset(act), frozenset(wgt), method, variant)

    @property
    def has_programs(self) -> bool:
        """Whether elementwise programs may be some: they have neither widths nor a method."""
        return self.variant in ("", elementwise.FOLDER) and not (self.act_bits or self.w_bits or self.method)

    def has(self, path: Path) -> bool:
        """Whether it may be one, by its place; a file whose name says no widths counts as one of any."""
        place = kernels.place(path)[1]
        if (self.isas and place.parts[0] not in self.isas) or self.variant not in ("", "/".join(place.parts[1:-1])):
            return False
        widths = _WIDTHS.match(path.stem)
        asked = zip((self.act_bits, self.w_bits), widths.groups() if widths else (), strict=False)
        return all(not some or int(one) in some for some, one in asked)

    def takes(self, c: Listed) -> bool:
        """Whether it is one, by its content; a file that cannot be read is listed."""
        return self.method is None or c.figures is None or c.figures.method == self.method


def _write_all(found: list[Listed]) -> None:
    for isa in sorted({c.isa for c in found}):
        rows = [c for c in found if c.isa == isa]
        cpus = list(dict.fromkeys(cpu for c in rows if c.figures for cpu in c.figures.cycles))
        output.write(output.fitting(partial(_table, rows, cpus), partial(_table, rows, [])), "")
    notes = [*_NOTES, *([_OF_DEPTHWISE] if any(c.variant == depthwise.FOLDER for c in found) else [])]
    output.write(*(Text(line, "dim") for line in notes if found))


def _summary(found: list[Listed], programs: list[ListedProgram]) -> Table:
    """A row for each instruction set: how many kernels and programs, how many the user's, and of which variants."""
    numbers = ("kernels", "programs", "yours")
    table = output.table("set", *numbers, "variants, beside the cheapest in operations", right=numbers, whole=["set"])
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


def _table(found: list[Listed], cpus: list[str], gap: int) -> Table:
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


def _facts(c: Listed) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": c.path.stem,
        "from": c.origin,
        "variant": c.variant,
        "path": str(c.path),
        "problem": c.problem or None,
    }
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

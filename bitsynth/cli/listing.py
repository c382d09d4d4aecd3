"""`bitsynth list`: the kernels in the cache."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from bitsynth import paths
from bitsynth.cli import output
from bitsynth.cli.options import All, Check, Isas, Json, ManyActBits, ManyWBits, Method, Variants
from bitsynth.cli.parse import bits
from bitsynth.cli.printable import printable
from bitsynth.errors import BitsynthError, SpecError
from bitsynth.isa.load import load
from bitsynth.kernel.names import KernelName
from bitsynth.spec.options import KernelOptions, scope
from bitsynth.store import kernels
from bitsynth.store.entry import Entry


@dataclass(frozen=True)
class _Cached:
    """A file of the cache: its content, or what is wrong with it."""

    path: Path
    origin: str
    variant: str
    entry: Entry | None
    problem: str


_HINTS = (
    "`bitsynth list --isa SET --act-bits 2` lists those of a set and of widths",
    "`bitsynth list --all` lists every one",
    "a53: fewest cycles there; lookup: by that method; c64: for 64 output channels",
)
_NOTES = (
    "ops, bound and cycles are per 128 multiply-accumulates; loads are not in ops",
    "figures are what files say; with --check they are computed anew",
    "bound and min are claims, which `bitsynth verify` solves again",
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
    """List the cached kernels, the user's over the shipped ones.

    All that fit the options, a line each; without any, a terminal gets a line for each instruction set.
    """
    wanted = _Wanted.of(isa, act_bits, w_bits, method, variant)
    found = sorted((c for p in kernels.every() if wanted.has(p) and wanted.takes(c := _read(p, check))), key=_variant)
    if as_json:
        output.write_json([_facts(c) for c in found])
    elif every or check or wanted != _Wanted() or not output.on_terminal():
        _write_all(found)
    else:
        output.write(_summary(found), "", *(Text(line, "dim") for line in _HINTS))
    for c in found:
        if c.problem:
            output.warning(printable(c.problem, kept=""))


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

    def has(self, path: Path) -> bool:
        """Whether it may be one, by its place; a file whose name is not a kernel's counts as one of any widths."""
        place = kernels.place(path)[1]
        if (self.isas and place.parts[0] not in self.isas) or self.variant not in ("", "/".join(place.parts[1:-1])):
            return False
        try:
            spec = KernelName.parse(path.stem).spec
        except SpecError:
            return True
        asked = (self.act_bits, spec.act.bits), (self.w_bits, spec.wgt.bits)
        return all(not some or one in some for some, one in asked)

    def takes(self, c: _Cached) -> bool:
        """Whether it is one, by its content; a file that cannot be read is listed."""
        return self.method is None or c.entry is None or c.entry.kernel.method == self.method


def _write_all(found: list[_Cached]) -> None:
    for isa in sorted({_isa(c) for c in found}):
        rows = [c for c in found if _isa(c) == isa]
        cpus = list(dict.fromkeys(cpu for c in rows if c.entry for cpu in c.entry.cost.cycles))
        output.write(output.fitting(partial(_table, rows, cpus), partial(_table, rows, [])), "")
    output.write(*(Text(line, "dim") for line in _NOTES if found), *(["no kernel is like that"] if not found else []))


def _summary(found: list[_Cached]) -> Table:
    """A row for each instruction set: how many kernels, how many of them the user's, and of which variants."""
    numbers = ("kernels", "yours")
    table = output.table("set", *numbers, "variants, beside the cheapest in operations", right=numbers, whole=["set"])
    for isa in sorted({_isa(c) for c in found}):
        rows = [c for c in found if _isa(c) == isa]
        yours = sum(c.origin == "user" for c in rows)
        table.add_row(isa, str(len(rows)), str(yours or "-"), ", ".join(sorted({c.variant for c in rows} - {""})))
    return table


def _read(path: Path, check: bool) -> _Cached:
    folder, place = kernels.place(path)
    variant = "/".join(place.parts[1:-1])
    origin = "user" if folder == paths.user_kernels() else "shipped"
    try:
        entry = kernels.load_entry(path).entry if check else kernels.read_entry(path)
        if entry.name != path.stem:
            raise SpecError(f"{path} holds {entry.name}; delete it or give it back its name")
    except BitsynthError as why:
        return _Cached(path, origin, variant, None, str(why))
    return _Cached(path, origin, variant, entry, "")


def _variant(c: _Cached) -> str:
    return c.variant


def _isa(c: _Cached) -> str:
    return kernels.place(c.path)[1].parts[0]


def _table(found: list[_Cached], cpus: list[str], gap: int) -> Table:
    numbers = ("ops", "bound", *cpus, "K max")
    table = output.table(
        "kernel", "method", "ops", "bound", "min", *cpus, "K max", "from", right=numbers, whole=["kernel"], gap=gap
    )
    for c in found:
        origin = f"{c.origin}, {c.variant}" if c.variant else c.origin
        if c.entry is None:
            table.add_row(
                Text(printable(c.path.stem, kept=""), "red"), *["-"] * (5 + len(cpus)), Text(f"{origin}, broken", "red")
            )
            continue
        cost = c.entry.cost
        table.add_row(
            c.entry.name,
            c.entry.kernel.method,
            f"{cost.ops_per_128_mac:.2f}",
            f"{cost.lower_bound:.3g}",
            "yes" if cost.minimal else "no",
            *(f"{cost.cycles[cpu]:.2f}" if cpu in cost.cycles else "-" for cpu in cpus),
            _rounded(c.entry.certificate.k_max),
            origin,
        )
    return table


def _rounded(n: int) -> str:
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if n >= size:
            return f"{n / size:.3g}{unit}"
    return str(n)


def _facts(c: _Cached) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": c.path.stem,
        "from": c.origin,
        "variant": c.variant,
        "path": str(c.path),
        "problem": c.problem or None,
    }
    if c.entry:
        kernel, cost = c.entry.kernel, c.entry.cost
        facts |= {
            "isa": kernel.isa,
            "act_bits": kernel.act_bits,
            "w_bits": kernel.w_bits,
            "method": kernel.method,
            "ops_per_128_mac": cost.ops_per_128_mac,
            "lower_bound": cost.lower_bound,
            "minimal": scope(load(kernel.isa), kernel.method, c.entry.options) if cost.minimal else None,
            "cycles": cost.cycles,
            "k_max": c.entry.certificate.k_max,
        }
    return facts

"""The setting of figures: machine, processor, load, compilers, versions, commit and command, and the kernels."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from bitsynth import paths
from bitsynth.errors import BitsynthError, BitsynthWarning, ToolError
from bitsynth.host.facts import here
from bitsynth.isa.load import load
from bitsynth.kernel.names import KernelName
from bitsynth.processes import tool
from bitsynth.store import files
from bitsynth.store.entry import Entry
from bitsynth.store.matmul import MATMUL

PACKAGES = ("bitsynth", "numpy")
CHANGED = "+changes"
"""Behind a commit whose files were changed when the figures were measured."""
_GENERATED = ("benchmarks/results", "docs", "README.md", "CHANGELOG.md")
"""Files that no figure depends on."""
_UNKNOWN = "unknown"
_COMMAND_VARIABLES = ("BITSYNTH_CC", "BITSYNTH_RUNNER")
"""Beginnings of variables that are part of a command."""


def setting(
    packages: Sequence[str] = PACKAGES, isas: Iterable[str] = (), measured_at: str | None = None
) -> dict[str, str]:
    """Return machine, processor, load, Python, versions of `packages`, compilers for `isas`, commit and command.

    The commit is `measured_at`, or the current one.
    """
    rows = {"machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs", "processor": here().title}
    if hasattr(os, "getloadavg"):
        rows |= {"load at the end": ", ".join(f"{x:.1f}" for x in os.getloadavg()) + " (1, 5, 15 minutes)"}
    if scheduling := _read_scheduling():
        rows["scheduling"] = scheduling
    compilers = {f"compiler ({isa})": _compiler(isa) for isa in isas} or {"compiler": "none is used"}
    versions = {"python": platform.python_version(), **{p: _version(p) for p in packages}}
    return {**rows, **versions, **compilers, "commit": measured_at or commit(), "command": command()}


def digests(
    isas: Iterable[str], widths: Collection[tuple[int, int]] = (), layers: bool | None = None
) -> dict[str, str]:
    """Return digests of the cached kernels of `isas`, by their place in the cache (`Kernel.digest`).

    If some `widths`, bits of activations and weights, are given, only those; only those for layers, or all
    others, if `layers` says. Facts that cannot be read are left out with a BitsynthWarning.
    """
    return {
        place: entry.kernel.digest
        for place, entry in _entries(set(isas), widths)
        if layers is None or layers == bool(entry.channels)
    }


def _entries(isas: Collection[str], widths: Collection[tuple[int, int]]) -> Iterator[tuple[str, Entry]]:
    for path in MATMUL.every():
        _, place = files.place(path)
        try:
            if place.parts[0] in isas and _is_of(path, widths):
                yield place.as_posix(), MATMUL.read(path)
        except BitsynthError as why:
            warnings.warn(f"left out: {why}", BitsynthWarning, stacklevel=3)


def commit() -> str:
    """Return the commit of the checkout that runs, marked if its files differ; "unknown" if git does not tell."""
    folder = paths.shipped_kernels().parent
    if not (folder / ".git").exists():
        return _UNKNOWN
    try:
        changed = _git(folder, "status", "--porcelain", "--", ".", *(f":!{name}" for name in _GENERATED))
        return _git(folder, "rev-parse", "--short=12", "HEAD") + (CHANGED if changed else "")
    except BitsynthError:
        return _UNKNOWN


@dataclass(frozen=True)
class Basis:
    """The basis of figures, to be made before they are measured: digests of kernels by place, and the commit."""

    kernels: dict[str, str] = field(default_factory=dict)
    commit: str = field(default_factory=commit)


def facts(basis: Basis, isas: Iterable[str] = (), packages: Sequence[str] = PACKAGES, **figures: Any) -> dict[str, Any]:
    """Return the facts of a result: setting, compilers for `isas`, digests of its kernels, and `figures`."""
    return {"setting": setting(packages, isas, basis.commit), "kernels": basis.kernels, **figures}


def command() -> str:
    """Return the command that runs, from the checkout's folder, with the variables that it reads."""
    script = Path(sys.argv[0])
    called = ["python", f"benchmarks/{script.name}"] if script.parent.name == "benchmarks" else ["bitsynth"]
    variables = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(_COMMAND_VARIABLES)]
    return shlex.join([*variables, *called, *sys.argv[1:]])


def _read_scheduling() -> str:
    """Return the scheduling of this process, as `chrt` or `nice` may have set it; empty if neither did."""
    if hasattr(os, "sched_getscheduler") and os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR):
        return f"real-time, priority {os.sched_getparam(0).sched_priority}"
    niceness = os.nice(0)
    return f"niceness {niceness}" if niceness < 0 else ""


def _is_of(path: Path, widths: Collection[tuple[int, int]]) -> bool:
    spec = KernelName.parse(path.stem).spec
    return not widths or (spec.act.bits, spec.wgt.bits) in widths


def _git(folder: Path, *words: str) -> str:
    return tool.run(["git", *words], folder, {}).strip()


def _compiler(isa: str) -> str:
    from bitsynth.toolchain.compiler import get_preferred

    try:
        return get_preferred(load(isa)).version
    except ToolError:
        return "none"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"

"""What figures depend on: machine, processor, load, compilers, versions, commit and command, and which kernels."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Collection, Iterable, Sequence
from importlib import metadata
from pathlib import Path

from bitsynth import cache, paths
from bitsynth.build import process
from bitsynth.device.facts import here
from bitsynth.errors import ToolError
from bitsynth.isa.load import load
from bitsynth.names import KernelName

CHANGED = "+changes"
"""Behind a commit whose files were changed when the figures were measured."""
_GENERATED = ("benchmarks/results", "README.md", "CHANGELOG.md")
"""What no figure depends on."""
_SAID = ("BITSYNTH_CC", "BITSYNTH_RUNNER")
"""Beginnings of variables that are part of a command."""


def setting(packages: Sequence[str] = ("bitsynth", "numpy"), isas: Iterable[str] = ()) -> dict[str, str]:
    """Machine, processor, load, Python, the versions of `packages`, compilers for `isas`, commit and command."""
    rows = {"machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs", "processor": processor()}
    if hasattr(os, "getloadavg"):
        rows |= {"load at the end": ", ".join(f"{x:.1f}" for x in os.getloadavg()) + " (1, 5, 15 minutes)"}
    compilers = {f"compiler ({isa})": _compiler(isa) for isa in isas} or {"compiler": "none is used"}
    versions = {"python": platform.python_version(), **{p: _version(p) for p in packages}}
    return {**rows, **versions, **compilers, "commit": commit(), "command": command()}


def digests(
    isas: Iterable[str], widths: Collection[tuple[int, int]] = (), layers: bool | None = None
) -> dict[str, str]:
    """Digests of the cached kernels of `isas`, by their place in the cache (`Kernel.digest`).

    Only those of `widths`, bits of activations and weights, where some are given; only those for layers, or all
    others, where `layers` says.
    """
    found = {}
    for isa in isas:
        for path in cache.every():
            folder = next(folder for folder in cache.folders() if path.is_relative_to(folder))
            place = path.relative_to(folder)
            if place.parts[0] == isa and (not widths or _bits(path) in widths):
                entry = cache.read_entry(path)
                if layers is None or layers == bool(entry.channels):
                    found[place.with_suffix("").as_posix()] = entry.kernel.digest
    return found


def processor() -> str:
    """The processor's kind, by which tuned schedules go too, and its name."""
    kind, name = here().kind, here().processor
    return kind if name in ("", kind) else f"{kind} ({name})"


def commit() -> str:
    """The commit of the checkout that runs, marked where its files differ; "unknown" in an installed package."""
    folder = paths.shipped_kernels().parent
    if not (folder / ".git").exists():
        return "unknown"
    changed = _git(folder, "status", "--porcelain", "--", ".", *(f":!{name}" for name in _GENERATED))
    return _git(folder, "rev-parse", "--short=12", "HEAD") + (CHANGED if changed else "")


def command() -> str:
    """The command that runs, from the checkout's folder, with the variables that it heeds."""
    script = Path(sys.argv[0])
    called = ["python", f"benchmarks/{script.name}"] if script.parent.name == "benchmarks" else ["bitsynth"]
    said = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(_SAID)]
    return shlex.join([*said, *called, *sys.argv[1:]])


def _bits(path: Path) -> tuple[int, int]:
    spec = KernelName.parse(path.stem).spec
    return spec.act.bits, spec.wgt.bits


def _git(folder: Path, *words: str) -> str:
    return process.run(["git", *words], folder, {}).strip()


def _compiler(isa: str) -> str:
    from bitsynth.build.toolchain import preferred

    try:
        return preferred(load(isa)).version
    except ToolError:
        return "none"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"

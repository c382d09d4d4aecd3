"""What figures depend on and kernels do not: machine, processor, load, versions."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path


def setting(packages: Sequence[str] = ("bitsynth", "numpy")) -> dict[str, str]:
    """Machine, processor, load, Python and the versions of `packages`."""
    rows = {"machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs", "processor": processor()}
    if hasattr(os, "getloadavg"):
        rows |= {"load at the end": ", ".join(f"{x:.1f}" for x in os.getloadavg()) + " (1, 5, 15 minutes)"}
    return {**rows, "python": platform.python_version(), **{p: _version(p) for p in packages}}


def processor() -> str:
    """The processor's name, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    fields = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    name = fields.get("model name") or fields.get("CPU part") or platform.processor() or "unknown"
    family = [f"{key} {fields[key]}" for key in ("cpu family", "model", "CPU implementer") if key in fields]
    return ", ".join([name, *family])


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"

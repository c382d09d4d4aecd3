"""What every benchmark prints: the setting it ran in, tables, and one clear line on failure."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

from bitsynth.build.toolchain import candidates
from bitsynth.errors import BitsynthError, ToolError

PACKAGES = ("bitsynth", "z3-solver", "numpy")


def setting(*arches: str) -> dict[str, str]:
    """Machine, processor, compilers for `arches`, versions and the command."""
    rows = {"machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs", "processor": processor()}
    if hasattr(os, "getloadavg"):
        rows |= {"load at the end": ", ".join(f"{x:.1f}" for x in os.getloadavg()) + " (1, 5, 15 minutes)"}
    rows |= {f"compiler ({a})": next((f"{c.name}: {c.version}" for c in candidates(a)), "none") for a in arches}
    rows |= {"python": platform.python_version()}
    rows |= {package: _version(package) for package in PACKAGES}
    script = Path(sys.argv[0])
    command = ["python", f"{script.parent.name}/{script.name}", *sys.argv[1:]]
    return {**rows, "command": shlex.join(command)}


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


def heading(rows: dict[str, str]) -> str:
    """The setting as aligned lines."""
    width = max(map(len, rows))
    return "\n".join(f"{key:{width}}  {value}" for key, value in rows.items())


def columns(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table: first column to the left, others to the right."""
    cells = [list(map(str, row)) for row in (titles, *rows)]
    widths = [max(len(row[c]) for row in cells) for c in range(len(titles))]
    return "\n".join(
        "  ".join(f"{cell:{'<' if c == 0 else '>'}{widths[c]}}" for c, cell in enumerate(row)).rstrip() for row in cells
    )


def markdown(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """The same table as Markdown."""
    lines = [titles, ["---"] + ["---:"] * (len(titles) - 1), *rows]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in lines)


def yes(met: bool) -> str:
    """How a verdict is printed."""
    return "yes" if met else "no"


def run(main: Callable[[], int]) -> None:
    """Exit with what `main` returns; an error a user can meet is one line and its exit code."""
    try:
        sys.exit(main())
    except BitsynthError as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        print(f"{Path(sys.argv[0]).name}: {absent(error)}", file=sys.stderr)
        sys.exit(ToolError.exit_code)


def absent(error: ModuleNotFoundError) -> str:
    """What to install for a package that is not there."""
    return f"the package {error.name} is not installed: pip install 'bitsynth[bench,emulator]'"

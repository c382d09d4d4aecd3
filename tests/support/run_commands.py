"""Commands that tests run, in a process of their own too."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bitsynth import paths

COMMAND = [sys.executable, "-m", "bitsynth.cli"]
WIDTHS = ["--act-bits", "1", "--w-bits", "1"]
SYNTH = ["synth", "--isa", "neon", *WIDTHS]
ONE_METHOD = [*SYNTH, "--method", "popcount"]


def shipped_file(isa: str = "neon", widths: str = "a1u_w1b") -> Path:
    """The file of a shipped kernel."""
    return next((paths.shipped_kernels() / isa).glob(f"bs_mm_{widths}_*.json"))


def shipped(isa: str = "neon", widths: str = "a2u_w1b") -> str:
    """The name of a shipped kernel."""
    return shipped_file(isa, widths).stem


def files(folder: Path) -> list[Path]:
    """All files but locks."""
    return [p for p in folder.rglob("*") if p.is_file() and p.suffix != ".lock"]


def strays(folder: Path) -> list[Path]:
    """Files that a write left unfinished."""
    return [p for p in files(folder) if p.name.startswith(".") or p.stat().st_size == 0]


def started(*argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """What the command gave, run as users run it."""
    return subprocess.run(
        [*COMMAND, *argv],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )


def terminal(
    *argv: str,
    columns: int = 80,
    env: Mapping[str, str] | None = None,
    before: Sequence[str] = ("-m", "bitsynth.cli"),
) -> tuple[str, int]:
    """What a terminal of `columns` columns sees of stdout and stderr, and the exit code."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    clean = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")}
    command = [sys.executable, *before, *argv]
    process = subprocess.Popen(command, stdout=slave, stderr=slave, env={**clean, "TERM": "xterm", **(env or {})})
    os.close(slave)
    seen = b""
    while True:
        try:
            if not (more := os.read(master, 65536)):
                break
        except OSError:
            break
        seen += more
    os.close(master)
    return seen.decode(), process.wait(timeout=60)

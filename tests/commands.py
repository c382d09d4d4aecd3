"""Commands that tests run, in a process of their own too."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from typing import Any

from bitsynth import paths

SYNTH = ["synth", "--isa", "neon", "--act-bits", "1", "--w-bits", "1"]


def shipped(isa: str = "neon", widths: str = "a2u_w1b") -> str:
    """The name of a shipped kernel."""
    return next((paths.shipped_kernels() / isa).glob(f"bs_mm_{widths}_*.json")).stem


def started(*argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """What the command gave, run as users run it."""
    return subprocess.run(
        [sys.executable, "-m", "bitsynth.cli", *argv],
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

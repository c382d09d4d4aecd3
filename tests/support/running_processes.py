"""Whether processes that tests know by number still run."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path


def alive(pid: int) -> bool:
    """Return whether the process runs; a zombie, whose parent has not asked for its exit code yet, does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        state, *_ = _stat(pid)
    except OSError:  # No /proc, or the process ended meanwhile.
        return not Path("/proc/self/stat").exists()
    return state != "Z"


def running_in(group: int) -> list[int]:
    """Return the processes of a group that run, zombies left out."""
    processes = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, its_group, *_ = _stat(int(folder.name))
            if int(its_group) == group and state != "Z":
                processes.append(int(folder.name))
    return processes


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third on: state, parent, group."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def gone(pid: int, seconds: float) -> bool:
    """Whether the process has ended, or does so within `seconds`."""
    end = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not alive(pid)

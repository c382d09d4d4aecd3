"""Whether processes that tests know by number still run."""

from __future__ import annotations

import os
import time


def alive(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def gone(pid: int, seconds: float) -> bool:
    """Whether the process has ended, or does so within `seconds`."""
    end = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not alive(pid)

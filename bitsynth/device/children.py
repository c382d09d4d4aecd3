"""Child processes that another thread may end."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from threading import Lock

from bitsynth.errors import ToolError


class Children:
    """Those that run now."""

    def __init__(self) -> None:
        self._lock, self._running, self._stopped = Lock(), set[subprocess.Popen[bytes]](), False

    def start(self, command: Sequence[str], stdin: int) -> subprocess.Popen[bytes]:
        """In a session of its own, so that an interrupt of the terminal's reaches us alone."""
        with self._lock:
            if self._stopped:
                raise ToolError(f"{command[0]} is not started: its work was stopped")
            child = subprocess.Popen(
                command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
            )
            self._running.add(child)
            return child

    def ended(self, child: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._running.discard(child)

    def stop(self) -> None:
        """Kill all; there will be no others."""
        with self._lock:
            self._stopped = True
            for child in self._running:
                child.kill()

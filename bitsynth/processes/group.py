"""Groups of child processes that another thread may end."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from bitsynth.errors import ToolError
from bitsynth.processes.child import Child


class ProcessGroup:
    """The child processes that run now."""

    def __init__(self) -> None:
        self._lock, self._running, self._stopped = Lock(), set[Child](), False

    def start(self, command: Sequence[str], stdin: int) -> Child:
        """Start `command` as a child of the group; ToolError once the group was stopped."""
        with self._lock:
            if self._stopped:
                raise ToolError(f"{command[0]} is not started: its work was stopped")
            child = Child(command, stdin=stdin)
            self._running.add(child)
            return child

    def ended(self, child: Child) -> None:
        """Forget a child that has ended."""
        with self._lock:
            self._running.discard(child)

    def stop(self) -> None:
        """Kill all; none can be started afterwards."""
        with self._lock:
            self._stopped = True
            for child in self._running:
                child.kill()

"""Worker processes that answer questions, a line each way."""

from __future__ import annotations

import io
import signal
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import cast

from bitsynth.processes.child import PIPE, Child

_MOST_BYTES = 1 << 22
"""The limit of a line, and of what is kept of the last words."""
_LINES = 4


class Worker:
    """A process, and the file of what it says beside its answers."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._log = tempfile.TemporaryFile()  # `close` closes it.  # noqa: SIM115
        try:
            self.child = Child(command, env=env, stdin=PIPE, stderr=self._log)
        except BaseException:
            self._log.close()
            raise
        self._answers = io.BufferedReader(cast(io.RawIOBase, self.child.stdout))

    def send(self, line: bytes) -> None:
        """Send a line; nothing happens if the worker is gone."""
        with suppress(BrokenPipeError):
            self.child.stdin.write(line + b"\n")

    def line(self) -> bytes:
        """Its answer with its line end; less if it is gone, or says too much."""
        return self._answers.readline(_MOST_BYTES)

    def ending(self) -> str:
        """The way it ended, and the last it said."""
        code = self.child.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"ended with {how}: {self._last_words()}"

    def _last_words(self) -> str:
        self._log.seek(max(0, self._log.seek(0, 2) - _MOST_BYTES))
        said = self._log.read().decode(errors="replace").strip()
        return " / ".join(said.splitlines()[-_LINES:]) or "it said nothing"

    def close(self) -> None:
        """Kill it."""
        self.child.close()
        self._log.close()

"""The process of a peer, seen from the benchmark: it runs while it is asked, and is stopped else.

A stopped process disturbs nobody: threads that spin while they wait for work do so only in their own bursts,
where it makes them fastest.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from bitsynth.errors import ToolError

WORKER = "bitsynth.bench.peers.worker"
_LINES = 4


@dataclass(frozen=True, eq=False)
class Process:
    """A worker, and the file of what it says beside its answers."""

    package: str
    child: subprocess.Popen[bytes]
    log: IO[str]

    def ask(self, question: Any) -> Any:
        """The answer to one question; ToolError with the last it said where the worker has ended."""
        assert self.child.stdin
        assert self.child.stdout
        self.child.send_signal(signal.SIGCONT)
        try:
            self.child.stdin.write(json.dumps(question).encode() + b"\n")
            line = self.child.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise ToolError(f"{self.package} ended with exit code {self.child.wait()}: {self._last_words()}")
        self.child.send_signal(signal.SIGSTOP)
        return json.loads(line)

    def _last_words(self) -> str:
        self.log.seek(0)
        return " / ".join(self.log.read().strip().splitlines()[-_LINES:]) or "it said nothing"


@contextmanager
def started(package: str, threads: int, env: Mapping[str, str]) -> Iterator[Process]:
    """The worker of `package`, with `env` in its environment; killed in the end."""
    command = [sys.executable, "-P", "-m", WORKER, package, str(threads)]
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log,
        subprocess.Popen(
            command,
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            bufsize=0,
        ) as child,
    ):
        try:
            yield Process(package, child, log)
        finally:
            child.kill()

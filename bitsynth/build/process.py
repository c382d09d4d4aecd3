"""Run a child process that never outlives us."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from bitsynth.errors import ToolError

_SECONDS = 600
_DEADLINE = ContextVar("_DEADLINE", default=float("inf"))


@contextmanager
def deadline(end: float) -> Iterator[None]:
    """Inside, no child of this thread's runs on after `end`, by `time.monotonic`."""
    before = _DEADLINE.set(min(end, _DEADLINE.get()))
    try:
        yield
    finally:
        _DEADLINE.reset(before)


def run(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> str:
    """The output of `command`; ToolError shows the command and its output if it fails.

    The child has its own process group, so that an interrupt kills all it started.
    """
    try:
        child = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "LC_ALL": "C", **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise ToolError(f"cannot start {shlex.join(command)}: {error.strerror or error}") from None
    seconds = max(0.0, min(_SECONDS, _DEADLINE.get() - time.monotonic()))
    with child:
        try:
            output = child.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            _kill(child)
            raise ToolError(f"{shlex.join(command)} did not end within {seconds:.0f} s") from None
        except BaseException:
            _kill(child)
            raise
    if child.returncode:
        raise ToolError(f"{shlex.join(command)} failed with exit code {child.returncode}:\n{output.strip()}")
    return output


def _kill(child: subprocess.Popen[str]) -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        child.kill()

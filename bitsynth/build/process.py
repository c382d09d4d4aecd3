"""Run a child process that never outlives us."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from bitsynth.errors import ToolError

_SECONDS = 600


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
    with child:
        try:
            output = child.communicate(timeout=_SECONDS)[0]
        except subprocess.TimeoutExpired:
            _kill(child)
            raise ToolError(f"{shlex.join(command)} did not end within {_SECONDS} s") from None
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

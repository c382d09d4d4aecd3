"""Runs tools: a command to its end, and several at a time, each waited for by a thread."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import Any

from bitsynth.errors import ToolError
from bitsynth.processes.child import MAX_BYTES, STDOUT, Child, TooLate, TooMuch

_SECONDS = 600
_DEADLINE = ContextVar("_DEADLINE", default=float("inf"))


@contextmanager
def deadline(end: float) -> Iterator[None]:
    """End every child of this thread's, in the `with` block, at `end` by `time.monotonic`."""
    before = _DEADLINE.set(min(end, _DEADLINE.get()))
    try:
        yield
    finally:
        _DEADLINE.reset(before)


def run(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> str:
    """Return the output of `command`; ToolError shows the command and its output if it fails."""
    shown, seconds = shlex.join(command), max(0.0, min(_SECONDS, _DEADLINE.get() - time.monotonic()))
    try:
        with Child(command, folder=folder, env={"LC_ALL": "C", **env}, stderr=STDOUT) as child:
            output = child.output(seconds)[0].decode(errors="replace")
    except OSError as error:
        raise ToolError(f"cannot start {shown}: {error.strerror or error}") from None
    except TooLate:
        raise ToolError(f"{shown} did not end within {seconds:.0f} s") from None
    except TooMuch:
        raise ToolError(f"{shown} wrote more than {MAX_BYTES:,} bytes and was ended") from None
    if child.returncode:
        raise ToolError(f"{shown} failed with exit code {child.returncode}:\n{output.strip()}")
    return output


Submit = Callable[..., "Future[Any]"]
"""Has a thread call a function with arguments, in the context of whoever asks."""


@contextmanager
def several_at_once(most: int) -> Iterator[Submit]:
    """Yield up to `most` threads for this block; it ends after the work that they have begun.

    Work that no thread has begun by then is done too, unless the block fails or is interrupted.
    """
    with ThreadPoolExecutor(max(1, most)) as pool:
        try:
            yield lambda work, *arguments: pool.submit(copy_context().run, work, *arguments)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise

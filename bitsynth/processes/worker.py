"""Worker processes that answer questions: one line to the worker, one line back."""

from __future__ import annotations

import io
import os
import selectors
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from itertools import islice
from typing import cast

from bitsynth.processes.child import PIPE, Child, TooLate

_MAX_BYTES = 1 << 22
"""The longest line of an answer, and the last lines of output that are kept."""
_LINES = 4


class WorkerEnded(Exception):
    """A worker ended where an answer was due: how, and its last words."""


def command_of(module: str, *arguments: str) -> list[str]:
    """Return the command of a worker that is a module of ours."""
    return [sys.executable, "-P", "-m", module, *arguments]


class Worker:
    """A process, and the file of what it prints besides its answers."""

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
        """Return the worker's answer with its line end; less if the worker is gone, or the answer is too long."""
        return self._answers.readline(_MAX_BYTES)

    def ask(self, question: bytes, seconds: float | None = None) -> bytes:
        """Return the answer to a line; WorkerEnded if there is none, TooLate after `seconds`, which kill the worker."""
        with nullcontext() if seconds is None else self.child.limit(seconds):
            self.send(question)
            line = self.line()
        if self.child.killed and not line.endswith(b"\n"):
            raise TooLate
        return self._whole(line)

    def answer(self) -> bytes:
        """Return the next of its answers; WorkerEnded if none comes."""
        return self._whole(self.line())

    def _whole(self, line: bytes) -> bytes:
        if line.endswith(b"\n"):
            return line
        if len(line) == _MAX_BYTES:
            self.child.kill()
        raise WorkerEnded(self.ending())

    def ending(self) -> str:
        """Describe how the worker ended, with its last lines."""
        code = self.child.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"ended with {how}: {self._last_words()}"

    def _last_words(self) -> str:
        self._log.seek(max(0, self._log.seek(0, 2) - _MAX_BYTES))
        output = self._log.read().decode(errors="replace").strip()
        return " / ".join(output.splitlines()[-_LINES:]) or "it printed nothing"

    def close(self) -> None:
        """Kill it."""
        self.child.close()
        self._log.close()


def answers(command: Sequence[str], questions: Sequence[bytes], workers: int) -> Iterator[bytes]:
    """Yield the answers of several workers that share the questions, as they come; WorkerEnded if one of them ends."""
    waiting = iter(questions)
    with ExitStack() as stack, selectors.DefaultSelector() as busy:
        for question in islice(waiting, workers):
            worker = stack.enter_context(closing(Worker(command)))
            busy.register(worker.child.stdout, selectors.EVENT_READ, worker)
            worker.send(question)
        while busy.get_map():
            for key, _ in busy.select():
                yield key.data.answer()
                if question := next(waiting, b""):
                    key.data.send(question)
                else:
                    busy.unregister(key.fileobj)


@contextmanager
def take_stdout() -> Iterator[Callable[[bytes], object]]:
    """Return a function that answers with a line, in a worker; anything else that is printed goes to stderr."""
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as out:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

        def answer(line: bytes) -> None:
            out.write(line + b"\n")
            out.flush()

        yield answer

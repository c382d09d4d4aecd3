"""The only module that starts processes. Children and their descendants are killed when this process exits."""

from __future__ import annotations

import errno
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Lock, Timer
from typing import IO, Self

from bitsynth.errors import ToolError

DEVNULL, PIPE, STDOUT = subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT
MAX_BYTES = 1 << 26
"""The limit of what a child may say, unless its user says otherwise."""
_SHELL = "/bin/sh"
_WATCHED = '((read -r _; kill -KILL 0) <"/dev/fd/$1" >/dev/null 2>&1 &); shift; exec "$@"'
"""A shell that becomes the command, having left another that kills their group when we hold its pipe no longer.

The kernel's own signal at a parent's death (PR_SET_PDEATHSIG) reaches one process and none that it started, comes
at the end of the thread that started it, and is Linux's.
"""


class TooLate(Exception):
    """A child did not end in time."""


class TooMuch(Exception):
    """A child printed more than it may."""


class Child:
    """A process in a session of its own, killed with all it started when its `with` block ends, or when we are gone.

    `command` is looked for on PATH; OSError if it cannot be started. Its output is not buffered here.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int = DEVNULL,
        stdout: int | IO[bytes] = PIPE,
        stderr: int | IO[bytes] = PIPE,
    ) -> None:
        _require(command[0])
        lifeline = _LIFELINE.reading()
        self._killing, self.killed = Lock(), False
        self._process = subprocess.Popen(
            [_SHELL, "-c", _WATCHED, _SHELL, str(lifeline), *command],
            cwd=folder,
            env={**os.environ, **(env or {})},
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            bufsize=0,
            pass_fds=(lifeline,),
            start_new_session=True,
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def poll(self) -> int | None:
        """Return the exit code, or minus the signal that ended the process; None if it has not ended."""
        return self._process.poll()

    def wait(self) -> int:
        """Return the exit code, or minus the signal that ended the process, once it has ended."""
        return self._process.wait()

    def send_signal(self, number: int) -> None:
        """Send it a signal, and nothing that it started."""
        self._process.send_signal(number)

    @property
    def returncode(self) -> int | None:
        """The exit code that the last `poll`, `wait` or `output` found."""
        return self._process.returncode

    @property
    def stdin(self) -> IO[bytes]:
        """The pipe of its input."""
        assert self._process.stdin
        return self._process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        """The pipe of its output."""
        assert self._process.stdout
        return self._process.stdout

    @property
    def stderr(self) -> IO[bytes]:
        """The pipe of its complaints."""
        assert self._process.stderr
        return self._process.stderr

    def output(self, seconds: float, most: int = MAX_BYTES) -> tuple[bytes, bytes]:
        """Return output and complaints until the process ends; TooLate after `seconds`, TooMuch after `most` bytes."""
        late, output = time.monotonic() + seconds, {"stdout": bytearray(), "stderr": bytearray()}
        with self._listening() as open_pipes:
            ended = False
            while open_pipes.get_map():
                ready = open_pipes.select(0 if ended else max(0.0, late - time.monotonic()))
                if ended and not ready:
                    break
                if not ended and time.monotonic() >= late:
                    raise TooLate
                for key, _ in ready:
                    if key.data is None:
                        ended = True
                        self.kill()  # What it started may hold the pipes.
                    if key.data and (data := os.read(key.fd, 1 << 16)):
                        output[key.data] += data
                    else:
                        open_pipes.unregister(key.fileobj)
                if sum(map(len, output.values())) > most:
                    raise TooMuch
        try:
            self._process.wait(max(0.0, late - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise TooLate from None
        return bytes(output["stdout"]), bytes(output["stderr"])

    @contextmanager
    def _listening(self) -> Iterator[selectors.BaseSelector]:
        """Yield a selector of the process's pipes, by their names, and of its end if the system can report that."""
        with ExitStack() as stack:
            selector = stack.enter_context(selectors.DefaultSelector())
            for name in ("stdout", "stderr"):
                if pipe := getattr(self._process, name):
                    selector.register(pipe, selectors.EVENT_READ, name)
            if hasattr(os, "pidfd_open") and self._process.returncode is None:
                with suppress(OSError):
                    end = os.pidfd_open(self.pid)
                    stack.callback(os.close, end)
                    selector.register(end, selectors.EVENT_READ)
            yield selector

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Kill it if the `with` block takes longer than `seconds`; it is `killed` then."""
        timer = Timer(seconds, self.kill)
        timer.daemon = True  # An interrupt may come before it can be cancelled, and must not wait for it.
        try:
            timer.start()
            yield
        finally:
            timer.cancel()

    def kill(self) -> None:
        """End it and all it started, from any thread."""
        with self._killing:
            if not self.killed:
                self.killed = True
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill it, and let go of its pipes."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe:
                pipe.close()
        self.wait()


def _require(program: str) -> None:
    """Raise OSError unless the program is found; the message of a shell would be less clear."""
    if shutil.which(program) is None:
        code = errno.EACCES if os.path.exists(program) else errno.ENOENT
        raise OSError(code, os.strerror(code), program)


class _Lifeline:
    """A pipe that nobody else writes to, so that its end is ours."""

    def __init__(self) -> None:
        self._ends: tuple[int, int] | None = None
        self._making = Lock()

    def reading(self) -> int:
        with self._making:
            self._ends = self._ends or os.pipe()
            return self._ends[0]

    def forget(self) -> None:
        """Let go of the pipe in a fork of ours, which has children of its own."""
        for end in self._ends or ():
            os.close(end)
        self._ends, self._making = None, Lock()


_LIFELINE = _Lifeline()
os.register_at_fork(after_in_child=_LIFELINE.forget)


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

    def forget(self, child: Child) -> None:
        """Forget a child that has ended."""
        with self._lock:
            self._running.discard(child)

    def stop(self) -> None:
        """Kill all; none can be started afterwards."""
        with self._lock:
            self._stopped = True
            for child in self._running:
                child.kill()

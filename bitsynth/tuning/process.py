"""A measurer in a process of its own, which may crash or hang: it is killed, and the next trial starts another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

import msgspec

from bitsynth.errors import Refuted
from bitsynth.layers.tuned import Problem
from bitsynth.schedule.layer import LayerSchedule
from bitsynth.tuning.measurer import Timing, TrialFailed
from bitsynth.tuning.worker import Answer, Question, Start

COMMAND = (sys.executable, "-P", "-m", "bitsynth.tuning.worker")
_LINES = 4


@contextmanager
def started(
    problem: Problem, default: LayerSchedule, timeout_s: float, command: Sequence[str] = COMMAND
) -> Iterator[Process]:
    """A measurer of `problem`, whose process is killed in the end."""
    process = Process(Start(problem, default), timeout_s, command)
    try:
        yield process
    finally:
        process.kill()


class Process:
    """Asks `command` for times, no longer than `timeout_s` at a time."""

    def __init__(self, start: Start, timeout_s: float, command: Sequence[str]) -> None:
        self.start, self.timeout_s, self.command = start, timeout_s, command
        self._worker: _Worker | None = None

    @property
    def longest_s(self) -> float:
        return self.timeout_s

    def measure(self, schedule: LayerSchedule, rounds: int) -> Timing:
        try:
            said = msgspec.json.decode(self._ask(Question(schedule, rounds)), type=Answer)
        except msgspec.DecodeError as error:
            self.kill()
            raise TrialFailed(f"its worker gave no answer: {error}") from None
        if said.refuted:
            raise Refuted(said.refuted)
        if said.failed:
            raise TrialFailed(said.failed)
        return Timing(said.nanoseconds, said.default_nanoseconds)

    def _ask(self, question: Question) -> bytes:
        """The line that answers; TrialFailed where the worker ends or takes too long, which ends it."""
        if self._worker is None:
            self._worker = _Worker(self.command)
            self._worker.tell(self.start)
        worker, late = self._worker, threading.Timer(self.timeout_s, self._worker.kill)
        late.start()
        try:
            worker.tell(question)
            if (line := worker.line()).endswith(b"\n"):
                return line
        finally:
            late.cancel()
        why = worker.ending() if not worker.killed else f"took longer than {self.timeout_s:g} s"
        self.kill()
        raise TrialFailed(why)

    def kill(self) -> None:
        """End the worker and what it started."""
        if self._worker:
            self._worker.close()
        self._worker = None


class _Worker:
    """A process and the file of what it says beside its answers."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start it in a group of its own: an interrupt is ours to handle."""
        self.killed = False
        with ExitStack() as stack:
            self._log = stack.enter_context(tempfile.TemporaryFile())
            self._child = stack.enter_context(
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._log,
                    bufsize=0,
                    start_new_session=True,
                )
            )
            self._open = stack.pop_all()

    def tell(self, what: Start | Question) -> None:
        assert self._child.stdin
        with suppress(BrokenPipeError):
            self._child.stdin.write(msgspec.json.encode(what) + b"\n")

    def line(self) -> bytes:
        """What it answers; nothing where it is gone."""
        assert self._child.stdout
        return self._child.stdout.readline()

    def ending(self) -> str:
        """How it ended, and the last it said."""
        code = self._child.wait()
        self._log.seek(0)
        said = " / ".join(self._log.read().decode(errors="replace").strip().splitlines()[-_LINES:])
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"its worker ended with {how}: {said or 'it said nothing'}"

    def kill(self) -> None:
        self.killed = True
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)

    def close(self) -> None:
        self.kill()
        self._open.close()

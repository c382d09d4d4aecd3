"""The process of a package baseline, seen from the benchmark: it runs while it is asked, and is stopped else.

A stopped process disturbs nobody: threads that spin while they wait for work do so only in their own turns,
where it makes them fastest.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from bitsynth.errors import ToolError
from bitsynth.processes.worker import Worker, WorkerEnded, command_of

WORKER = "bitsynth.bench.baselines.worker"


@dataclass(frozen=True, eq=False)
class BaselineProcess:
    """The worker of a package."""

    package: str
    worker: Worker

    def ask(self, question: Any) -> Any:
        """Return the answer to a question; ToolError with the last lines of its output if the worker has ended."""
        self.worker.child.send_signal(signal.SIGCONT)
        try:
            line = self.worker.ask(json.dumps(question).encode())
        except WorkerEnded as ended:
            raise ToolError(f"{self.package} {ended}") from None
        self.worker.child.send_signal(signal.SIGSTOP)
        return json.loads(line)


@contextmanager
def started(package: str, threads: int, env: Mapping[str, str]) -> Iterator[BaselineProcess]:
    """Yield the worker of `package`, with `env` in its environment; killed in the end."""
    with closing(Worker(command_of(WORKER, package, str(threads)), env)) as worker:
        yield BaselineProcess(package, worker)

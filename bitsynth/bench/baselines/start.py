"""Starts the baselines whose packages are installed, each in a process, with the reasons why others take no part.

A process runs while it answers a question, and is suspended (SIGSTOP) otherwise. So its threads, which may spin while
they wait for work, take no time from the subjects measured in between. Packages that would use instructions that a set
lacks are capped by environment variables, or left out (`isa_specs/<isa>/baselines/peers.toml`).
"""

from __future__ import annotations

import importlib.util
import json
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bitsynth import paths
from bitsynth.bench.call_times import TimedSubject
from bitsynth.errors import SpecError, ToolError
from bitsynth.processes.worker import Worker, WorkerEnded, command_of

WORKER = "bitsynth.bench.baselines.worker"
NEEDS = {
    "torch": ("torch",),
    "onnxruntime": ("onnxruntime", "onnx"),
    "openvino": ("openvino",),
    "ncnn": ("ncnn",),
}


class Cap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The environment that caps a package, or the reason why it is `left_out`."""

    env: dict[str, str] = {}
    left_out: str = ""


def caps(isa: str) -> dict[str, Cap]:
    """Return the cap of every package that the set names; others run as they are. SpecError if the file is wrong."""
    file = paths.isa_folder(isa) / "baselines" / "peers.toml"
    if not file.is_file():
        return {}
    try:
        return msgspec.toml.decode(file.read_bytes(), type=dict[str, Cap])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{file}: {error}") from None


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
def start_worker(package: str, threads: int, env: Mapping[str, str]) -> Iterator[BaselineProcess]:
    """Yield the worker of `package`, with `env` in its environment; killed in the end."""
    with closing(Worker(command_of(WORKER, package, str(threads)), env)) as worker:
        yield BaselineProcess(package, worker)


@dataclass(frozen=True, eq=False)
class PackageBaseline(TimedSubject):
    """One variant of a package, such as `torch int8_onednn`."""

    variant: str
    process: BaselineProcess

    def time(self, layer: str, repeats: int) -> list[int]:
        """Return nanoseconds of every one of `repeats` calls of `layer`, in the package's process."""
        times: list[int] = self.process.ask({"variant": self.variant, "layer": layer, "repeats": repeats})
        return times


@dataclass(frozen=True, eq=False)
class PackageBaselines:
    """The baselines that run, the versions that their packages report, and the reasons why the others do not run."""

    baselines: list[PackageBaseline] = field(default_factory=list)
    about: dict[str, Mapping[str, str]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def require_known(packages: Sequence[str]) -> None:
    """Raise SpecError for a package that is not a baseline."""
    if unknown := [p for p in packages if p not in NEEDS]:
        raise SpecError(f"--baseline: unknown {unknown[0]!r}; known: {', '.join(NEEDS)}")


def start(
    stack: ExitStack,
    packages: Sequence[str],
    isa: str,
    threads: int,
    layers: Sequence[str],
    progress: Callable[[str], object],
) -> PackageBaselines:
    """Start what `packages` have for `isa`, every one of `layers` checked; they end with `stack`."""
    require_known(packages)
    baselines, known = PackageBaselines(), caps(isa)
    for package in packages:
        cap = known.get(package, Cap())
        if why := cap.left_out or _missing(package):
            baselines.left_out[package] = why
            continue
        progress(f"preparing {package}")
        try:
            _add(baselines, stack.enter_context(start_worker(package, threads, cap.env)), cap, layers)
        except ToolError as error:
            baselines.left_out[package] = str(error)
    return baselines


def _add(baselines: PackageBaselines, process: BaselineProcess, cap: Cap, layers: Sequence[str]) -> None:
    answer, package = process.ask(list(layers)), process.package
    baselines.about[package] = {**answer["about"], **cap.env}
    baselines.baselines.extend(
        PackageBaseline(f"{package} {v}", kind, v, process) for v, kind in answer["variants"].items()
    )
    baselines.left_out.update({f"{package} {v}": why for v, why in answer["problems"].items()})


def _missing(package: str) -> str:
    missing = [name for name in NEEDS[package] if importlib.util.find_spec(name) is None]
    return f"{' and '.join(missing)} not installed: pip install 'bitsynth[peers]'" if missing else ""

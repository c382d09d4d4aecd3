"""A board reached over ssh: its facts, and times of layers there.

Programs are compiled here and copied into a folder of their own, which is removed in the end; the board needs an
ssh server, a POSIX shell and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from numpy.typing import NDArray

from bitsynth.device import job, measured, onnx_baseline
from bitsynth.device.job import Sampling, Work
from bitsynth.device.measured import LayerTimes, Measured, NetworkAnswer
from bitsynth.device.program import (
    NETWORK_SAMPLE_NS,
    Program,
    Target,
    compile_program,
    glue_program,
    glue_target,
    network_program,
    network_target,
    pack_inputs,
)
from bitsynth.device.ssh import ANSWER_SECONDS, MAX_BYTES, CommandResult, Session, Ssh, TimedOut
from bitsynth.errors import SpecError, ToolError
from bitsynth.graph.types import Tensor
from bitsynth.host.facts import SCRIPT, Facts
from bitsynth.host.placement import best
from bitsynth.isa import architecture
from bitsynth.isa.load import Requirements, load, names
from bitsynth.layers import Conv2d
from bitsynth.layers.epilogues import gives_codes
from bitsynth.layers.glue import Glue
from bitsynth.network.run import Network
from bitsynth.spec.options import MAX_THREADS

NamedLayers = Sequence[tuple[str, Conv2d, NDArray[Any]]]
_RUNNER, _JOB = "runner", "job"
_SAMPLE_BYTES = 64
"""Bytes of the runner's answer for a sample: the times of a layer and of the float convolution timed with it."""


class RunFailed(ToolError):
    """A program did not end well; its board may be fine."""


class Device:
    """A board `host`, [user@]name or an entry of the user's ssh configuration; use it in a `with` block.

    `emulator` is a command there that runs programs for another processor: results are checked then, and no times
    are given. `seconds` is how long it may take to copy a program there and run it.
    """

    def __init__(self, host: str, *, emulator: str = "", seconds: float = 600) -> None:
        self.host, self.emulator, self.seconds = host, emulator, seconds
        self._session = Session(Ssh(host))
        self._put: Path | None = None

    def __enter__(self) -> Self:
        self._session.__enter__()
        self._put = None
        return self

    def __exit__(self, *reason: object) -> None:
        self._session.__exit__(*reason)

    def stop(self) -> None:
        """End the program that runs there, from another thread; nothing can be run afterwards."""
        self._session.ssh.stop()

    def facts(self) -> Facts:
        """Return the facts that the board reported when it was first reached."""
        return self._facts

    def facts_now(self) -> Facts:
        """Return the facts it tells now; ToolError if it tells none."""
        return Facts.parse(self._session.run(SCRIPT, ANSWER_SECONDS).output)

    @property
    def emulated_by(self) -> str:
        """The emulator that runs programs there instead of its processor; empty if that does."""
        return self.emulator or self._facts.emulator

    @cached_property
    def _facts(self) -> Facts:
        return Facts.parse(self._session.facts)

    def isas(self) -> list[str]:
        """Return instruction sets whose base the board has."""
        tables = [load(name).table for name in names()]
        facts = self._facts
        return [t.name for t in tables if facts.runs(t.arch) and not facts.lacking(t.arch, t.wanted_features)]

    def cpu(self, isa: str) -> str:
        """Return the name of the board's processor in the instruction set; "" if the set does not name it."""
        return self._facts.cpu(load(isa).table)

    def measure(
        self, layers: NamedLayers, *, threads: int = 1, repeats: int = 31, onnxruntime: bool = False
    ) -> Measured:
        """Check and time (name, layer, codes for `Conv2d.run`) on the board.

        `repeats` calls of each are timed on `threads` threads; with `onnxruntime` they alternate with ONNX Runtime's.
        Refuted if a result is wrong, ToolError if the board cannot be reached or run on.
        """
        _check(layers, threads, repeats)
        groups = _group_by_target(layers)
        for target in groups:
            self.require(target.isa, target.needs)
        emulator, sampling = self.emulated_by, Sampling(repeats)
        times = {t.name: t for some in groups.values() for t in self._measure(some, threads, sampling)}
        left_out: dict[str, str] = {}
        if onnxruntime:
            models = {} if emulator else {name: onnx_baseline.float_model(x, codes) for name, x, codes in layers}
            baseline_ns, left_out = self.time_onnxruntime(models, threads, repeats)
            times = {name: replace(t, onnxruntime_ns=baseline_ns.get(name, ())) for name, t in times.items()}
        in_order = tuple(times[name] for name, _, _ in layers)
        return Measured(in_order, threads, self._facts, self.facts_now(), emulator, left_out)

    def run_network(
        self, net: Network, inputs: Mapping[str, Tensor] | None = None, *, repeats: int = 31
    ) -> NetworkAnswer:
        """Run a network's self-test on the board, and time it, if there are `inputs`, on these and on its threads.

        Refuted if the self-test is wrong there, ToolError if the board cannot be reached or run on.
        """
        target, repeats = network_target(net), 0 if inputs is None or self.emulated_by else repeats
        self.require(target.isa, target.needs)
        end, parts = time.monotonic() + self.seconds, repeats and len(net.program.steps) + 1
        given, wanted = pack_inputs(net, inputs), f"{net.program.threads} {repeats} {NETWORK_SAMPLE_NS}"
        output = self._run_and_read(network_program(net), target, given, wanted, repeats * parts, end)
        whole, *steps = measured.read_network(output, parts, self.host) or [()]
        return NetworkAnswer(whole, tuple(steps), self._facts, self.facts_now(), self.emulated_by)

    def run_glue(self, layer: Glue) -> str:
        """Return where the self-test of a glue layer ran and passed: the board, or an emulator there.

        Refuted if it is wrong there, ToolError if the board cannot be reached or run on.
        """
        target = glue_target(layer)
        self.require(target.isa, target.needs)
        output = self._run_and_read(glue_program(layer), target, b"", "", 0, time.monotonic() + self.seconds)
        measured.after_selftest(output, "the layer", self.host)
        return self.emulated_by or self._facts.title

    def time_onnxruntime(
        self, models: Mapping[str, bytes], threads: int, repeats: int
    ) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        """Return nanoseconds of calls of ONNX files by ONNX Runtime there, by name; and why others have none."""
        if self.emulated_by:
            return {}, {onnx_baseline.NAME: "an emulator tells no times"}
        return onnx_baseline.measure(self._session, models, threads, repeats, self.seconds)

    def best_isa(self) -> str:
        """Return the best of its instruction sets, of its system's words; ToolError if it has none."""
        sets = self.isas()
        own = [name for name in sets if architecture.find_architecture(load(name).table.arch).bits == self._facts.bits]
        if sets:
            return best(own or sets)
        raise ToolError(f"{self.host} is {self._facts.machine}, which runs none of {', '.join(names())}")

    def require(self, isa: str, needs: Requirements) -> None:
        """Raise ToolError unless the board runs code for `isa` that needs so much."""
        facts, arch = self._facts, load(isa).table.arch
        if self.emulator:
            return
        if not facts.runs(arch):
            fitting = ", ".join(self.isas()) or "none that bitsynth knows"
            raise ToolError(
                f"{self.host} is {facts.machine}, {facts.bits}-bit: it does not run {isa} code, which is for "
                f"{arch}; its instruction sets: {fitting}"
            )
        if absent := facts.lacking(arch, needs.host):
            raise ToolError(f"{self.host}: {isa} code needs a processor with {', '.join(absent)}; it lacks it")

    def _measure(self, layers: NamedLayers, threads: int, sampling: Sampling) -> list[LayerTimes]:
        work = [Work.of(*x) for x in layers]
        program = compile_program(layer for _, layer, _ in layers)
        return self.run(program, work, threads, sampling, time.monotonic() + self.seconds)

    def run(
        self, program: Program, work: Sequence[Work], threads: int, sampling: Sampling, end: float
    ) -> list[LayerTimes]:
        """Check `work`, and time it unless an emulator runs it, with a program that has its kernels.

        Refuted, RunFailed, TimedOut if it lasts until `end`, by `time.monotonic`, and ToolError if it is
        the board's fault.
        """
        sampling = replace(sampling, repeats=0) if self.emulated_by else sampling
        given = job.pack(work, program, threads, sampling)
        output = self._run_and_read(program.path, program.target, given, "", sampling.repeats * len(work), end)
        return measured.read_layers(output, tuple(w.name for w in work), self.host)

    def _run_and_read(
        self, program: Path, target: Target, given: bytes, arguments: str, samples: int, end: float
    ) -> str:
        """Run a program on the file `given` and return its output, in which `samples` samples are expected."""
        if self._put != program:
            self._put = None  # A copy that fails here may yet succeed there.
            self._session.put(_RUNNER, program.read_bytes(), self._get_rest(end))
            self._put = program
        self._session.put(_JOB, given, self._get_rest(end))
        most = MAX_BYTES + _SAMPLE_BYTES * samples
        done = self._session.run(f"{self.emulator} ./{_RUNNER} {_JOB} {arguments}", self._get_rest(end), most)
        self._judge(done, target)
        return done.output

    def _get_rest(self, end: float) -> float:
        """Return the seconds until `end`; TimedOut if there are none."""
        if (seconds := end - time.monotonic()) <= 0:
            raise TimedOut(f"{self.host}: no time is left to run anything there")
        return seconds

    def _judge(self, done: CommandResult, target: Target) -> None:
        """Raise RunFailed unless the runner ended well, ToolError if the board is at fault."""
        if done.killed_by:
            why = ", perhaps for want of memory" if done.killed_by == "SIGKILL" else ""
            raise RunFailed(f"{self.host}: the runner was killed by {done.killed_by}{why}")
        if done.code == job.NO_THREADS:
            raise ToolError(f"{self.host}: {done.errors}")
        if not done.output.startswith("{"):
            output = done.errors or done.output.strip() or f"exit code {done.code}"
            raise ToolError(f"{self.host}: it cannot run programs for {target.isa} ({target.arch}): {output}")
        if done.code:
            raise RunFailed(f"{self.host}: the runner failed with exit code {done.code}: {done.errors}")


def _group_by_target(layers: NamedLayers) -> dict[Target, list[tuple[str, Conv2d, NDArray[Any]]]]:
    """Return the layers by the requirements for which their kernels are compiled."""
    groups: dict[Target, list[tuple[str, Conv2d, NDArray[Any]]]] = {}
    for layer in layers:
        groups.setdefault(Target.of(layer[1].kernel), []).append(layer)
    return groups


def _check(layers: NamedLayers, threads: int, repeats: int) -> None:
    """Raise SpecError if there is nothing to measure, or something that cannot be."""
    given = [name for name, _, _ in layers]
    if not given or len(set(given)) < len(given):
        raise SpecError(f"want layers with names of their own, not {given}")
    for what, value, most in (("threads", threads, MAX_THREADS), ("repeats", repeats, 10**6)):
        if type(value) is not int or not 1 <= value <= most:
            raise SpecError(f"{what} must be a whole number from 1 to {most}, not {value!r}")
    for name, layer, _ in layers:
        if layer.epilogue is not None and not gives_codes(layer.epilogue):
            raise SpecError(f"{name} gives floats, which differ in their last bit from board to board: leave out Scale")

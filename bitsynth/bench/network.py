"""Whole networks compared with ONNX Runtime: on the same file, on its twin in floats and on its twin in int8.

On a board the network passes its self-test, then it is timed, each step is, and ONNX Runtime if it is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.bench import network_peers
from bitsynth.bench.call_times import first_call, sample_calls
from bitsynth.bench.phase_times import LayerParts, parts_of
from bitsynth.bench.statistics import Summary
from bitsynth.errors import SpecError, ToolError
from bitsynth.graph.operators import PRODUCTS
from bitsynth.network.check import draw
from bitsynth.network.report import NetworkReport, StepReport
from bitsynth.network.run import Network
from bitsynth.progress import Progress

if TYPE_CHECKING:
    from bitsynth.device import Device
    from bitsynth.device.measured import NetworkAnswer

MINE = "bitsynth"
_SAMPLE_NS = 3_000_000
"""Nanoseconds of a sample, so long that the resolution of the clock does not matter."""
_LONG_NS = 1_000_000_000
"""Calls that take longer are measured once."""
_WARM = 3
PARTS = ("layer", "pack", "product", "epilogue", "glue", "plain")
"""Parts of a network's time: layers whose own parts are unknown, the parts of others, glue, and plain C."""


@dataclass(frozen=True)
class Peer:
    """A contender, its time for a call, and that time relative to bitsynth's.

    Args:
        name: bitsynth, or the runtime and its file.
        nanoseconds: The time of a call.
        times: The contender's time divided by bitsynth's, over the rounds; 1 for bitsynth.
        rounds: How often it was measured: once if a call takes longer than a second.
    """

    name: str
    nanoseconds: Summary
    times: Summary
    rounds: int


@dataclass(frozen=True)
class StepTime:
    """The time of one step, measured alone on the results of the steps before it.

    Args:
        step: The step.
        nanoseconds: The time of a run.
        share: Its share of the time of all steps.
        parts: The shares of packing, products and epilogue of a layer, if they could be measured.
    """

    step: StepReport
    nanoseconds: float
    share: float
    parts: LayerParts | None = None

    def spends(self, part: str) -> float:
        """Return the share of the time of all steps that a part of `PARTS` takes in this step."""
        if self.step.kind == "layer" and self.parts:
            return self.share * getattr(self.parts, part, 0.0)
        products = self.step.kind == "plain" and not {*self.step.method.split(", ")}.isdisjoint(PRODUCTS)
        return self.share * (part == ("product" if products else self.step.kind))


@dataclass(frozen=True)
class NetworkTimes:
    """The times of a network.

    Args:
        network: The compiled network.
        threads: Threads of every contender.
        peers: Contenders, bitsynth first.
        steps: Times of its steps, in order.
        left_out: Peers that could not run, and why.
        float_bytes: Weights of the network in float32.
        board: The board that measured, before and after; empty if this machine did.
        others: The settings that other packages' times depend on, as `network_peers.settings` returns them.
    """

    network: NetworkReport
    threads: int
    peers: tuple[Peer, ...]
    steps: tuple[StepTime, ...]
    left_out: Mapping[str, str]
    float_bytes: int
    board: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)

    @property
    def shares(self) -> dict[str, float]:
        """Return the share of the time of all steps that each of `PARTS` takes."""
        return {part: sum(s.spends(part) for s in self.steps) for part in PARTS}


def measure(model: Path, net: Network, rounds: int, progress: Progress, *, peers: bool = True) -> NetworkTimes:
    """Measure a compiled network and its peers alternately, round by round.

    One thread is measured in CPU time, several in wall time. Inputs are random with a fixed seed. A contender whose
    calls take more than a second is measured once. SpecError for no rounds.
    """
    if rounds < 1:
        raise SpecError(f"--rounds must be at least 1, not {rounds}")
    threads = net.program.threads
    inputs = draw(net.graph, 1)[0]
    progress("compiling")
    calls: dict[str, Callable[[], object]] = {MINE: net.bind(inputs)[0]}
    left_out: dict[str, str] = {}
    if peers:
        calls |= network_peers.bind_peers(model, net, inputs, left_out, progress)
    times = alternate(calls, rounds, threads, progress)
    progress("measuring steps")
    report = net.report()
    return NetworkTimes(
        report,
        threads,
        tuple(peer(name, times) for name in calls),
        _steps(net, report.steps, inputs, threads, left_out),
        left_out,
        float_bytes(net),
        others=network_peers.settings(calls),
    )


def measure_on_board(
    board: Device, model: Path, net: Network, rounds: int, *, peers: bool
) -> tuple[NetworkAnswer, NetworkTimes | None]:
    """Return the board's answer, and its times; None if an emulator ran it, whose times mean nothing."""
    inputs = draw(net.graph, 1)[0]
    answer = board.run_network(net, inputs, repeats=rounds)
    if answer.emulator:
        return answer, None
    times: dict[str, tuple[float, ...]] = {MINE: answer.ns}
    left_out: dict[str, str] = {}
    if peers:
        models = network_peers.models(model, net, inputs, left_out)
        files = {f"{network_peers.ORT}, {what}": file.SerializeToString() for what, file in models}
        baseline_times, missing = board.time_onnxruntime(files, net.program.threads, rounds)
        times, left_out = times | baseline_times, left_out | missing
    report, fastest = net.report(), [min(samples) for samples in answer.steps]
    total = sum(fastest) or 1.0
    steps = tuple(StepTime(s, t, t / total) for s, t in zip(report.steps, fastest, strict=True))
    shown = tuple(peer(name, times) for name in times)
    facts = {"before": str(answer.before), "after": str(answer.after)}
    return answer, NetworkTimes(report, net.program.threads, shown, steps, left_out, float_bytes(net), facts)


def float_bytes(net: Network) -> int:
    """Return the bytes that the weights of products would take in float32."""
    graph = net.graph
    names = {n for node in graph.nodes if node.op in PRODUCTS for n in node.inputs if n in graph.constants}
    return sum(4 * math.prod(graph.edges[n].shape) for n in names)


def alternate(
    calls: Mapping[str, Callable[[], object]], rounds: int, threads: int, progress: Progress
) -> dict[str, list[float]]:
    """Return nanoseconds of a call of each contender by round; long calls are measured once."""
    repeated: dict[str, tuple[Callable[[], object], int]] = {}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for name, call in calls.items():
        progress(f"measuring {name}")
        took = first_call(call, threads)
        if took > _LONG_NS:
            times[name].append(took)
        else:
            repeated[name] = _long(call, threads)
    for k in range(rounds):
        for name, (call, count) in repeated.items():
            times[name].append(min(sample_calls(call, _WARM, threads)) / count)
        progress("measuring, rounds", k + 1, rounds)
    return times


def _long(call: Callable[[], object], threads: int) -> tuple[Callable[[], object], int]:
    """Return the call, repeated often enough for a sample, and how often that is."""
    count = _often(call, threads)

    def repeat() -> None:
        for _ in range(count):
            call()

    return repeat, count


def _often(call: Callable[[], object], threads: int) -> int:
    """Return how many calls take as long as a sample should."""
    return max(1, int(_SAMPLE_NS // max(1, min(sample_calls(call, _WARM, threads)))))


def peer(name: str, times: Mapping[str, Sequence[float]]) -> Peer:
    """Return the contender `name` of nanoseconds by name and round."""
    mine, its = np.array(times[MINE]), np.array(times[name])
    ours = mine if len(mine) == len(its) else np.median(mine)
    return Peer(name, Summary.of(its), Summary.of(its / ours), len(its))


def _steps(
    net: Network,
    steps: Sequence[StepReport],
    inputs: Mapping[str, NDArray[Any]],
    threads: int,
    left_out: dict[str, str],
) -> tuple[StepTime, ...]:
    """Measure each step alone; if parts of layers cannot be measured, `left_out` gets the reason."""
    net(dict(inputs))
    shortest = []
    for k in range(len(steps)):
        once = net.bind(inputs, steps=(k, k + 1))[0]
        count = _often(once, threads)
        many = net.bind(inputs, steps=(k, k + 1), times=count)[0]
        shortest.append(min(sample_calls(many, _WARM, threads)) / count)
    total, parts = sum(shortest) or 1.0, _parts(net, inputs, left_out)
    return tuple(StepTime(s, t, t / total, parts.get(k)) for k, (s, t) in enumerate(zip(steps, shortest, strict=True)))


def _parts(net: Network, inputs: Mapping[str, NDArray[Any]], left_out: dict[str, str]) -> Mapping[int, LayerParts]:
    try:
        return parts_of(net, inputs)
    except ToolError as why:
        left_out["parts of layers"] = str(why).strip().split("\n")[0][:200]
        return {}

"""A network on a board: its self-test, and times of the whole, of each step, and of ONNX Runtime if it is there."""

from __future__ import annotations

from pathlib import Path

from bitsynth.bench import network_peers
from bitsynth.bench.network import MINE, NetworkTimes, StepTime, float_bytes, peer
from bitsynth.device import Device
from bitsynth.device.measured import NetworkAnswer
from bitsynth.network.check import drawn
from bitsynth.network.run import Network


def measure(
    board: Device, model: Path, net: Network, rounds: int, *, peers: bool
) -> tuple[NetworkAnswer, NetworkTimes | None]:
    """Return the board's answer, and its times; None if an emulator ran it, whose times mean nothing."""
    inputs = drawn(net.graph, 1)[0]
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

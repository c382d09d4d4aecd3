"""Parses the answers of a board: verdicts of self-tests, and times of layers and networks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bitsynth.errors import Refuted, ToolError
from bitsynth.host.facts import Facts


@dataclass(frozen=True)
class LayerTimes:
    """Nanoseconds of a call, a sample each, packing included; none if an emulator ran them.

    `fp32_ns` are of bitsynth's own float convolution, called in turn with the layer; `onnxruntime_ns` of ONNX
    Runtime, measured afterwards.
    """

    name: str
    ns: tuple[float, ...]
    fp32_ns: tuple[float, ...] = ()
    onnxruntime_ns: tuple[float, ...] = ()


@dataclass(frozen=True)
class Measured:
    """Layers in the order they were given, every result checked on the board, and the board before and after.

    `emulator` says what ran them instead of a board's processor, and is empty if a board did; `left_out` why a
    baseline is missing.
    """

    layers: tuple[LayerTimes, ...]
    threads: int
    before: Facts
    after: Facts
    emulator: str
    left_out: Mapping[str, str]


@dataclass(frozen=True)
class NetworkAnswer:
    """A network whose self-test was right on a board, and the board before and after.

    Args:
        ns: Nanoseconds of a call of the whole network, a sample each; none if an emulator ran it.
        steps: Nanoseconds of each step, a sample each.
        before: The board, and
        after: its facts after the last sample.
        emulator: The emulator that ran the network instead of the board's processor, or empty.
    """

    ns: tuple[float, ...]
    steps: tuple[tuple[float, ...], ...]
    before: Facts
    after: Facts
    emulator: str


def read_layers(output: str, names: tuple[str, ...], host: str) -> list[LayerTimes]:
    """Return the times in the lines of a runner that ended well; Refuted if a result was wrong."""
    lines = parse(output, host)[1:]
    if [line.get("layer") for line in lines] != list(range(len(names))):
        raise ToolError(f"{host}: the runner answered for {len(lines)} of {len(names)} layers")
    return [_layer(name, line, host) for name, line in zip(names, lines, strict=True)]


def read_network(output: str, parts: int, host: str) -> list[tuple[float, ...]]:
    """Return the samples of `parts`, the whole and each step; Refuted if the self-test failed."""
    answers = after_selftest(output, "the network", host)
    if len(answers) != parts:
        raise ToolError(f"{host}: the runner answered for {len(answers)} of {parts} parts")
    return [tuple(answer["ns"]) for answer in answers]


def after_selftest(output: str, what: str, host: str) -> list[dict[str, Any]]:
    """Return the objects that follow the verdict on `what`.

    Refuted if its self-test was wrong, ToolError if there is none.
    """
    lines = output.splitlines()
    _, *answers = parse("\n".join(line for line in lines if line.startswith("{")), host)
    if not answers:
        raise ToolError(f"{host}: the self-test of {what} printed nothing")
    if not answers[0]["right"]:
        why = next((line for line in lines if line and not line.startswith("{")), "a wrong result, or no memory")
        raise Refuted(f"the self-test of {what} is wrong on {host}: {why}")
    return answers[1:]


def parse(output: str, host: str) -> list[dict[str, Any]]:
    """Return the objects of lines of JSON; ToolError if one is not JSON."""
    try:
        return [json.loads(line) for line in output.splitlines()]
    except ValueError:
        raise ToolError(f"{host}: the runner's answer was cut short: {output[-80:]!r}") from None


def _layer(name: str, line: Mapping[str, Any], host: str) -> LayerTimes:
    if not line["right"]:
        raise Refuted(f"{name} gives other results on {host} than here")
    if not line.get("fp32_right", True):
        raise Refuted(f"the float convolution of {name} is wrong on {host}")
    return LayerTimes(name, tuple(line.get("ns", ())), tuple(line.get("fp32_ns", ())))

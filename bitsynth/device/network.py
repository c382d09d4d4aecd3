"""Builds a network for a board: its emitted library, its self-test and a timer, as one program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bitsynth import toolchain
from bitsynth.device.measured import after_selftest
from bitsynth.device.program import Target
from bitsynth.emit.render import render
from bitsynth.errors import ToolError
from bitsynth.graph.types import Tensor
from bitsynth.host.facts import Facts
from bitsynth.isa.load import load
from bitsynth.network.library import NetworkText
from bitsynth.network.run import Network

_NAME = "network"
_FLAGS = ("-O3", "-static", "-pthread", "-DBITSYNTH_NO_MAIN")
SAMPLE_NS = 3_000_000
"""Of a sample."""


@dataclass(frozen=True)
class NetworkAnswer:
    """A network whose self-test was right on a board, and the board before and after.

    Args:
        ns: Nanoseconds of a call of the whole network, a sample each; none if an emulator ran it.
        steps: Likewise of each step.
        before: The board, and
        after: what it tells after the last sample.
        emulator: What ran the network instead of the board's processor, or empty.
    """

    ns: tuple[float, ...]
    steps: tuple[tuple[float, ...], ...]
    before: Facts
    after: Facts
    emulator: str


def target_of(net: Network) -> Target:
    """Return the target that the program of a network is compiled for."""
    return Target(net.program.isa, NetworkText(_NAME, net.program, net.plan).needs)


def network_program(net: Network) -> Path:
    """Return the program of a network, compiled here."""
    text = NetworkText(_NAME, net.program, net.plan)
    files = {name: c for name, c in text.files().items() if name.endswith((".c", ".h")) and name != "main.c"}
    files["bs_board.c"] = render("board_network.c.j2", text.values)
    isa = load(net.program.isa)
    return toolchain.compile_for(isa, files, needs=text.needs, flags=_FLAGS, shared=False, cached=files)


def packed_inputs(net: Network, inputs: Mapping[str, Tensor] | None) -> bytes:
    """Return the inputs of a network as its program reads them: in the file's order, one behind the other."""
    return b"".join(np.ascontiguousarray(inputs[name]).tobytes() for name in net.graph.inputs if inputs)


def read_network(output: str, parts: int, host: str) -> list[tuple[float, ...]]:
    """Return the samples of `parts`, the whole and each step; Refuted if the self-test failed."""
    answers = after_selftest(output, "the network", host)
    if len(answers) != parts:
        raise ToolError(f"{host}: the runner answered for {len(answers)} of {parts} parts")
    return [tuple(answer["ns"]) for answer in answers]

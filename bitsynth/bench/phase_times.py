"""The times of packing, products and epilogues in each layer of a network.

The network is linked a second time, so that every call of these passes through a clock (`parts.c`): what is measured
are the functions that otherwise run, and nothing of them changes. What looking at the clock takes is taken off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bitsynth.graph.types import Tensor
from bitsynth.layers.layer import Call
from bitsynth.layers.library import FLAGS
from bitsynth.layers.pool import pool_of
from bitsynth.network.machine import NetworkMachine
from bitsynth.network.program import LayerStep
from bitsynth.network.run import Network
from bitsynth.run.runner import Runner

_SOURCE = Path(__file__).parent / "parts.c"
_WRAPPED = ("bs_pack_lines", "bs_line_at", "bs_finish", "bs_pack_pixels", "bs_transpose_pixels", "bs_layer_run")
_CALLS = 200
"""Times of the parts, from the fastest call of a layer."""


@dataclass(frozen=True)
class LayerParts:
    """Shares of a layer's time, which add to 1: activations to rows, rows to sums, sums to results."""

    pack: float
    product: float
    epilogue: float


class _TimedMachine(NetworkMachine):
    """A network's machine whose layers' parts pass through a clock."""

    flags = (*FLAGS, *(f"-Wl,--wrap={name}" for name in _WRAPPED))

    @property
    def shared_sources(self) -> dict[str, str]:
        return {**super().shared_sources, "bs_parts.c": _SOURCE.read_text(encoding="utf-8")}


def parts_of(net: Network, inputs: Mapping[str, Tensor]) -> dict[int, LayerParts]:
    """Return the parts of each layer of a network on one thread, by step; ToolError without the linker's `--wrap`."""
    layers = [k for k, step in enumerate(net.program.steps) if isinstance(step, LayerStep)]
    machine = _TimedMachine(net.program, net.plan, pool_of(1))
    block, views = machine.tensors()
    for edge, buffer in zip(net.graph.inputs, net.program.inputs, strict=True):
        views[buffer][...] = inputs[edge]
    if layers:
        machine.run(block)
    return {k: _parts(machine.runner, machine.bind(block, (k, k + 1), 1)) for k in layers}


def _parts(runner: Runner, layer: Call) -> LayerParts:
    """Return the parts of the fastest of some calls of a layer."""
    look, counters = runner.call("bs_parts_look", bits=32), np.zeros(6, np.uint64)
    take = runner.bind("bs_parts_take", counters)
    readings = []
    for _ in range(_CALLS):
        take()
        layer()
        take()
        readings.append(counters.astype(float))
    ticks, calls = min(readings, key=lambda t: t[2]).reshape(2, 3)
    pack, epilogue, whole = np.maximum(ticks - look * calls, 0)
    whole = max(whole - look * (calls[0] + calls[1]), pack + epilogue, 1.0)
    return LayerParts(pack / whole, 1 - (pack + epilogue) / whole, epilogue / whole)

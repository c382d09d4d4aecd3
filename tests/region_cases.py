"""Regions run by themselves, against the reference."""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from bitsynth.graph import run
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph
from bitsynth.graph.types import Integers
from bitsynth.layers.glue.programs import instruction_set
from bitsynth.network.program import Buffer, GlueStep, NetworkProgram
from bitsynth.network.regions.region import Region
from bitsynth.network.run import Network
from bitsynth.network.wiring import NetworkTarget, Wiring


class Small(GraphBuilder):
    """A small network, by its reference."""

    def __init__(self, reference: str = "exact") -> None:
        super().__init__("small", reference)

    def codes(
        self, name: str, shape: tuple[int, ...], low: Any, high: Any, scale: Any = 1.0, zero: Any = 0.0, step: int = 1
    ) -> str:
        """An input of codes."""
        return self.input(name, shape, "float32", Integers.between(low, high, scale, zero, step))

    def quantized(
        self, edge: str, scale: Any, zero: float = 0.0, low: int = 0, high: int = 255, mode: str = "ROUND"
    ) -> str:
        """A quantizer."""
        grid: dict[str, Any] = {"scale": np.asarray(scale, np.float32), "zero": np.asarray(zero, np.float32)}
        more: dict[str, Any] = {"out_scale": np.asarray(scale, np.float64), "out_zero": np.asarray(zero, np.float64)}
        limits: dict[str, Any] = {"low": low, "high": high, "rounding": mode, "zero_first": True, "real": "float32"}
        return self.add("quantize", edge, **grid, **more, **limits)


def matched(graph: Graph, match: Callable[..., Region | None], node: int = 0) -> Region | None:
    """The region that begins with a node."""
    return match(Wiring(graph, NetworkTarget(instruction_set("auto"))), graph.nodes[node])


def values_of(graph: Graph, rng: np.random.Generator) -> dict[str, Any]:
    """Inputs on their grids, their ends among them."""
    made = {}
    for name in graph.inputs:
        edge = graph.edges[name]
        kind = edge.integers
        low, high = (np.broadcast_to(b, edge.shape) for b in (kind.low, kind.high))
        drawn = rng.integers(low, high, endpoint=True)
        made[name] = low + (drawn - low) // kind.step * kind.step
    return made


def agree(graph: Graph, region: Region | None, rng: np.random.Generator) -> None:
    """The region's result is the reference's, in every format of what it reads and gives."""
    assert region is not None
    given = values_of(graph, rng)
    want = run(graph, given)
    for read, made in _formats(region):
        buffers = {e: Buffer(e, graph.edges[e], f) for e, f in (read | made).items()}
        step = region.step(buffers)
        assert isinstance(step, GlueStep)
        assert step.nodes == tuple(n.name for n in region.nodes)
        memory = [_image(buffers[e].format.write(want[e]), step.image) for e in step.inputs]
        got = buffers[step.outputs[0]].read(np.asarray(step.glue(*memory)).reshape(-1))
        np.testing.assert_array_equal(got, want[step.outputs[0]])


def whole(graph: Graph, match: Callable[..., Region | None], rng: np.random.Generator) -> Region:
    """The region of all nodes of a graph, whose result is the reference's."""
    region = matched(graph, match)
    agree(graph, region, rng)
    assert region
    assert region.nodes == graph.nodes
    return region


def _formats(region: Region) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Of inputs and outputs, each with each: of inputs together."""
    places = range(len(region.reads(region.inputs[0])))
    for place, made in product(places, region.writes(region.outputs[0])):
        yield {e: region.reads(e)[place] for e in region.inputs}, {region.outputs[0]: made}


def _image(memory: Any, image: tuple[int, int, int]) -> Any:
    return memory.reshape(*image, -1)


def run_plain(graph: Graph, regions: Sequence[Region], given: dict[str, Any]) -> dict[str, Any]:
    """What the C of regions of plain C, each of inputs of the graph, makes of arrays: by edge."""
    buffers: dict[str, Buffer] = {}
    for region in regions:
        buffers |= {e: Buffer(e, graph.edges[e], region.reads(e)[0], "input") for e in region.inputs}
        buffers |= {e: Buffer(e, graph.edges[e], region.writes(e)[0], "output") for e in region.outputs}
    steps = tuple(region.step(buffers) for region in regions)
    isa, outputs = instruction_set("auto"), tuple(e for region in regions for e in region.outputs)
    program = NetworkProgram(graph, isa, 1, steps, buffers, graph.inputs, outputs)
    made = Network(program)(given)
    return {e: buffers[e].read(x.reshape(-1)) for e, x in zip(outputs, made, strict=True)}

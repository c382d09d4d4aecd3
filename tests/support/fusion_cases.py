"""Fusion groups run by themselves, against the reference."""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from bitsynth.graph import run
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.ir import Graph
from bitsynth.graph.types import Integers
from bitsynth.layers.glue.programs import instruction_set
from bitsynth.network.def_use import DefUse, NetworkTarget
from bitsynth.network.fusion.group import FusionGroup
from bitsynth.network.program import Buffer, GlueStep, NetworkProgram
from bitsynth.network.run import Network


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


def matched(graph: Graph, match: Callable[..., FusionGroup | None], node: int = 0) -> FusionGroup | None:
    """The group that begins with a node."""
    return match(DefUse(graph, NetworkTarget(instruction_set("auto"))), graph.nodes[node])


def values_of(graph: Graph, rng: np.random.Generator) -> dict[str, Any]:
    """Inputs on their grids, their ends among them."""
    values = {}
    for name in graph.inputs:
        edge = graph.edges[name]
        kind = edge.integers
        low, high = (np.broadcast_to(b, edge.shape) for b in (kind.low, kind.high))
        drawn = rng.integers(low, high, endpoint=True)
        values[name] = low + (drawn - low) // kind.step * kind.step
    return values


def agree(graph: Graph, group: FusionGroup | None, rng: np.random.Generator) -> None:
    """The group's result is the reference's, in every format of what it reads and gives."""
    assert group is not None
    given = values_of(graph, rng)
    want = run(graph, given)
    for read, written in _formats(group):
        buffers = {e: Buffer(e, graph.edges[e], f) for e, f in (read | written).items()}
        step = group.step(buffers)
        assert isinstance(step, GlueStep)
        assert step.nodes == tuple(n.name for n in group.nodes)
        memory = [_image(buffers[e].format.write(want[e]), step.image) for e in step.inputs]
        got = buffers[step.outputs[0]].read(np.asarray(step.glue(*memory)).reshape(-1))
        np.testing.assert_array_equal(got, want[step.outputs[0]])


def whole(graph: Graph, match: Callable[..., FusionGroup | None], rng: np.random.Generator) -> FusionGroup:
    """The group of all nodes of a graph, whose result is the reference's."""
    group = matched(graph, match)
    agree(graph, group, rng)
    assert group
    assert group.nodes == graph.nodes
    return group


def _formats(group: FusionGroup) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Of inputs and outputs, each with each: of inputs together."""
    places = range(len(group.reads(group.inputs[0])))
    for place, written in product(places, group.writes(group.outputs[0])):
        yield {e: group.reads(e)[place] for e in group.inputs}, {group.outputs[0]: written}


def _image(memory: Any, image: tuple[int, int, int]) -> Any:
    return memory.reshape(*image, -1)


def run_plain(graph: Graph, groups: Sequence[FusionGroup], given: dict[str, Any]) -> dict[str, Any]:
    """What the C of groups of plain C, each of inputs of the graph, makes of arrays: by edge."""
    buffers: dict[str, Buffer] = {}
    for group in groups:
        buffers |= {e: Buffer(e, graph.edges[e], group.reads(e)[0], "input") for e in group.inputs}
        buffers |= {e: Buffer(e, graph.edges[e], group.writes(e)[0], "output") for e in group.outputs}
    steps = tuple(group.step(buffers) for group in groups)
    isa, outputs = instruction_set("auto"), tuple(e for group in groups for e in group.outputs)
    program = NetworkProgram(graph, isa, 1, steps, buffers, graph.inputs, outputs)
    results = Network(program)(given)
    return {e: buffers[e].read(x.reshape(-1)) for e, x in zip(outputs, results, strict=True)}

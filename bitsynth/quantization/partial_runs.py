"""Runs that start in the middle of a network, at edges whose numbers are kept for all samples.

The networks of a search differ in few layers. What is before these gives the same numbers, which are computed once: a
run starts at the edges that cross a place of the network. The place only moves on.

Given:  a = Conv(x); b = Relu(a); c = Conv(b); y = Add(c, b), and the place before the second Conv
Result: b is kept, and a run for other weights of the second Conv computes c and y
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from bitsynth.network.check.data import Feed
from bitsynth.quantization.float_model import FloatRunner, names_read

_MAX_BYTES = 1 << 30
"""The most bytes of numbers that are kept; where more cross a place, runs start at the place before it."""

_Values = dict[str, NDArray[Any]]
"""Numbers of edges, by name."""


class PartialRuns:
    """Runs of networks that are the same up to a place."""

    def __init__(self, samples: Sequence[Feed]) -> None:
        self._kept: list[_Values] = [{name: np.asarray(x) for name, x in sample.items()} for sample in samples]

    def advance(self, model: Any, place: int) -> None:
        """Move the place to before the node of this index; up to there all later models are as this one."""
        edges = _crossing(model.graph, place)
        moved: list[_Values] = []
        for values in self.run(model, edges):
            moved.append(values)
            if sum(x.nbytes for x in values.values()) * len(self._kept) > _MAX_BYTES:
                return
        self._kept = moved

    def run(self, model: Any, edges: Sequence[str]) -> Iterator[_Values]:
        """Yield the numbers of some edges, which are not before the place, sample by sample."""
        known = self._kept[0]
        wanted = [edge for edge in dict.fromkeys(edges) if edge not in known]
        if not wanted:
            yield from ({edge: values[edge] for edge in edges} for values in self._kept)
            return
        part = _part(model, known, wanted)
        runner, inputs = FloatRunner(part, wanted), [x.name for x in part.graph.input]
        for values in self._kept:
            computed = runner({name: values[name] for name in inputs})
            yield {edge: computed[edge] if edge in computed else values[edge] for edge in edges}


def _crossing(graph: Any, place: int) -> list[str]:
    """Return the edges from before a place that are read after it, or are outputs."""
    constants = {x.name for x in graph.initializer}
    before = {name for node in graph.node[:place] for name in node.output}
    before |= {x.name for x in graph.input} - constants
    read = [name for node in graph.node[place:] for name in names_read(node)] + [x.name for x in graph.output]
    return [name for name in dict.fromkeys(read) if name in before]


def _part(model: Any, known: _Values, edges: Sequence[str]) -> Any:
    """Return the model of the nodes that compute some edges from known edges."""
    needed, nodes = set(edges), []
    for node in reversed(model.graph.node):
        if needed.intersection(node.output):
            nodes.append(node)
            needed |= {name for name in names_read(node) if name not in known}
    read = {name for node in nodes for name in names_read(node)}
    part = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    part.graph.name = "part"
    part.graph.node.extend(reversed(nodes))
    part.graph.initializer.extend(x for x in model.graph.initializer if x.name in read)
    types = {name: (helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for name, x in known.items() if name in read}
    part.graph.input.extend(helper.make_tensor_value_info(name, *each) for name, each in types.items())
    return part

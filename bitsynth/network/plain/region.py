"""The region of one node in plain C, whatever it is."""

from __future__ import annotations

from collections.abc import Mapping

from bitsynth.graph.ir import Node
from bitsynth.network.program import Buffer, Format, NetworkStep
from bitsynth.network.regions.region import Region, Wiring


class PlainRegion(Region):
    """A node by itself."""

    def __init__(self, wiring: Wiring, node: Node) -> None:
        self.wiring, self.nodes, self.outputs = wiring, (node,), node.outputs
        self.inputs = tuple(dict.fromkeys(e for e in node.inputs if not wiring.is_constant(e)))

    def reads(self, edge: str) -> tuple[Format, ...]:
        raise NotImplementedError

    def writes(self, edge: str) -> tuple[Format, ...]:
        raise NotImplementedError

    def step(self, buffers: Mapping[str, Buffer]) -> NetworkStep:
        raise NotImplementedError

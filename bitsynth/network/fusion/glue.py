"""Fusion groups that are a layer of glue on codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from bitsynth.graph.ir import Node
from bitsynth.layers.glue.base import Glue
from bitsynth.network.def_use import DefUse
from bitsynth.network.fusion.codes import GLUE_LAYOUTS, code_formats, image_of
from bitsynth.network.fusion.group import FusionGroup
from bitsynth.network.program import Buffer, Format, GlueStep

Make = Callable[[str, str], Glue]
"""The layer that reads one layout and gives another."""


class GlueGroup(FusionGroup):
    """Nodes that are a layer of glue, from edges of codes to one.

    Args:
        def_use: The graph.
        nodes: In order; the last one makes the result.
        inputs: Edges it reads.
        make: The layer for a layout of inputs and one of results.
        layouts: Those that it reads and gives, each with each.
        changes: Whether results are other codes than those read, or in another order.
    """

    def __init__(
        self,
        def_use: DefUse,
        nodes: tuple[Node, ...],
        inputs: tuple[str, ...],
        make: Make,
        layouts: tuple[str, ...] = GLUE_LAYOUTS,
        *,
        changes: bool = True,
    ) -> None:
        self.def_use, self.nodes, self.inputs, self.outputs = def_use, nodes, inputs, nodes[-1].outputs
        self.make, self.layouts, self.changes = cache(make), layouts, changes
        # SpecError now, while another group may still take the nodes, for shapes and numbers that glue does not hold.
        self.make(layouts[0], layouts[0])

    @property
    def is_alias(self) -> bool:
        return not self.changes

    def reads(self, edge: str) -> tuple[Format, ...]:
        return code_formats(self.def_use.graph.edges[edge], self.layouts)

    def writes(self, edge: str) -> tuple[Format, ...]:
        return code_formats(self.def_use.graph.edges[edge], self.layouts)

    def step(self, buffers: Mapping[str, Buffer]) -> GlueStep:
        given, made = [buffers[e] for e in self.inputs], buffers[self.outputs[0]]
        glue = self.make(given[0].format.layout, made.format.layout)
        names = tuple(b.name for b in given)
        image = image_of(given[0].edge.shape)
        return GlueStep(self.names, names, (made.name,), glue, image)

"""The group of a node in plain C, of any operator, with elementwise nodes after it.

A table has the generator of plain C for each operator of the graph's table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from bitsynth.graph.ir import Node
from bitsynth.graph.operators import TABLE
from bitsynth.graph.types import Edge, Integers
from bitsynth.network.def_use import DefUse
from bitsynth.network.fusion.group import FusionGroup
from bitsynth.network.plain.body import NodeBody
from bitsynth.network.plain.elements import elements
from bitsynth.network.plain.memory import BufferAccess
from bitsynth.network.plain.moves import move
from bitsynth.network.plain.pools import MAX, MIN, SUM, pool, rank, reduction, softmax, softmax_codes
from bitsynth.network.plain.products import conv, matmul
from bitsynth.network.program import Buffer, Format, PlainStep, caller_format, integers_type, plain_format
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import MAX_BITS, MatmulOperand

Generator = Callable[[NodeBody], None]

_BY_KIND: Mapping[str, Generator] = {"elementwise": elements, "step": elements, "move": move}
_BY_NAME: Mapping[str, Generator] = {
    "conv": conv,
    "matmul": matmul,
    "max_pool": pool(MAX),
    "sum_pool": pool(SUM),
    "reduce_sum": reduction(SUM),
    "reduce_max": reduction(MAX),
    "reduce_min": reduction(MIN),
    "softmax": softmax,
    "softmax_codes": softmax_codes,
    "rank": rank,
}
GENERATORS: Mapping[str, Generator] = {
    name: _BY_NAME[name] if name in _BY_NAME else _BY_KIND[row.kind] for name, row in TABLE.items()
}
"""Adds the C of a node to a body."""


_ALIASES = ("reshape", "view")


class PlainGroup(FusionGroup):
    """A node, or several nodes that are all elementwise but the first."""

    def __init__(self, def_use: DefUse, *nodes: Node) -> None:
        self.def_use, self.nodes, self.outputs = def_use, nodes, nodes[-1].outputs
        results = {e for n in nodes for e in n.outputs}
        read = dict.fromkeys(e for n in nodes for e in n.inputs)
        self.inputs = tuple(e for e in read if e not in results and not def_use.is_constant(e))

    @property
    def reason(self) -> str:
        """Why no layer, glue or formula computes its nodes, in a few words: the nearest decline, or their types."""
        return self.def_use.declines.reason(node.name for node in self.nodes) or self._reason_by_types

    @property
    def _reason_by_types(self) -> str:
        """The reason for nodes that no matcher looks at closely."""
        edges = self.def_use.graph.edges
        if not self.inputs:
            return "it depends on constants alone"
        if not all(self.def_use.carries_integers(e) for e in self.inputs):
            return "it reads real numbers, not codes"
        if not all(self.def_use.carries_integers(e) for e in self.outputs):
            return "its results are real numbers, not codes"
        if any(edges[e].integers.bits > MAX_BITS for e in self.inputs):
            return f"it reads integers of more than {MAX_BITS} bits, not codes"
        return f"no layer or glue computes this {self.nodes[0].op}"

    def reads(self, edge: str) -> tuple[Format, ...]:
        """Return its formats of an edge, then int32 as layers write accumulators, or what the caller gives."""
        formats, described = self._formats(edge), self.def_use.graph.edges[edge]
        if self.def_use.carries_integers(edge):
            wide = [Format("int32", None, layout) for layout in _layouts(described)]
            is_within = np.can_cast(integers_type(described.integers), np.int32)
            return (*formats, *(f for f in wide if is_within and f not in formats))
        return (*formats, caller_format(described)) if edge in self.def_use.graph.inputs else formats

    def writes(self, edge: str) -> tuple[Format, ...]:
        return self._formats(edge)

    @property
    def is_alias(self) -> bool:
        return len(self.nodes) == 1 and self.nodes[0].op in _ALIASES

    @property
    def keeps_layout(self) -> bool:
        return all(TABLE[node.op].kind in ("elementwise", "step", "pool") for node in self.nodes)

    def _formats(self, name: str) -> tuple[Format, ...]:
        edge = self.def_use.graph.edges[name]
        formats = [plain_format(edge, self.def_use.graph.reference, layout) for layout in _layouts(edge)]
        kind = edge.type
        if isinstance(kind, Integers) and kind.bits <= MAX_BITS:
            operand = MatmulOperand(kind.bits, kind.encoding)
            formats += [Format.codes(operand, layout) for layout in _layouts(edge)[::-1]]
        return tuple(formats)

    def step(self, buffers: Mapping[str, Buffer]) -> PlainStep:
        memories = {e: BufferAccess.of(f"in{k}", buffers[e]) for k, e in enumerate(self.inputs)}
        memories |= {e: BufferAccess.of(f"out{k}", buffers[e]) for k, e in enumerate(self.outputs)}
        body = NodeBody(self.def_use.graph, self.nodes, memories)
        GENERATORS[body.node.op](body)
        return PlainStep(
            self.names,
            tuple(buffers[e].name for e in self.inputs),
            tuple(buffers[e].name for e in self.outputs),
            "\n".join(body.lines),
            tuple(body.constants.arrays),
            body.scratch_bytes,
            ("bs_product.h", "bs_functions.h", "bs_erf.h"),
            reason=self.reason,
        )


def _layouts(edge: Edge) -> tuple[Layout, ...]:
    return (Layout.PLAIN, Layout.NHWC) if len(edge.shape) > 1 else (Layout.PLAIN,)

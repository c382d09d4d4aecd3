"""Shapes and types of what a node makes, by its row of the table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bitsynth.errors import SpecError
from bitsynth.graph.ir import Node
from bitsynth.graph.operators import TABLE, Site
from bitsynth.graph.types import Edge, Reals, Tensor

_MOST_ELEMENTS = 1 << 28


def inferred(node: Node, inputs: Sequence[Edge], given: Sequence[Tensor | None], reference: str) -> list[Edge]:
    """The edges that `node` makes of `inputs`, those that are constants `given`; SpecError if it cannot."""
    row = TABLE.get(node.op)
    if row is None:
        raise SpecError(f"{node}: no operator {node.op} in the table")
    site = Site(node, tuple(inputs), tuple(given), reference)
    edges = row.infer(site)
    if odd := next((e for e in edges if isinstance(e.type, Reals) and not e.is_float), None):
        raise site.fail(f"gives no integers of type {odd.dtype}; it wants floats")
    if large := next((e for e in edges if math.prod(e.shape) > _MOST_ELEMENTS), None):
        raise site.fail(f"makes a tensor of shape {large.shape}, more than {_MOST_ELEMENTS:,} elements")
    return edges

"""Inference of the shapes and types of a node's outputs, by its row of the table of operators."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bitsynth.errors import SpecError
from bitsynth.graph.ir import Node
from bitsynth.graph.operators import TABLE, Site
from bitsynth.graph.types import Edge, Reals, Tensor

MAX_ELEMENTS, MAX_AXES = 1 << 28, 32
"""The limits of a tensor; numpy broadcasts at most 32 axes."""
_MAX_WINDOW_WORK = 1 << 36
"""The most elements that the windows of a node read: 512 channels of 16 x 1,024 x 1,024 pixels by 3 x 3 are about
that, and take 40 s in the reference."""


def infer_edges(node: Node, inputs: Sequence[Edge], given: Sequence[Tensor | None], reference: str) -> list[Edge]:
    """Return the edges that a node makes, or raise SpecError; `given` has the values of constant inputs."""
    row = TABLE.get(node.op)
    if row is None:
        raise SpecError(f"{node}: no operator {node.op} in the table")
    site = Site(node, tuple(inputs), tuple(given), reference)
    edges = row.infer(site)
    if odd := next((e for e in edges if isinstance(e.type, Reals) and not e.is_float), None):
        raise site.fail(f"gives no integers of type {odd.dtype}; it needs floats")
    if large := next((e for e in edges if math.prod(e.shape) > MAX_ELEMENTS), None):
        raise site.fail(f"makes a tensor of shape {large.shape}, more than {MAX_ELEMENTS:,} elements")
    if deep := next((e for e in edges if len(e.shape) > MAX_AXES), None):
        raise site.fail(f"makes a tensor of {len(deep.shape)} axes, more than {MAX_AXES}; reshape it to fewer")
    if (window := node.attributes.get("window")) is not None:
        work = math.prod(edges[0].shape) * math.prod(window.kernel)
        if work > _MAX_WINDOW_WORK:
            raise site.fail(
                f"its windows of {window.kernel} read {work:,} elements for {edges[0].shape}, more than the "
                f"{_MAX_WINDOW_WORK:,} that are compiled; use smaller windows, or larger strides"
            )
    return edges

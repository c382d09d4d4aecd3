"""Constants of exact arithmetic, which has real numbers alone."""

from __future__ import annotations

import numpy as np

from bitsynth.errors import SpecError
from bitsynth.graph.ir import Graph
from bitsynth.graph.types import Integers


def require_finite(graph: Graph) -> Graph:
    """The graph; SpecError that names a node that reads an infinite constant, if its reference is exact."""
    if graph.reference != "exact":
        return graph
    for node in graph.nodes:
        for edge in graph.edges_of(node.inputs):
            value = None if isinstance(edge.type, Integers) else graph.constants.get(edge.name)
            if value is not None and not np.isfinite(value.astype(np.float64)).all():
                raise SpecError(
                    f"{node}: the constant {edge.name} holds infinity, which is no real number; "
                    "replace it, or name another reference, such as onnxruntime"
                )
    return graph

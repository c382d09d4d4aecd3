"""Conversions: an edge from one format to another, and numbers of the caller to integers and back."""

from __future__ import annotations

from bitsynth.graph.ir import Graph
from bitsynth.network.program import Buffer, PlainStep


def conversion(graph: Graph, source: Buffer, to: Buffer) -> PlainStep:
    """The step that fills `to` from `source`, buffers of one edge.

    Buffers of role "input" and "output" have numbers in the file's type, as `Evaluation.floats` gives them; all others
    have what the edge carries.
    """
    raise NotImplementedError

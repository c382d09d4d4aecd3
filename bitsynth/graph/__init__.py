"""Networks as graphs: an ONNX file becomes a typed graph that a named reference defines."""

from __future__ import annotations

from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.read import InputCodes, read
from bitsynth.graph.reference import run

__all__ = ["Graph", "InputCodes", "Node", "read", "run"]

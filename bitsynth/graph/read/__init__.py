"""ONNX files as graphs."""

from __future__ import annotations

from bitsynth.graph.read.importer import InputCodes, read

__all__ = ["InputCodes", "read"]

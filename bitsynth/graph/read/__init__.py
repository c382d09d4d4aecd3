"""ONNX files as graphs."""

from __future__ import annotations

from bitsynth.graph.read.importer import read
from bitsynth.graph.read.input_codes import InputCodes

__all__ = ["InputCodes", "read"]

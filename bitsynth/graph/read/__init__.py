"""Readers of ONNX files: a file becomes a typed graph.

`importer.py` walks the nodes, `readers.py` says which function reads an operator; these are in the files `*_nodes.py`.
"""

from __future__ import annotations

from bitsynth.graph.read.importer import InputCodes, read

__all__ = ["InputCodes", "read"]

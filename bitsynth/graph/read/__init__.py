"""Readers of ONNX and TensorFlow Lite files: a file becomes a typed graph.

`file.py` parses and checks a file, `inputs.py` settles the shapes of its inputs, and `importer.py` walks its nodes.
`readers.py` says which function reads an operator; the functions are in `nodes/`, a file for each family of operators,
and in `tflite/`.
"""

from __future__ import annotations

from bitsynth.graph.read.importer import InputCodes, ReadOptions, read

__all__ = ["InputCodes", "ReadOptions", "read"]

"""TensorFlow Lite files: a file becomes nodes of the domain `DOMAIN`, which the importer reads as it reads ONNX.

    bytes -> `file.py`: operators, tensors and options, checked -> a model of raw nodes in the containers of ONNX
          -> the importer, with the readers of `floats.py`, `codes.py` and `functions.py` -> the typed graph

Images have channels last in a file and first in the graph; `file_node.py` makes transposes between nodes vanish.
"""

from __future__ import annotations

from bitsynth.graph.read.tflite.file import CHANNELS_FIRST, DOMAIN, is_tflite, parse, tensor_names

__all__ = ["CHANNELS_FIRST", "DOMAIN", "is_tflite", "parse", "tensor_names"]

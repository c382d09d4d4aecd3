"""The table of TensorFlow Lite operators: the reader of each."""

from __future__ import annotations

from bitsynth.graph.read.file_node import Reader
from bitsynth.graph.read.tflite.codes import readers
from bitsynth.graph.read.tflite.shared import with_sizes

READERS: dict[str, Reader] = {op: with_sizes(read) for op, read in readers().items()}
"""By operator; each refuses a result of another shape than the file says."""

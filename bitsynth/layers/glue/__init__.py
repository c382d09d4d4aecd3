"""Glue: elementwise and pooling operators between convolutions, on codes or packed words, exact to the bit.

Each operator is a subclass of `base.Glue`. Its `meaning` computes results in numpy; its constructor gives the numbers
and arrays of `struct bs_glue` (`emit/glue_abi.py`) with which C computes the same.
"""

from bitsynth.layers.glue.base import Glue
from bitsynth.layers.glue.floats import Dequantize, Quantize
from bitsynth.layers.glue.moves import Concatenate, DepthToSpace, Pad2d, Resize
from bitsynth.layers.glue.pools import AvgPool2d, GlobalAvgPool2d, MaxPool2d
from bitsynth.layers.glue.quantization import Quantization
from bitsynth.layers.glue.tables import Add, FloatLookup, Lookup, PairLookup, QuantizeImage, SumLookup

__all__ = [
    "Add",
    "AvgPool2d",
    "Concatenate",
    "DepthToSpace",
    "Dequantize",
    "FloatLookup",
    "GlobalAvgPool2d",
    "Glue",
    "Lookup",
    "MaxPool2d",
    "Pad2d",
    "PairLookup",
    "Quantization",
    "Quantize",
    "QuantizeImage",
    "Resize",
    "SumLookup",
]

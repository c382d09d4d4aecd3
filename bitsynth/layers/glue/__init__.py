"""Glue: the layers between convolutions, on codes or packed words, exact and in C as those are.

One class an operation, a short file each; `base.Glue` is what they share. Each says what it computes (`meaning`, in
numpy), and gives the numbers and arrays of `struct bs_glue` (`emit/glue_abi.py`) by which C computes the same.
"""

from bitsynth.layers.glue.add import Add
from bitsynth.layers.glue.avg_pool import AvgPool2d, GlobalAvgPool2d
from bitsynth.layers.glue.base import Glue
from bitsynth.layers.glue.blocks import DepthToSpace
from bitsynth.layers.glue.concatenate import Concatenate
from bitsynth.layers.glue.floats import Dequantize, Quantize
from bitsynth.layers.glue.lookup import FloatLookup, Lookup, QuantizeImage
from bitsynth.layers.glue.max_pool import MaxPool2d
from bitsynth.layers.glue.pad import Pad2d
from bitsynth.layers.glue.pair_lookup import PairLookup
from bitsynth.layers.glue.quantization import Quantization
from bitsynth.layers.glue.resize import Resize
from bitsynth.layers.glue.sum_lookup import SumLookup

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

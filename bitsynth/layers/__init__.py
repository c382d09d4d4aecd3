"""Layers of a network: convolutions and dense layers around proved microkernels.

`Conv2d` and `Dense` do at once what four steps do one by one, each a frozen value and the verb that makes the next:

    LayerSpec     what the layer computes (`layers/spec.py`)
      --plan-->
    LayerPlan     the kernel and schedule that run it (`layers/planning.py`)
      --pack-->
    PackedLayer   weights for that kernel, and C text of them (`layers/packed.py`)
      --compile-->
    Layer         machine code and threads (`layers/layer.py`)

Only the last needs a compiler. `pack_words` and `unpack_words` are of activations whose layout is "packed".
"""

from bitsynth.layers.compiling import compile_all
from bitsynth.layers.conv import Conv2d
from bitsynth.layers.dense import Dense
from bitsynth.layers.epilogues import Requantize, Rescale, Scale, Thresholds
from bitsynth.layers.epilogues.residual import Residual
from bitsynth.layers.layer import Layer, compile
from bitsynth.layers.packed import PackedLayer, pack
from bitsynth.layers.packed_codes import Packed, pack_words, packed_words, unpack_words
from bitsynth.layers.planning import LayerPlan, plan
from bitsynth.layers.pool import Pool
from bitsynth.layers.spec import LayerSpec

__all__ = [
    "Conv2d",
    "Dense",
    "Layer",
    "LayerPlan",
    "LayerSpec",
    "Packed",
    "PackedLayer",
    "Pool",
    "Requantize",
    "Rescale",
    "Residual",
    "Scale",
    "Thresholds",
    "compile",
    "compile_all",
    "pack",
    "pack_words",
    "packed_words",
    "plan",
    "unpack_words",
]

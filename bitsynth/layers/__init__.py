"""Layers of a network: convolutions and dense layers around proved microkernels.

`Conv2d` and `Dense` do at once what four steps do one by one, each a frozen value and a verb:

    spec: LayerSpec       --plan-->     what the layer computes (`layers/spec.py`)
    plan: LayerPlan       --pack-->     the kernel and schedule that run it (`layers/plan.py`)
    packed: PackedLayer   --compile-->  weights for that kernel, and C text of them (`layers/packed.py`)
    layer: Layer                        machine code and threads (`layers/layer.py`)

Only the last needs a compiler.
"""

from bitsynth.layers.conv import Conv2d
from bitsynth.layers.dense import Dense
from bitsynth.layers.epilogue import Requantize, Scale, Thresholds
from bitsynth.layers.pool import Pool
from bitsynth.layers.words import pack, packed_words, unpack

__all__ = ["Conv2d", "Dense", "Pool", "Requantize", "Scale", "Thresholds", "pack", "packed_words", "unpack"]

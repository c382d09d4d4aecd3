"""Layers of a network: convolutions and dense layers around proved microkernels."""

from bitsynth.layers.conv import Conv2d
from bitsynth.layers.dense import Dense
from bitsynth.layers.epilogue import Requantize, Scale, Thresholds
from bitsynth.layers.pool import Pool
from bitsynth.layers.words import pack, packed_words, unpack

__all__ = ["Conv2d", "Dense", "Pool", "Requantize", "Scale", "Thresholds", "pack", "packed_words", "unpack"]

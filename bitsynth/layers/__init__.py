"""Layers of a network: convolutions and dense layers around proved microkernels."""

from bitsynth.layers.conv import Conv2d, Dense
from bitsynth.layers.epilogue import Requantize, Scale, Thresholds

__all__ = ["Conv2d", "Dense", "Requantize", "Scale", "Thresholds"]

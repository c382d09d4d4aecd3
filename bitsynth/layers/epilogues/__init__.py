"""Epilogues: post-processing of a layer's int32 accumulators, a family a file, and the programs that compute it."""

from bitsynth.layers.epilogues.base import (
    ClampedCodes,
    CodesEpilogue,
    Epilogue,
    check_encoding,
    check_epilogue,
    gives_codes,
)
from bitsynth.layers.epilogues.fixed_point import FixedPoint, FixedPointFormula
from bitsynth.layers.epilogues.floats import Rescale, Scale
from bitsynth.layers.epilogues.multiply_shift import MultiplyShift
from bitsynth.layers.epilogues.requantize import Requantize
from bitsynth.layers.epilogues.residual import Residual
from bitsynth.layers.epilogues.thresholds import Thresholds

__all__ = [
    "ClampedCodes",
    "CodesEpilogue",
    "Epilogue",
    "FixedPoint",
    "FixedPointFormula",
    "MultiplyShift",
    "Requantize",
    "Rescale",
    "Residual",
    "Scale",
    "Thresholds",
    "check_encoding",
    "check_epilogue",
    "gives_codes",
]

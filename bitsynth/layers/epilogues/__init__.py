"""Epilogues: post-processing of a layer's int32 accumulators, and its lowering to elementwise programs."""

from bitsynth.layers.epilogues.base import Residual
from bitsynth.layers.epilogues.kinds import (
    Epilogue,
    FixedLine,
    FixedPoint,
    Requantize,
    Rescale,
    Scale,
    Thresholds,
    check_encoding,
    check_epilogue,
    floats_of,
    gives_codes,
    kept_type,
    levels_of,
)

__all__ = [
    "Epilogue",
    "FixedLine",
    "FixedPoint",
    "Requantize",
    "Rescale",
    "Residual",
    "Scale",
    "Thresholds",
    "check_encoding",
    "check_epilogue",
    "floats_of",
    "gives_codes",
    "kept_type",
    "levels_of",
]

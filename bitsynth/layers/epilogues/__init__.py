"""What becomes of a layer's sums: the kinds of epilogues, and how each is lowered to the programs that compute it."""

from bitsynth.layers.epilogues.fixed_point import FixedLine, FixedPoint
from bitsynth.layers.epilogues.kinds import Epilogue, check_encoding, check_epilogue, gives_codes, kept_type
from bitsynth.layers.epilogues.requantize import Requantize
from bitsynth.layers.epilogues.residual import Residual
from bitsynth.layers.epilogues.scaling import Rescale, Scale, floats_of
from bitsynth.layers.epilogues.thresholds import Thresholds, levels_of

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

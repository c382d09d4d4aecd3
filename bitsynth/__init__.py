"""bitsynth: proven low-bit matrix-multiply microkernels, synthesized."""

from bitsynth.api import MatmulKernel, get_kernel
from bitsynth.errors import BitsynthError, NoKernel, Refuted, SpecError, ToolError, Undecided

__version__ = "0.1.0"

__all__ = [
    "BitsynthError",
    "MatmulKernel",
    "NoKernel",
    "Refuted",
    "SpecError",
    "ToolError",
    "Undecided",
    "get_kernel",
]

"""bitsynth: proven low-bit matrix-multiply microkernels, synthesized.

The library is imported when it is first asked for, so that a command which is starting can be interrupted.
"""

from typing import TYPE_CHECKING, Any

from bitsynth.errors import BitsynthError, NoKernel, Refuted, SpecError, ToolError, Undecided

if TYPE_CHECKING:
    from bitsynth.api import MatmulKernel, get_kernel

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


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from bitsynth import api

    return getattr(api, name)

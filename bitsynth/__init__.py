"""bitsynth: proven low-bit matrix-multiply microkernels, synthesized.

Kernels are imported with the package, the rest when it is first asked for. A command imports all of it later, so that
it can be interrupted while it starts.
"""

import sys
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from bitsynth.errors import BitsynthError, NoKernel, Refuted, SpecError, ToolError, Undecided

if TYPE_CHECKING:
    from bitsynth.layers import Conv2d, Dense, Pool, Requantize, Rescale, Residual, Scale, Thresholds, compile_all
    from bitsynth.layers.glue import (
        Add,
        AvgPool2d,
        Concatenate,
        DepthToSpace,
        Dequantize,
        FloatLookup,
        GlobalAvgPool2d,
        Lookup,
        MaxPool2d,
        Pad2d,
        PairLookup,
        Quantization,
        Quantize,
        QuantizeImage,
        Resize,
        SumLookup,
    )
    from bitsynth.layers.schedule import LayerSchedule
    from bitsynth.layers.words import Packed, pack, unpack
    from bitsynth.matmul import MatmulKernel, get_kernel
    from bitsynth.network.compiling import compile
    from bitsynth.network.run import Network

__version__ = "0.1.0"

__all__ = [
    "Add",
    "AvgPool2d",
    "BitsynthError",
    "Concatenate",
    "Conv2d",
    "Dense",
    "DepthToSpace",
    "Dequantize",
    "FloatLookup",
    "GlobalAvgPool2d",
    "LayerSchedule",
    "Lookup",
    "MatmulKernel",
    "MaxPool2d",
    "Network",
    "NoKernel",
    "Packed",
    "Pad2d",
    "PairLookup",
    "Pool",
    "Quantization",
    "Quantize",
    "QuantizeImage",
    "Refuted",
    "Requantize",
    "Rescale",
    "Residual",
    "Resize",
    "Scale",
    "SpecError",
    "SumLookup",
    "Thresholds",
    "ToolError",
    "Undecided",
    "compile",
    "compile_all",
    "get_kernel",
    "pack",
    "unpack",
]


_KEPT_IN = {
    "bitsynth.matmul": ("MatmulKernel", "get_kernel"),
    "bitsynth.layers": (
        *("Conv2d", "Dense", "Pool", "Requantize", "Rescale", "Residual", "Scale", "Thresholds", "compile_all"),
    ),
    "bitsynth.layers.glue": (
        "Add",
        "AvgPool2d",
        "Concatenate",
        "DepthToSpace",
        "Dequantize",
        "FloatLookup",
        "GlobalAvgPool2d",
        "Lookup",
        "MaxPool2d",
        "Pad2d",
        "PairLookup",
        "Quantization",
        "Quantize",
        "QuantizeImage",
        "Resize",
        "SumLookup",
    ),
    "bitsynth.network.compiling": ("compile",),
    "bitsynth.network.run": ("Network",),
    "bitsynth.layers.schedule": ("LayerSchedule",),
    "bitsynth.layers.words": ("Packed", "pack", "unpack"),
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    for module, names in _KEPT_IN.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _runs_a_command() -> bool:
    """Whether this process was started as `bitsynth`, or as a module, which Python is looking for now."""
    return sys.argv[:1] == ["-m"] or PurePath(*sys.argv[:1]).stem == "bitsynth"


if not _runs_a_command():
    import_module("bitsynth.matmul")

"""bitsynth: compiles quantized neural networks to C with proved kernels.

`import bitsynth` imports what a kernel needs; layers, glue and networks are imported when one of their names is first
used. Each public name is written three times here: for type checkers (the imports under TYPE_CHECKING), for
`from bitsynth import *` (`__all__`), and for the import at first use (`_DEFINED_IN`). A test compares them.
"""

import os
import sys

from bitsynth.starting import handle_interrupts


def _runs_a_command() -> bool:
    """Return whether this process is the command `bitsynth`, or `python -m`, which imports its module after this one.

    A command imports nothing yet, so that an interrupt while it starts is handled.
    """
    return sys.argv[:1] == ["-m"] or os.path.splitext(os.path.basename("".join(sys.argv[:1])))[0] == "bitsynth"


if _runs_a_command():
    handle_interrupts()

# isort: split
from importlib import import_module  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

from bitsynth.errors import BitsynthError, NoKernel, Refuted, SpecError, ToolError, Undecided  # noqa: E402

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
    from bitsynth.layers.packed_codes import Packed, pack, unpack
    from bitsynth.layers.schedule import LayerSchedule
    from bitsynth.matmul import MatmulKernel, get_kernel
    from bitsynth.network.compiling import compile
    from bitsynth.network.run import Network
    from bitsynth.quantization import quantize

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
    "quantize",
    "unpack",
]


_DEFINED_IN = {
    "bitsynth.layers": "Conv2d Dense Pool Requantize Rescale Residual Scale Thresholds compile_all",
    "bitsynth.layers.glue": "Add AvgPool2d Concatenate DepthToSpace Dequantize FloatLookup GlobalAvgPool2d Lookup"
    " MaxPool2d Pad2d PairLookup Quantization Quantize QuantizeImage Resize SumLookup",
    "bitsynth.layers.schedule": "LayerSchedule",
    "bitsynth.layers.packed_codes": "Packed pack unpack",
    "bitsynth.matmul": "MatmulKernel get_kernel",
    "bitsynth.network.compiling": "compile",
    "bitsynth.network.run": "Network",
    "bitsynth.quantization": "quantize",
}
"""The modules that are imported at first use, and the public names that each defines."""


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    for module, names in _DEFINED_IN.items():
        if name in names.split():
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if not _runs_a_command():
    import_module("bitsynth.matmul")

"""Options of a single layer: what it computes and how its activations lie."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_LAYER = "The layer"
MAX_CHANNELS = 1 << 16

GlueArgument = Annotated[
    str,
    typer.Argument(
        metavar="LAYER",
        help="A layer of glue as in Python, such as 'MaxPool2d(64, 2, 2)'.",
        show_default=False,
    ),
]
WeightsArgument = Annotated[
    Path,
    typer.Argument(
        metavar="WEIGHTS",
        help="A .npy file of operand values, (OC, IC / groups, KH, KW) or, for a dense layer, (out, in); or a .npz "
        "file with such an array `weight`, and an epilogue: scale and bias; thresholds (OC, levels); or multiplier, "
        "shift and bits.",
        show_default=False,
    ),
]
LayerName = Annotated[str, typer.Option("--name", metavar="NAME", help="The name of the layer in C.")]
InChannels = Annotated[
    int | None,
    typer.Option(
        "--in-channels",
        metavar="N",
        help="Channels of the input, in all groups.",
        min=1,
        max=MAX_CHANNELS,
        rich_help_panel=_LAYER,
    ),
]
OutChannels = Annotated[
    int | None,
    typer.Option(
        "--out-channels",
        metavar="N",
        help="Channels of the output, in all groups.",
        min=1,
        max=MAX_CHANNELS,
        rich_help_panel=_LAYER,
    ),
]
Window = Annotated[
    str, typer.Option("--kernel", metavar="N[,N]", help="Pixels, or height,width.", rich_help_panel=_LAYER)
]
Stride = Annotated[
    str, typer.Option("--stride", metavar="N[,N]", help="Pixels, or down,right.", rich_help_panel=_LAYER)
]
Padding = Annotated[
    str,
    typer.Option(
        "--padding",
        metavar="N[,N[,N,N]]",
        help="Pixels, or height,width, or top,left,bottom,right, or same.",
        rich_help_panel=_LAYER,
    ),
]
Dilation = Annotated[
    str, typer.Option("--dilation", metavar="N[,N]", help="Pixels, or down,right.", rich_help_panel=_LAYER)
]
ZeroPoint = Annotated[
    int,
    typer.Option(
        "--zero-point", metavar="N", help="The value of activations that represents 0; padding is filled with it."
    ),
]
WeightZeroPoint = Annotated[
    int,
    typer.Option("--weight-zero-point", metavar="N", help="The value of unsigned weights that represents 0."),
]
Groups = Annotated[
    int, typer.Option("--groups", metavar="N", min=1, help="Groups of channels.", rich_help_panel=_LAYER)
]
ImageOption = Annotated[
    str,
    typer.Option(
        "--image",
        metavar="HxW",
        help="Height and width of the input that the schedule is optimized for.",
        show_default="28x28",
        rich_help_panel=_LAYER,
    ),
]
LayoutOption = Annotated[
    str,
    typer.Option(
        "--layout", metavar="LAYOUT", help="Memory layout of activations: NHWC, NCHW or packed.", rich_help_panel=_LAYER
    ),
]
OutLayout = Annotated[
    str,
    typer.Option(
        "--out-layout",
        metavar="LAYOUT",
        help="Memory layout of results: NHWC, NCHW or packed.",
        show_default="the layout of activations",
        rich_help_panel=_LAYER,
    ),
]

"""The options of operators that readers ask for: the table of the schema, and its fields."""

from __future__ import annotations

_WINDOW = ("Padding", "StrideW", "StrideH", "FusedActivationFunction")
_DILATIONS = ("DilationWFactor", "DilationHFactor")
_POOL = ("Pool2DOptions", (*_WINDOW, "FilterWidth", "FilterHeight"))
_RESIZE = ("AlignCorners", "HalfPixelCenters")

OPTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ADD": ("AddOptions", ("FusedActivationFunction",)),
    "AVERAGE_POOL_2D": _POOL,
    "CONCATENATION": ("ConcatenationOptions", ("Axis", "FusedActivationFunction")),
    "CONV_2D": ("Conv2DOptions", (*_WINDOW, *_DILATIONS)),
    "DEPTHWISE_CONV_2D": ("DepthwiseConv2DOptions", (*_WINDOW, *_DILATIONS)),
    "DIV": ("DivOptions", ("FusedActivationFunction",)),
    "FULLY_CONNECTED": ("FullyConnectedOptions", ("FusedActivationFunction", "WeightsFormat", "KeepNumDims")),
    "GATHER": ("GatherOptions", ("Axis", "BatchDims")),
    "LEAKY_RELU": ("LeakyReluOptions", ("Alpha",)),
    "MAX_POOL_2D": _POOL,
    "MEAN": ("ReducerOptions", ("KeepDims",)),
    "MUL": ("MulOptions", ("FusedActivationFunction",)),
    "PACK": ("PackOptions", ("ValuesCount", "Axis")),
    "RESHAPE": ("ReshapeOptions", ("NewShape",)),
    "RESIZE_BILINEAR": ("ResizeBilinearOptions", _RESIZE),
    "RESIZE_NEAREST_NEIGHBOR": ("ResizeNearestNeighborOptions", _RESIZE),
    "SOFTMAX": ("SoftmaxOptions", ("Beta",)),
    "SPLIT": ("SplitOptions", ("NumSplits",)),
    "SPLIT_V": ("SplitVOptions", ("NumSplits",)),
    "SQUEEZE": ("SqueezeOptions", ("SqueezeDims",)),
    "STRIDED_SLICE": (
        "StridedSliceOptions",
        ("BeginMask", "EndMask", "EllipsisMask", "NewAxisMask", "ShrinkAxisMask", "Offset"),
    ),
    "SUB": ("SubOptions", ("FusedActivationFunction",)),
    "TRANSPOSE_CONV": ("TransposeConvOptions", _WINDOW),
    "UNPACK": ("UnpackOptions", ("Num", "Axis")),
}
"""By operator."""

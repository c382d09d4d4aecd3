"""The window of a convolution: sizes, strides, padding, and the output of an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bitsynth.errors import SpecError

MAX_PIXELS = (1 << 15) - 1
"""The limit of an image, a window, its strides and its padding, in pixels along an axis."""
Pair = int | tuple[int, int]


@dataclass(frozen=True)
class Geometry:
    """Channels of all groups, and the window in pixels: (height, width), padding (top, left, bottom, right)."""

    in_channels: int
    out_channels: int
    groups: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]

    def __post_init__(self) -> None:
        sizes = (self.in_channels, self.out_channels, *self.kernel)
        if min(sizes) < 1:
            raise SpecError(f"a weight without elements: {self.out_channels} x {self.in_channels} x {self.kernel}")
        if min(self.groups, *self.stride, *self.dilation) < 1 or min(self.padding) < 0:
            raise SpecError(
                f"groups, strides and dilations are at least 1 and padding 0, not {self.groups} groups, stride "
                f"{self.stride}, dilation {self.dilation}, padding {self.padding}"
            )
        if self.out_channels % self.groups:
            raise SpecError(f"{self.out_channels} output channels cannot be shared by {self.groups} groups")

    def __str__(self) -> str:
        return f"{self.in_channels} -> {self.out_channels} channels, {self.kernel[0]} x {self.kernel[1]}"

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """(OC, IC / groups, KH, KW)."""
        return self.out_channels, self.in_channels // self.groups, *self.kernel

    def window(self) -> dict[str, int]:
        """Return sizes of the window in pixels, by the names that C gives them (`struct bs_layer`)."""
        sizes = {"kernel": self.kernel, "stride": self.stride, "dilation": self.dilation}
        both = {f"{name}_{way}": n for name, pair in sizes.items() for way, n in zip("hw", pair, strict=True)}
        return both | dict(zip(("pad_top", "pad_left", "pad_bottom", "pad_right"), self.padding, strict=True))

    @property
    def depth(self) -> int:
        """Products in a sum."""
        return self.in_channels // self.groups * self.kernel[0] * self.kernel[1]

    @property
    def reach(self) -> tuple[int, int]:
        """Height and width of the window, dilated."""
        (high, wide), (down, right) = self.kernel, self.dilation
        return down * (high - 1) + 1, right * (wide - 1) + 1

    def output(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width of the output for an input of `height` by `width`; raise SpecError if it is empty."""
        top, left, bottom, right = self.padding
        sizes = []
        for size, pad, k, s, d in zip(
            (height, width), (top + bottom, left + right), self.kernel, self.stride, self.dilation, strict=True
        ):
            reach = d * (k - 1) + 1
            if size < 1 or size + pad < reach:
                raise SpecError(f"an input of {height} x {width} has no room for a window that reaches over {reach}")
            sizes.append((size + pad - reach) // s + 1)
        return sizes[0], sizes[1]

    def macs(self, height: int, width: int) -> int:
        """Return multiply-accumulates for an input of one image."""
        oh, ow = self.output(height, width)
        return oh * ow * self.out_channels * self.depth


def geometry_of(shape: tuple[int, ...], *, stride: Any, padding: Any, dilation: Any, groups: Any) -> Geometry:
    """Return the window of a weight of `shape` (OC, IC / groups, KH, KW); raise SpecError if arguments do not fit."""
    if len(shape) != 4:
        raise SpecError(f"want a weight (OC, IC / groups, KH, KW), not {shape}")
    if type(groups) is not int or groups < 1:
        raise SpecError(f"groups must be a whole number of at least 1, not {groups!r}")
    out_channels, in_channels, high, wide = shape
    steps, apart = pair("stride", stride, 1), pair("dilation", dilation, 1)
    around = padding_of(padding, (high, wide), steps, apart)
    return Geometry(in_channels * groups, out_channels, groups, (high, wide), steps, around, apart)


def padding_of(
    value: Any, window: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
) -> tuple[int, int, int, int]:
    """Return padding at top, left, bottom and right: `edges`, or "same" for an output as large as the input.

    An odd pixel is behind, as PyTorch has it. SpecError for "same" and a stride.
    """
    if not isinstance(value, str) or value != "same":
        return edges(value)
    if stride != (1, 1):
        raise SpecError(f"padding 'same' wants stride 1, not {stride}; give the padding in pixels")
    down, right = (d * (k - 1) for k, d in zip(window, dilation, strict=True))
    return edges((down // 2, right // 2, down - down // 2, right - right // 2))


def pair(name: str, value: Any, least: int) -> tuple[int, int]:
    """Return `value` for height and width; raise SpecError unless whole numbers of at least `least`."""
    both = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(both) != 2 or not all(type(x) is int and least <= x <= MAX_PIXELS for x in both):
        same = ", or 'same'" if name == "padding" else ""
        raise SpecError(f"{name} must be a whole number from {least} to {MAX_PIXELS:,}, or two{same}, not {value!r}")
    return both[0], both[1]


def edges(value: Any) -> tuple[int, int, int, int]:
    """Return padding at top, left, bottom and right, from one number, (height, width), or all four."""
    if isinstance(value, tuple | list) and len(value) == 4:
        top, left = pair("padding", tuple(value[:2]), 0)
        bottom, right = pair("padding", tuple(value[2:]), 0)
        return top, left, bottom, right
    high, wide = pair("padding", value, 0)
    return high, wide, high, wide

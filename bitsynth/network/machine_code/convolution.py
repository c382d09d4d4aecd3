"""The convolution that a layer is to compute: for each sum, which activation is multiplied with which weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.correction_terms import makes_values, remaining
from bitsynth.kernel.program import Kernel
from bitsynth.layers.constants import Offset, column_terms, pad_code_of
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.spec import LayerSpec
from bitsynth.matmul import MatmulKernel
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import MatmulSpec, affine

IntegerArray = NDArray[np.int64]
Tap = tuple[int, int, int, int]
"""A tap on the image: its row and column in the window, and in the image."""


@dataclass(frozen=True)
class Pixel:
    """An output pixel: its image of the batch, row and column."""

    image: int
    y: int
    x: int


@dataclass(frozen=True, eq=False)
class Convolution:
    """The sums that a layer is to compute, of codes of activations: for each a number, and a factor of each code.

    Attributes:
        spec: The layer as its kernel computes it.
        codes: Codes of weights (OC, IC / groups, KH, KW).
        bias: Integers (OC,) that belong to the sums.
        image: Batch, height and width.
    """

    spec: LayerSpec
    codes: NDArray[np.uint8]
    bias: IntegerArray
    image: tuple[int, int, int]

    @property
    def _geometry(self) -> Geometry:
        return self.spec.geometry

    @cached_property
    def output(self) -> tuple[int, int]:
        """Height and width of the output."""
        return self._geometry.output(*self.image[1:])

    @property
    def shift(self) -> int:
        """By how many bits the kernel shifts its sums at last."""
        return 0

    @cached_property
    def factors(self) -> IntegerArray:
        """The factor of an activation's code in a sum, before the shift, for each code of a weight."""
        return self._weight_values * self.spec.act.scale << self.shift

    @cached_property
    def _weight_values(self) -> IntegerArray:
        wgt = self.spec.wgt
        return np.array([wgt.value(code) for code in range(1 << wgt.bits)], np.int64)

    @cached_property
    def _byte_numbers(self) -> NDArray[np.int64]:
        """The number of the byte of each activation (batch, height, width, IC)."""
        batch, height, width = self.image
        channels = self._geometry.in_channels
        count = np.arange(batch * height * width * channels)
        if self.spec.layout == Layout.NCHW:
            return count.reshape(batch, channels, height, width).transpose(0, 2, 3, 1)
        return count.reshape(batch, height, width, channels)

    def activation(self, byte: int) -> str:
        """Return the activation that a byte is, in words."""
        image, y, x, channel = np.argwhere(self._byte_numbers == byte)[0]
        where = f"image {image}, " if image else ""
        return f"the activation at {where}row {y}, column {x}, channel {channel}"

    def _taps(self, pixel: Pixel) -> list[Tap]:
        """Return the taps on the image for a pixel."""
        g, (_, height, width) = self._geometry, self.image
        (top, left, _, _), (down, right) = g.padding, g.dilation
        taps = []
        for ky in range(g.kernel[0]):
            for kx in range(g.kernel[1]):
                y, x = pixel.y * g.stride[0] + ky * down - top, pixel.x * g.stride[1] + kx * right - left
                if 0 <= y < height and 0 <= x < width:
                    taps.append((ky, kx, y, x))
        return taps

    def sums(self, pixel: Pixel, channels: Sequence[int]) -> tuple[IntegerArray, IntegerArray, IntegerArray]:
        """Return what the accumulators of a pixel and of output `channels`, all of one group, are, before the shift.

        These are the numbers of the activations' bytes, sorted; the factor of each in each channel (codes, channels);
        and the numbers (channels,) that are added.
        """
        codes, factors, added = self.sums_of_channels(pixel, np.asarray(channels))
        of_group = codes[:, 0]  # Channels of a group have the same codes.
        order = np.argsort(of_group)
        return of_group[order], factors[order], added

    def sums_of_channels(self, pixel: Pixel, channels: IntegerArray) -> tuple[IntegerArray, IntegerArray, IntegerArray]:
        """Return what the accumulators of a pixel and of output `channels` of any groups are, before the shift.

        These are the numbers of the activations' bytes, and their factors, both (terms, channels); and the numbers
        (channels,) that are added.
        """
        g, taps = self._geometry, self._taps(pixel)
        inside = g.in_channels // g.groups
        first = channels // (g.out_channels // g.groups) * inside
        of_channels = first + np.arange(inside)[:, None]
        weights = self.codes[channels].astype(np.int64)
        added = self._sum_additions(weights, taps, channels)
        if not taps:
            return np.zeros((0, len(channels)), np.int64), np.zeros((0, len(channels)), np.int64), added
        codes = [self._byte_numbers[pixel.image, y, x][of_channels] for _, _, y, x in taps]
        factors = [self.factors[weights[:, :, ky, kx]].T for ky, kx, _, _ in taps]
        return np.concatenate(codes), np.concatenate(factors), added

    def _sum_additions(self, weights: IntegerArray, taps: Sequence[Tap], channels: IntegerArray) -> IntegerArray:
        """Return the numbers (channels,) that are added to the factors times codes."""
        offset = self.spec.act.offset - self.spec.zero_point
        values = self._weight_values[weights] * _mask_of(taps, weights)
        summed: IntegerArray = offset * values.sum(axis=(1, 2, 3)) + self.bias[channels] << self.shift
        return summed


@dataclass(frozen=True, eq=False)
class KernelConvolution(Convolution):
    """The sums of a layer on a matmul kernel, which may leave numbers of rows and columns to the epilogue.

    Attributes:
        proved: The kernel.
        product: The product of operands that the kernel computes.
    """

    proved: MatmulKernel
    product: MatmulSpec

    @property
    def kernel(self) -> Kernel:
        """The kernel's program."""
        return self.proved.entry.kernel

    @cached_property
    def has_values(self) -> bool:
        """Whether accumulators are the sums themselves; else numbers of rows and columns are still to be added."""
        return remaining(self.kernel, self.product).is_identity

    @cached_property
    def shift(self) -> int:
        """By how many bits the microkernel shifts its sums at last."""
        return affine(self.product).shift if makes_values(self.kernel, self.product) else 0

    @cached_property
    def factors(self) -> IntegerArray:
        """The factor of an activation's code in a sum, before the shift, for each code of a weight."""
        return super().factors if self.has_values else self.kernel_values

    @cached_property
    def kernel_values(self) -> IntegerArray:
        """The value of each code of a weight in the product that the kernel was proved for."""
        return np.array([self.kernel.core.wgt.value(code) for code in range(1 << self.kernel.w_bits)], np.int64)

    def _sum_additions(self, weights: IntegerArray, taps: Sequence[Tap], channels: IntegerArray) -> IntegerArray:
        if self.has_values:
            return super()._sum_additions(weights, taps, channels)
        padding = pad_code_of(self.spec.act, self.spec.zero_point)
        outside: IntegerArray = padding * (self.kernel_values[weights] * ~_mask_of(taps, weights)).sum(axis=(1, 2, 3))
        if remaining(self.kernel, self.product).factor != 1:
            return outside
        offset = Offset(self.bias[channels], self.spec.zero_point)
        return outside + column_terms(self.product, weights.astype(np.uint8), offset)


def _mask_of(taps: Sequence[Tap], weights: IntegerArray) -> NDArray[np.bool_]:
    """Return which taps (KH, KW) of weights are on the image."""
    inside = np.zeros(weights.shape[2:], bool)
    for ky, kx, _, _ in taps:
        inside[ky, kx] = True
    return inside

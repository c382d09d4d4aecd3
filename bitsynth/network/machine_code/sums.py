"""Compares the accumulators of a step's run with the convolution: which activation meets which weight.

A microkernel's accumulator is, by its proof, a sum over K of products of values that codes stand for. A `StepCall`
records which codes each row and each column has: codes of rows by the numbers of their bytes, codes of columns as
numbers. So each accumulator is a number and multiples of unknown codes, and these are compared with the convolution's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.correction_terms import doublings, has_row_terms, makes_values, remaining, row_terms
from bitsynth.kernel.program import Kernel
from bitsynth.layers.constants import Offset, column_terms, idle_code, pad_code_of
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.spec import LayerSpec
from bitsynth.matmul import MatmulKernel
from bitsynth.network.machine_code.calls import (
    FIRST_KNOWN,
    PAD,
    CodeArray,
    KernelCall,
    StepCall,
    WrongCall,
    number_codes,
)
from bitsynth.network.machine_code.columns import codes_of_columns
from bitsynth.network.machine_code.idle_weights import ignores_rows_of_idle_weights
from bitsynth.network.machine_code.linear import Bytes, NamedBytes, parse_name
from bitsynth.objects.memory import NotShown
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import MatmulSpec, affine

IntegerArray = NDArray[np.int64]


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
        proved: The kernel.
        spec: The layer as its kernel computes it.
        product: The product of operands that the kernel computes.
        codes: Codes of weights (OC, IC / groups, KH, KW).
        bias: Integers (OC,) that belong to the sums.
        image: Batch, height and width.
    """

    proved: MatmulKernel
    spec: LayerSpec
    product: MatmulSpec
    codes: NDArray[np.uint8]
    bias: IntegerArray
    image: tuple[int, int, int]

    @property
    def kernel(self) -> Kernel:
        """The kernel's program."""
        return self.proved.entry.kernel

    @property
    def _geometry(self) -> Geometry:
        return self.spec.geometry

    @cached_property
    def output(self) -> tuple[int, int]:
        """Height and width of the output."""
        return self._geometry.output(*self.image[1:])

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
        if not self.has_values:
            return self.kernel_values
        wgt = self.spec.wgt
        values = np.array([wgt.value(code) for code in range(1 << wgt.bits)], np.int64)
        return values * self.spec.act.scale << self.shift

    @cached_property
    def kernel_values(self) -> IntegerArray:
        """The value of each code of a weight in the product that the kernel was proved for."""
        return np.array([self.kernel.core.wgt.value(code) for code in range(1 << self.kernel.w_bits)], np.int64)

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

    def _taps(self, pixel: Pixel) -> list[tuple[int, int, int, int]]:
        """Return the taps on the image for a pixel: row and column in the window, and in the image."""
        g, (_, height, width) = self._geometry, self.image
        (top, left, _, _), (down, right) = g.padding, g.dilation
        taps = []
        for ky in range(g.kernel[0]):
            for kx in range(g.kernel[1]):
                y, x = pixel.y * g.stride[0] + ky * down - top, pixel.x * g.stride[1] + kx * right - left
                if 0 <= y < height and 0 <= x < width:
                    taps.append((ky, kx, y, x))
        return taps

    def sums(self, pixel: Pixel, group: int, channels: Sequence[int]) -> tuple[CodeArray, IntegerArray, IntegerArray]:
        """Return what the accumulators of a pixel and of output `channels` of a group are, before the shift.

        These are the numbers of the activations' bytes, sorted; the factor of each in each channel (codes, channels);
        and the numbers (channels,) that are added.
        """
        g, taps = self._geometry, self._taps(pixel)
        inside = g.in_channels // g.groups
        first = group * inside
        weights = self.codes[list(channels)].astype(np.int64)
        of_taps = [self._byte_numbers[pixel.image, y, x, first : first + inside] for _, _, y, x in taps]
        factors = [self.factors[weights[:, :, ky, kx]].T for ky, kx, _, _ in taps]
        if not taps:
            return (
                np.zeros(0, np.int64),
                np.zeros((0, len(weights)), np.int64),
                self._sum_additions(weights, [], channels),
            )
        codes, of_codes = np.concatenate(of_taps), np.concatenate(factors)
        order = np.argsort(codes)
        return codes[order], of_codes[order], self._sum_additions(weights, taps, channels)

    def _sum_additions(
        self, weights: IntegerArray, taps: Sequence[tuple[int, int, int, int]], channels: Sequence[int]
    ) -> IntegerArray:
        """Return the numbers (channels,) that are added to the factors times codes."""
        act, wgt = self.spec.act, self.spec.wgt
        bias = self.bias[list(channels)]
        inside = np.zeros(weights.shape[2:], bool)
        for ky, kx, _, _ in taps:
            inside[ky, kx] = True
        if self.has_values:
            values = np.array([wgt.value(code) for code in range(1 << wgt.bits)], np.int64)[weights]
            offset = act.offset - self.spec.zero_point
            summed: IntegerArray = offset * (values * inside).sum(axis=(1, 2, 3)) + bias << self.shift
            return summed
        padding = pad_code_of(act, self.spec.zero_point)
        outside: IntegerArray = padding * (self.kernel_values[weights] * ~inside).sum(axis=(1, 2, 3))
        if remaining(self.kernel, self.product).factor != 1:
            return outside
        return outside + column_terms(self.product, weights.astype(np.uint8), Offset(bias, self.spec.zero_point))


@dataclass
class RowSums:
    """The accumulators of one row of one call, before the shift: as `Convolution.sums` has them, for all columns.

    Of columns that `meet_pads` weights meet what fills a row to whole steps.
    """

    codes: CodeArray
    factors: IntegerArray
    added: IntegerArray
    meet_pads: NDArray[np.bool_]


@dataclass
class CallSums:
    """The accumulators of all calls of a run, in the terms of codes."""

    convolution: Convolution
    call: StepCall
    _columns: dict[tuple[bytes, int, int], IntegerArray] = field(default_factory=dict)
    _whole: dict[int, CodeArray] = field(default_factory=dict)

    def of_row(self, kernel_call: KernelCall, row: int) -> RowSums:
        """Return the accumulators of a row; NotShown if the row, its term or the columns are none that can be read."""
        kernel, convolution = self.convolution.kernel, self.convolution
        columns = self._codes_of_columns(kernel_call)
        codes = np.concatenate([self._codes_of(kernel_call, segment) for segment in kernel_call.rows[row]])
        idle = idle_code(kernel)
        pads = codes == PAD
        if has_row_terms(kernel, convolution.product):
            self._require_term(kernel_call, row, codes[~pads])
        meets_pads = (columns[:, pads] != idle).any(axis=1)
        return self._sums(kernel_call, codes[~pads], columns[:, ~pads], meets_pads)

    def _sums(
        self, kernel_call: KernelCall, codes: CodeArray, columns: IntegerArray, meets_pads: NDArray[np.bool_]
    ) -> RowSums:
        convolution, kernel = self.convolution, self.convolution.kernel
        times = doublings(kernel, convolution.product)
        of_acts = np.zeros(1 << kernel.act_bits, np.int64)
        if makes_values(kernel, convolution.product):
            of_acts = np.array(affine(convolution.product).act_terms, np.int64)
        slope = int(of_acts[1])
        if not np.array_equal(of_acts, slope * np.arange(len(of_acts))):
            raise NotShown("terms of activations are no multiples of codes")
        factors = (convolution.kernel_values[columns] + slope).T << times
        unknown = codes >= 0
        known = FIRST_KNOWN - codes[~unknown]
        column_terms_of = np.array(kernel.column_terms, np.int64)
        added = kernel_call.start - (column_terms_of[columns].sum(axis=1) << times)
        added = added + (known[:, None] * factors[~unknown]).sum(axis=0)
        met, order = codes[unknown], np.argsort(codes[unknown], kind="stable")
        met, of_found = met[order], factors[unknown][order]
        first = np.flatnonzero(np.diff(met, prepend=-1))
        summed = np.add.reduceat(of_found, first, axis=0) if len(first) else of_found
        return RowSums(met[first], summed, added, meets_pads)

    def _codes_of_columns(self, kernel_call: KernelCall) -> IntegerArray:
        key = kernel_call.weights, kernel_call.tiles, kernel_call.segments * kernel_call.steps
        if key not in self._columns:
            self._columns[key] = codes_of_columns(self.convolution.kernel, *key)
        return self._columns[key]

    def _codes_of(self, kernel_call: KernelCall, segment: Bytes) -> CodeArray:
        """Return the codes that the bytes of a segment hold."""
        shape = kernel_call.kernel
        if shape.of_codes:
            return self._plain_codes(segment, shape.code_bytes)
        outer = self.convolution.kernel.bit_axis == "outer"
        size = len(segment) if outer else shape.row_bytes
        codes = []
        for at in range(0, len(segment), size):
            name = parse_name(segment[at], "row")
            if name is None:
                raise WrongCall("a row holds bytes that were not packed")
            packing_number, start = name
            of_row = NamedBytes("row", packing_number).bytes(start, size)
            if segment[at : at + size] != of_row or start % shape.row_bytes:
                raise WrongCall("a step of a row has parts of several steps")
            whole, steps = self._whole_row(packing_number, shape.k_step), size // shape.row_bytes
            step = start // shape.row_bytes
            if outer and (start or steps * shape.k_step != len(whole)):
                raise WrongCall("a row of planes is no whole row")
            codes.append(whole[step * shape.k_step : (step + steps) * shape.k_step])
        return np.concatenate(codes)

    def _plain_codes(self, segment: Bytes, size: int) -> CodeArray:
        """Return the codes of a segment's bytes, `size` bytes each; PAD for bytes that were not written."""
        every = [segment[at : at + size] for at in range(0, len(segment), size)]
        unwritten = np.array([None in each for each in every])
        if unwritten.any() and not ignores_rows_of_idle_weights(self.convolution.proved):
            raise NotShown("a row has bytes behind its codes that were not written")
        if any(any(above) for (_, *above), no_value in zip(every, unwritten, strict=True) if not no_value):
            raise WrongCall("a row has codes that are no numbers of its width")
        codes = number_codes([0 if no_value else each[0] for each, no_value in zip(every, unwritten, strict=True)])
        return np.where(unwritten, PAD, codes)

    def _whole_row(self, number: int, k_step: int) -> CodeArray:
        """Return the codes of a packing, filled to whole steps."""
        if number not in self._whole:
            codes = self.call.packed[number]
            self._whole[number] = np.concatenate([codes, np.full(-len(codes) % k_step, PAD)])
        return self._whole[number]

    def _require_term(self, kernel_call: KernelCall, row: int, codes: CodeArray) -> None:
        """Raise NotShown unless a row's number is the sum of the terms of the rows that its codes were packed in."""
        added, terms = self.call.values.of(kernel_call.terms[row])
        parts = [np.zeros(0, np.int64)]
        for (name, first), times in terms.items():
            if not (isinstance(name, NamedBytes) and name.kind == "term" and not first and 0 < times <= len(codes)):
                raise WrongCall(f"the number of row {row} is no sum of rows' terms")
            parts += [self.call.packed[name.number]] * times
        packed = np.sort(np.concatenate(parts))
        if row_terms(self.convolution.kernel, self.convolution.product)[0] == 0:  # Then code 0 adds nothing.
            packed, codes = packed[packed != FIRST_KNOWN], codes[codes != FIRST_KNOWN]
        if added or not np.array_equal(packed, np.sort(codes)):
            raise WrongCall(f"the number of row {row} is not the sum of the terms of the row's codes")

"""Compares the accumulators of a step's run with the convolution: which activation meets which weight.

A microkernel's accumulator is, by its proof, a sum over K of products of values that codes stand for. A `StepCall`
records which codes each row and each column has: codes of rows by the numbers of their bytes, codes of columns as
numbers. So each accumulator is a number and multiples of unknown codes, and these are compared with the convolution's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.correction_terms import doublings, has_row_terms, makes_values, row_terms
from bitsynth.layers.constants import idle_code
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
from bitsynth.network.machine_code.convolution import IntegerArray, KernelConvolution
from bitsynth.network.machine_code.idle_weights import ignores_rows_of_idle_weights
from bitsynth.network.machine_code.linear import Bytes, NamedBytes, parse_name
from bitsynth.objects.memory import NotShown
from bitsynth.spec.matmul import affine


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

    convolution: KernelConvolution
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

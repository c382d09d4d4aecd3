"""Accumulators as epilogues find them: int32 numbers, and the affine function that gives a layer's values.

A layer's value is v = (F * s + r + c) >> h, where s is an accumulator, r the affine term of its row and c the affine
term of its column. Programs take s itself: F, c and h go into their constants where that changes no result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.correction_terms import remaining, row_affines
from bitsynth.kernel.packing import Codes
from bitsynth.kernel.program import Kernel
from bitsynth.layers.constants import Offset, column_terms, padding_terms
from bitsynth.layers.epilogues.checks import INT32
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.spec import LayerSpec
from bitsynth.spec.elementwise import ElementwiseSpec
from bitsynth.spec.matmul import MatmulSpec

ProgramInputs = Mapping[str, NDArray[Any]]
"""Arrays (channels,) of the inputs of channels, () of what all elements share."""
AskedProgram = tuple[ElementwiseSpec, ProgramInputs]
"""A spec, and the arrays that its program reads."""


@dataclass(frozen=True, eq=False)
class Accumulators:
    """Accumulators, and the affine function that gives their values: (factor * s + row + columns) >> shift.

    `row` says whether rows have affines. `bound` limits the absolute value of an accumulator with its row's affine.
    """

    factor: int
    columns: NDArray[np.int64]
    shift: int
    row: bool
    bound: int

    @property
    def are_values(self) -> bool:
        """Whether accumulators are the values themselves."""
        return self.factor == 1 and not (self.columns.any() or self.shift or self.row)

    @property
    def channels(self) -> int:
        """The number of output channels."""
        return len(self.columns)


def can_fold(kernel: Kernel, spec: MatmulSpec, geometry: Geometry, weight: Codes, offset: Offset) -> bool:
    """Return whether thresholds of values can be thresholds of sums, for all rows and also at borders.

    `weight` (OC, IC / groups, KH, KW) holds codes.
    """
    terms = remaining(kernel, spec)
    if terms.factor != 1 and row_affines(kernel, spec):
        return False
    borders = padding_terms(spec.act, spec.wgt, geometry, offset)[weight].sum(axis=1) << terms.shift
    return not (borders % terms.factor).any() and bound_sums(kernel, spec, geometry, weight, offset) < INT32.max


def bound_sums(kernel: Kernel, spec: MatmulSpec, geometry: Geometry, weight: Codes, offset: Offset) -> int:
    """Return the greatest absolute value of a sum with its row's addend, and with what borders add."""
    core, terms = spec.core, remaining(kernel, spec)
    if terms.factor == 1:
        return greatest(spec, weight, offset) << terms.shift
    product = core.act.max_abs * core.wgt.max_abs + ((1 << spec.act.bits) - 1) * abs(row_affines(kernel, spec))
    border = int(np.abs(padding_terms(spec.act, spec.wgt, geometry, offset)).max()) << terms.shift
    return geometry.depth * (product + border)


def greatest(spec: MatmulSpec | LayerSpec, weight: Codes, offset: Offset) -> int:
    """Return the greatest absolute value for any padding; `weight` (OC, IC / groups, KH, KW) holds codes."""
    ends = [spec.act.value(code) - offset.zero_point for code in (0, spec.act.codes[-1])]
    weights = np.abs(spec.wgt.decode(weight)).sum(axis=(1, 2, 3), dtype=np.int64)
    return int((weights * max(map(abs, ends)) + np.abs(offset.bias)).max(initial=0))


def accumulators_of_kernel(
    kernel: Kernel, spec: MatmulSpec, geometry: Geometry, weight: Codes, offset: Offset
) -> Accumulators:
    """Return a kernel's accumulators, and how a layer's values follow from them; the layer `can_fold`."""
    terms, row = remaining(kernel, spec), row_affines(kernel, spec) != 0
    columns = np.zeros(len(weight), np.int64) if terms.factor == 1 else column_terms(spec, weight, offset)
    return Accumulators(terms.factor, columns, terms.shift, row, bound_sums(kernel, spec, geometry, weight, offset))


def values_as_accumulators(spec: LayerSpec, weight: Codes, bias: NDArray[np.int64]) -> Accumulators:
    """Return the values themselves as accumulators, bounded by the weights; for kernels with constants not folded."""
    most = min(greatest(spec, weight, Offset(bias, spec.zero_point)), int(INT32.max) - 1)
    return Accumulators(1, np.zeros(len(bias), np.int64), 0, False, most)

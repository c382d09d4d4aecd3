"""Thresholds that a layer's sums are compared with as the microkernel makes them, so that no value is made of them.

A value is v = (F * s + r + c) >> h of a sum s, its row's addend r and its column's c. For F = 1 sums start from c, so
that s + r is v << h. A value is above T exactly if F * s + r + c >= (T + 1) << h: for F = 1, or r = 0, if s + r is
above ceil((((T + 1) << h) - c) / F) - 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.terms import remaining, row_affines
from bitsynth.errors import SpecError
from bitsynth.kernel.packing import Codes
from bitsynth.kernel.program import Kernel
from bitsynth.layers.constants import Offset, column_terms, padding_terms
from bitsynth.layers.epilogues.arguments import INT32
from bitsynth.layers.epilogues.lowering import Sums
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.spec import LayerSpec
from bitsynth.spec.matmul import MatmulSpec


def can_fold(kernel: Kernel, spec: MatmulSpec, geometry: Geometry, weight: Codes, offset: Offset) -> bool:
    """Whether thresholds of values can be thresholds of sums: whatever rows add, and at borders.

    `weight` (OC, IC / groups, KH, KW) holds codes.
    """
    terms = remaining(kernel, spec)
    if terms.factor != 1 and row_affines(kernel, spec):
        return False
    borders = padding_terms(spec.act, spec.wgt, geometry, offset)[weight].sum(axis=1) << terms.shift
    return not (borders % terms.factor).any() and bound(kernel, spec, geometry, weight, offset) < INT32.max


def bound(kernel: Kernel, spec: MatmulSpec, geometry: Geometry, weight: Codes, offset: Offset) -> int:
    """The greatest absolute value of a sum with its row's addend, and with what borders add."""
    core, terms = spec.core, remaining(kernel, spec)
    if terms.factor == 1:
        return greatest(spec, weight, offset) << terms.shift
    product = core.act.max_abs * core.wgt.max_abs + ((1 << spec.act.bits) - 1) * abs(row_affines(kernel, spec))
    border = int(np.abs(padding_terms(spec.act, spec.wgt, geometry, offset)).max()) << terms.shift
    return geometry.depth * (product + border)


def greatest(spec: MatmulSpec | LayerSpec, weight: Codes, offset: Offset) -> int:
    """The greatest absolute value, whichever taps are on padding; `weight` (OC, IC / groups, KH, KW) holds codes."""
    ends = [spec.act.value(code) - offset.zero_point for code in (0, spec.act.codes[-1])]
    weights = np.abs(spec.wgt.decode(weight)).sum(axis=(1, 2, 3), dtype=np.int64)
    return int((weights * max(map(abs, ends)) + np.abs(offset.bias)).max(initial=0))


def folded(sums: Sums, thresholds: NDArray[np.int64], rising: NDArray[np.bool_]) -> NDArray[np.int32]:
    """(levels, OC) sorted thresholds of sums that say what `thresholds` say of values.

    Those of a channel that is not `rising` (OC) are thresholds of -1 - sum: a value is below T exactly if its sum, with
    the row's addend, is below ceil(((T << h) - c) / F). SpecError for thresholds below all of int32 of sums that go to
    its end: programs cannot say that even the last one is above.
    """
    least = ((thresholds + rising) << sums.shift) - sums.columns
    ends = -(-least // sums.factor)
    found: NDArray[Any] = np.where(rising, ends - 1, -1 - ends)
    if sums.bound >= INT32.max and (found < INT32.min).any():
        channel = np.argwhere(found < INT32.min)[0, 1]
        raise SpecError(
            f"thresholds of channel {channel} lie beyond int32, and the residual may bring sums to its end: "
            f"give levels from {INT32.min} to {INT32.max}"
        )
    return np.sort(found, axis=0).clip(INT32.min, INT32.max).astype(np.int32)


def sums_of(kernel: Kernel, spec: MatmulSpec, geometry: Geometry, weight: Codes, offset: Offset) -> Sums:
    """How values follow from the sums of a layer that `can_fold`."""
    terms, row = remaining(kernel, spec), row_affines(kernel, spec) != 0
    columns = np.zeros(len(weight), np.int64) if terms.factor == 1 else column_terms(spec, weight, offset)
    return Sums(terms.factor, columns, terms.shift, row, bound(kernel, spec, geometry, weight, offset))


def values(spec: LayerSpec, weight: Codes, bias: NDArray[np.int64]) -> Sums:
    """Values in the place of sums, where those cannot be told from them: as great as the weights allow."""
    most = min(greatest(spec, weight, Offset(bias, spec.zero_point)), int(INT32.max) - 1)
    return Sums(1, np.zeros(len(bias), np.int64), 0, False, most)

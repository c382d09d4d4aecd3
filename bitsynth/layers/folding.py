"""Thresholds that a layer's sums are compared with as the microkernel makes them, so that no value is made of them.

A value is v = (F * s + r + c) >> h of a sum s, its row's addend r and its column's c. It is above T exactly if
F * s + r + c >= (T + 1) << h: for F = 1, or r = 0, if s + r is above ceil((((T + 1) << h) - c) / F) - 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.packing import row_affines
from bitsynth.kernel.packing import Codes
from bitsynth.kernel.program import Kernel
from bitsynth.layers.constants import Offset, added_terms, column_terms, padding_terms
from bitsynth.layers.geometry import Geometry
from bitsynth.spec.matmul import MatmulSpec, affine

_INT32 = np.iinfo(np.int32)


def can_fold(kernel: Kernel, spec: MatmulSpec, geometry: Geometry, weight: Codes, offset: Offset) -> bool:
    """Whether thresholds of values can be thresholds of sums: whatever rows add, and at borders.

    `weight` (OC, IC / groups, KH, KW) holds codes.
    """
    terms = affine(spec)
    if terms.factor != 1 and row_affines(kernel, spec):
        return False
    borders = padding_terms(spec.act, spec.wgt, geometry, offset)[weight].sum(axis=1) << terms.shift
    return not (borders % terms.factor).any() and bound(kernel, spec, geometry, weight, offset) < _INT32.max


def bound(kernel: Kernel, spec: MatmulSpec, geometry: Geometry, weight: Codes, offset: Offset) -> int:
    """The greatest absolute value of a sum with its row's addend, and with what borders add."""
    core, terms = spec.core, affine(spec)
    product = core.act.max_abs * core.wgt.max_abs + ((1 << spec.act.bits) - 1) * abs(row_affines(kernel, spec))
    border = int(np.abs(padding_terms(spec.act, spec.wgt, geometry, offset)).max()) << terms.shift
    more = np.abs(added_terms(spec, weight, offset)).max() if terms.is_identity else 0
    return geometry.depth * (product + border) + int(more)


def folded(spec: MatmulSpec, weight: Codes, offset: Offset, thresholds: NDArray[np.int32]) -> NDArray[np.int32]:
    """(levels, OC) thresholds of sums that say what `thresholds` say of values."""
    terms = affine(spec)
    columns = 0 if terms.is_identity else column_terms(spec, weight, offset)
    least = ((thresholds.astype(np.int64) + 1) << terms.shift) - columns
    found: NDArray[Any] = -(-least // terms.factor) - 1
    return found.clip(_INT32.min, _INT32.max).astype(np.int32)

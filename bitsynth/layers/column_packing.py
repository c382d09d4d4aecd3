"""Layers whose weights are codes that the network computes: the numbers by which C packs them (`bs_matrices.h`).

With constant weights, where a column's accumulators start and its affine number are computed when the layer is
compiled. Here C computes them at each call. Both are sums over the column's codes:

    start of a column = a number of the column + the sum of f(code)     f a table, or a slope times the code
    affine number     = a number of the column + the sum of slope * code

Some kernels add to the start also `cross_terms` times the products of neighbouring codes. This file has f, the slopes
and the numbers of columns, and bounds sums for any weights that there may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.correction_terms import doublings, remaining, slope
from bitsynth.emit.runtime_abi import Number
from bitsynth.errors import SpecError
from bitsynth.kernel.packing import Codes
from bitsynth.kernel.program import Kernel
from bitsynth.layers.constants import Constants, Form, Offset, idle_code, sizes, to_int32, values_of, whole, width_of
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.weight_zeros import row_scale
from bitsynth.spec.matmul import INT32_MAX, MatmulOperand, MatmulSpec, affine


@dataclass(frozen=True, eq=False)
class ColumnPacking:
    """How C packs columns at run time: numbers and arrays of `struct bs_matrices`, by the names of its fields."""

    numbers: Mapping[str, int]
    arrays: Mapping[str, NDArray[Any]]


def extreme_codes(wgt: MatmulOperand, shape: tuple[int, ...]) -> Codes:
    """Return weights that all have the code of the value farthest from 0: no sum of products exceeds theirs."""
    farthest = max(wgt.codes, key=lambda code: abs(wgt.value(code)))
    return np.full(shape, farthest, np.uint8)


def constants_without_weights(
    kernel: Kernel, spec: MatmulSpec, geometry: Geometry, offset: Offset, form: Form
) -> Constants:
    """Return the constants of a dense layer that its weights do not change.

    SpecError if sums of any weights may leave int32, zero point and bias included.
    """
    values, depth = np.abs(values_of(spec.wgt)), geometry.depth
    added = int(np.abs(offset.bias).max()) + abs(offset.zero_point) * depth * int(values.max())
    if added + depth * spec.max_product > INT32_MAX >> affine(spec).shift:
        raise SpecError(f"sums of {depth} products with any weights, a bias and zero point may leave int32")
    correction = remaining(kernel, spec)
    numbers: dict[str, Number] = sizes(geometry, spec.act, 0)
    numbers |= {"out_places": width_of(kernel, geometry, form.unit), "joined_taps": 0} | row_scale(kernel, spec)
    return Constants(numbers | {"factor": correction.factor, "shift": correction.shift}, MappingProxyType({}))


def plan_column_packing(
    kernel: Kernel,
    spec: MatmulSpec,
    wgt: MatmulOperand,
    geometry: Geometry,
    offset: Offset,
    form: Form,
    order: NDArray[np.intp],
) -> ColumnPacking:
    """Return how C packs columns of codes for a kernel.

    Args:
        kernel: The kernel of the layer.
        spec: The product that the kernel computes.
        wgt: What the codes that C packs stand for; the kernel's weights may have more bits.
        geometry: The layer's.
        offset: The bias of columns, in the order of channels, and the zero point of activations.
        form: Which constants the layer has.
        order: The channel of each column.
    """
    shift = affine(spec).shift
    start_of_code = np.array(kernel.column_terms, np.int64) << doublings(kernel, spec)
    affine_of_code = ((spec.act.offset - offset.zero_point) * values_of(spec.wgt)) << shift
    start, affine_number = np.zeros(len(order), np.int64), offset.bias[order] << shift
    # With factor 1 an accumulator is a product already, so that what is added to products may be added at the start.
    if remaining(kernel, spec).factor == 1:
        start_of_code, affine_of_code = start_of_code + affine_of_code, np.zeros_like(affine_of_code)
        start, affine_number = affine_number, start
    places, count = width_of(kernel, geometry, form.unit), len(spec.wgt.codes)
    numbers = {"idle": idle_code(kernel), "cross_terms": kernel.cross_terms, **_conversion(wgt, spec.wgt)}
    arrays: dict[str, NDArray[Any]] = {}
    start_slope = slope((start_of_code[:count] - start_of_code[0]).tolist())
    if start_slope is None:
        arrays["start_terms"] = start_of_code.astype(np.int32)
    else:
        numbers["start_slope"] = start_slope
        start = start + geometry.depth * start_of_code[0]
    arrays["start"] = to_int32(whole(start, places))
    if not form.folds and not remaining(kernel, spec).is_identity:
        affine_slope = slope((affine_of_code[:count] - affine_of_code[0]).tolist())
        assert affine_slope is not None, "values are affine functions of codes"
        numbers["affine_slope"] = affine_slope
        arrays["affine"] = to_int32(whole(affine_number + geometry.depth * affine_of_code[0], places))
    if not np.array_equal(order, np.arange(len(order))):
        arrays["order"] = order.astype(np.uint32)
    return ColumnPacking(MappingProxyType(numbers), MappingProxyType(arrays))


def _conversion(wgt: MatmulOperand, own: MatmulOperand) -> dict[str, int]:
    """Return the factor and the summand, modulo 256, that make codes of `wgt` the codes of `own` for the same values.

    SpecError if `own` does not hold all values.
    """
    codes = own.encode(wgt.decode(np.array(wgt.codes, np.uint8)), "weight").astype(np.int64)
    factor = int(codes[1] - codes[0])
    assert np.array_equal(codes, codes[0] + factor * np.arange(len(codes))), "codes are affine functions of values"
    return {"code_factor": factor % 256, "code_summand": int(codes[0]) % 256}

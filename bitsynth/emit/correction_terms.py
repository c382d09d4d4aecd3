"""Terms and affines: what the kernel's proof and the encodings add to products of codes.

A value is an affine function of its code, so a product of values is factor * (product of codes) + a number for the row
+ a number for the column, shifted right. *Terms* are numbers of one row or column from which accumulators start.
*Affines* are numbers that are added to finished accumulators. If no overflow is possible, the microkernel starts from
both and stores values.

Example: bipolar weights are 2 w - 1 for a code w, so a . (2 w - 1) = 2 (a . w) - sum(a): factor 2, and -sum(a) for the
row of activations a.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from bitsynth.kernel.program import Kernel
from bitsynth.spec.matmul import INT32_MAX, Affine, MatmulSpec, affine


def slope(terms: Sequence[int]) -> int | None:
    """Return the factor by which each code is multiplied to give its term; None if terms are not linear."""
    step = terms[1]
    return step if all(term == step * code for code, term in enumerate(terms)) else None


@lru_cache(maxsize=1 << 12)
def makes_values(kernel: Kernel, spec: MatmulSpec) -> bool:
    """Return whether the microkernel stores values: it doubles products, starts from affines too, and shifts at last.

    That is if no K takes the terms of rows out of int32. Doubled products need rows without affines.
    """
    correction = affine(spec)
    if kernel.swapped or correction.is_identity:
        return False
    if correction.factor != 1 and any(correction.act_terms):
        return False
    return max(map(abs, _all_row_terms(kernel, spec))) * spec.k_max <= INT32_MAX


def doublings(kernel: Kernel, spec: MatmulSpec) -> int:
    """Return how often the microkernel doubles its products: factors of encodings are powers of two."""
    return affine(spec).factor.bit_length() - 1 if makes_values(kernel, spec) else 0


def _all_row_terms(kernel: Kernel, spec: MatmulSpec) -> tuple[int, ...]:
    return tuple(x + y for x, y in zip(kernel.row_terms, affine(spec).act_terms, strict=True))


def row_terms(kernel: Kernel, spec: MatmulSpec) -> tuple[int, ...]:
    """Return the number that each code adds to its row's term, with the encodings' term if the kernel stores values."""
    return _all_row_terms(kernel, spec) if makes_values(kernel, spec) else kernel.row_terms


def has_row_terms(kernel: Kernel, spec: MatmulSpec) -> bool:
    """Return whether rows have terms, of codes or of products of neighbouring codes."""
    return any(row_terms(kernel, spec)) or kernel.cross_terms != 0


def row_affines(kernel: Kernel, spec: MatmulSpec) -> int:
    """Return the factor of the sum of a row's codes that gives its affine number.

    0 if rows are weights, or if the microkernel stores values.
    """
    offset_slope = slope(affine(spec).act_terms)
    assert offset_slope is not None, "terms of activations have no offset"
    return 0 if kernel.swapped or makes_values(kernel, spec) else offset_slope


def remaining(kernel: Kernel, spec: MatmulSpec) -> Affine:
    """Return the affine function left to apply to accumulators. With factor 1 they have columns' terms already."""
    correction = affine(spec)
    if not makes_values(kernel, spec):
        return correction
    nothing = (0,) * len(correction.act_terms), (0,) * len(correction.wgt_terms)
    return Affine(0, 1, *nothing)

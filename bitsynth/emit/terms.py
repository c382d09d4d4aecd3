"""What encodings add to a microkernel's sums: it starts from that and stores values, or it is added behind."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from bitsynth.kernel.program import Kernel
from bitsynth.spec.matmul import INT32_MAX, Affine, MatmulSpec, affine


def slope(terms: Sequence[int]) -> int | None:
    """The number each code is multiplied by to give its term, None if there is none."""
    step = terms[1]
    return step if all(term == step * code for code, term in enumerate(terms)) else None


@lru_cache(maxsize=1 << 12)
def makes_values(kernel: Kernel, spec: MatmulSpec) -> bool:
    """Whether the microkernel stores values: sums are doubled, start from what encodings add too, are shifted at last.

    If no K takes rows' terms out of int32; what is doubled has those of the kernel alone.
    """
    correction = affine(spec)
    if kernel.swapped or correction.is_identity:
        return False
    if correction.factor != 1 and any(correction.act_terms):
        return False
    return max(map(abs, _all_row_terms(kernel, spec))) * spec.k_max <= INT32_MAX


def doublings(kernel: Kernel, spec: MatmulSpec) -> int:
    """How often the microkernel doubles its sums: factors of the encodings are powers of two."""
    return affine(spec).factor.bit_length() - 1 if makes_values(kernel, spec) else 0


def _all_row_terms(kernel: Kernel, spec: MatmulSpec) -> tuple[int, ...]:
    return tuple(x + y for x, y in zip(kernel.row_terms, affine(spec).act_terms, strict=True))


def row_terms(kernel: Kernel, spec: MatmulSpec) -> tuple[int, ...]:
    """What each code of a row adds to its term: what the kernel's proof wants, and what encodings add to values."""
    return _all_row_terms(kernel, spec) if makes_values(kernel, spec) else kernel.row_terms


def has_row_terms(kernel: Kernel, spec: MatmulSpec) -> bool:
    """Whether rows have terms, of codes or of products of neighbours."""
    return any(row_terms(kernel, spec)) or kernel.cross_terms != 0


def row_affines(kernel: Kernel, spec: MatmulSpec) -> int:
    """What the encodings of `spec` add to a row's sums for each unit of its codes, beside its terms.

    0 if rows are weights.
    """
    found = slope(affine(spec).act_terms)
    assert found is not None, "terms of activations have no offset"
    return 0 if kernel.swapped or makes_values(kernel, spec) else found


def remaining(kernel: Kernel, spec: MatmulSpec) -> Affine:
    """What is left to be done to the microkernel's sums, which start from their columns' terms if the factor is 1."""
    correction = affine(spec)
    if not makes_values(kernel, spec):
        return correction
    nothing = (0,) * len(correction.act_terms), (0,) * len(correction.wgt_terms)
    return Affine(0, 1, *nothing)

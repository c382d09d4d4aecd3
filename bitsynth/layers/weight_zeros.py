"""Weights with a zero point, on kernels for weights without one: only the terms of rows differ.

A product a * (w - z) is the product of a and the weight that a kernel takes for the code, plus a multiple of a (QNN,
section 4: one of its four terms). Kernels of some encodings already sum the codes of a row, times a power of two; the
runtime computes the needed multiple from these sums.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.emit.correction_terms import makes_values, row_terms, slope
from bitsynth.emit.runtime_abi import Number
from bitsynth.kernel.program import Kernel
from bitsynth.proof.encodings import require_exact
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec, affine

_PLAIN = (Encoding.UNSIGNED, Encoding.SIGNED)


def weights_of(bits: int, encoding: str, zero: int) -> MatmulOperand:
    """Return the operand of weights with a zero point; unsigned weights less half of all codes are signed ones."""
    given = MatmulOperand(bits, Encoding.parse(encoding), zero)
    return MatmulOperand(bits, Encoding.SIGNED) if zero == 1 << (bits - 1) else given


def encode_weights(integers: NDArray[Any], operand: MatmulOperand, zero: int) -> NDArray[np.uint8]:
    """Return the codes of weights with a zero point; raise SpecError for integers that have none.

    Integers with a zero point are the codes of their `operand`, which `weights_of` chose: integer 0 is code 0.
    """
    given = MatmulOperand(operand.bits, Encoding.UNSIGNED) if zero else operand
    return given.encode(integers, "weight")


def plain_product(kernel: Kernel, spec: MatmulSpec) -> MatmulSpec | None:
    """Return the product of the same codes without zero point whose C computes `spec` too; None if there is none.

    If weights have no zero point, it is `spec` itself.
    """
    if not spec.wgt.zero:
        return spec
    plain = (replace(spec, wgt=MatmulOperand(spec.wgt.bits, encoding)) for encoding in _PLAIN)
    return next((product for product in plain if _sums_rows(kernel, product, spec)), None)


def row_scale(kernel: Kernel, spec: MatmulSpec) -> dict[str, Number]:
    """Return the numbers of `struct bs_layer` that convert terms of `plain_product`; raise Refuted if wrong."""
    plain = plain_product(kernel, spec)
    if plain is None or plain == spec:
        return {}
    require_exact(spec)
    own, wanted = _term(kernel, plain), _term(kernel, spec)
    return {"row_shift": abs(own).bit_length() - 1, "row_factor": wanted if own > 0 else -wanted}


def _sums_rows(kernel: Kernel, plain: MatmulSpec, spec: MatmulSpec) -> bool:
    """Return whether rows have terms, a power of two for each unit of their codes, from which values start."""
    starts = affine(plain).is_identity or makes_values(kernel, plain)
    if kernel.cross_terms or not starts or not makes_values(kernel, spec):
        return False
    return abs(_term(kernel, plain)).bit_count() == 1 < abs(_term(kernel, plain))


def _term(kernel: Kernel, spec: MatmulSpec) -> int:
    """Return the factor of the sum of a row's codes in its term; 0 if terms are not linear."""
    return slope(row_terms(kernel, spec)) or 0

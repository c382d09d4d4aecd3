"""Shows that the corrections from the core product to other encodings are exact, on all pairs of codes.

A kernel multiplies codes of the core's encodings. Terms of a row, of a column, a factor and a shift give the product in
the encodings of the spec. For each pair of an activation code a and a weight code w must hold

    value(a) * value(w) << shift == factor * core(a) * core(w) + act_terms[a] + wgt_terms[w]

For example 2-bit unsigned activations times signed weights: the core has bipolar weights -3, -1, 1, 3 for the values
-2, -1, 0, 1. With the shift 1 and act_terms[a] = -a: 2 * a * v == a * (2 * v + 1) - a.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import numpy as np

from bitsynth.errors import Refuted
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec, affine

_IN_LEMMAS = (Encoding.UNSIGNED, Encoding.SIGNED, Encoding.BIPOLAR, Encoding.TERNARY)
"""Encodings that stored lemmas speak of; others are tried where they are used."""


@lru_cache
def encoding_lemma(act_bits: int, w_bits: int) -> str:
    """Return the lemma that `affine` is exact for every pair of encodings these widths have; Refuted if it is not."""
    specs = [MatmulSpec("", act, wgt) for act, wgt in product(_operands(act_bits), _operands(w_bits))]
    pairs = sum(_check(spec) for spec in specs)
    return f"encoding: the corrections of {len(specs)} pairs of encodings are exact on all {pairs:,} pairs of codes"


def _operands(bits: int) -> list[MatmulOperand]:
    """Return operands of that many bits under every encoding of a lemma that has the width."""
    return [MatmulOperand(bits, e) for e in _IN_LEMMAS if bits in e.widths]


@lru_cache
def require_exact(spec: MatmulSpec) -> None:
    """Raise Refuted unless the correction to the encodings of `spec` is exact on all codes."""
    _check(spec)


def _check(spec: MatmulSpec) -> int:
    """Return the number of pairs of codes in use; the correction was found exact on each of them."""
    correction, core = affine(spec), spec.core
    acts, wgts = list(spec.act.codes), list(spec.wgt.codes)
    want = np.outer(_values(spec.act), _values(spec.wgt)) << correction.shift
    product_of_codes = np.outer([core.act.value(a) for a in acts], [core.wgt.value(w) for w in wgts])
    act_terms = np.array(correction.act_terms)[acts, None]
    wgt_terms = np.array(correction.wgt_terms)[None, wgts]
    wrong = np.argwhere(correction.factor * product_of_codes + act_terms + wgt_terms != want)
    if len(wrong):
        a, w = wrong[0]
        raise Refuted(f"{spec.act} code {acts[a]} times {spec.wgt} code {wgts[w]}: the correction is off")
    return want.size


def _values(operand: MatmulOperand) -> list[int]:
    return [operand.value(code) for code in operand.codes]

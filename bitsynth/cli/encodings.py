"""The step from the core product to other encodings, over every pair of codes."""

from __future__ import annotations

from itertools import product

from bitsynth.errors import Refuted
from bitsynth.spec import MatmulSpec, affine


def check_encoding(spec: MatmulSpec) -> int:
    """Try the affine correction on every pair of codes in use; how many. Refuted where it is off."""
    correction, core = affine(spec), spec.core
    pairs = list(product(spec.act.codes, spec.wgt.codes))
    for a, w in pairs:
        want = spec.act.value(a) * spec.wgt.value(w) << correction.shift
        product_of_codes = core.act.value(a) * core.wgt.value(w)
        got = correction.factor * product_of_codes + correction.act_terms[a] + correction.wgt_terms[w]
        if got != want:
            raise Refuted(f"{spec.act} code {a} times {spec.wgt} code {w}: the correction gives {got}, want {want}")
    return len(pairs)

"""Kernels of instruction sets with feature sets: solved, proved, compiled and run here, for each CPU's own part."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from bitsynth import matmul
from bitsynth.host import features
from bitsynth.isa.load import load
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec
from bitsynth.spec.options import KernelOptions
from bitsynth.synth.synthesize import synthesize

WIDTHS = [(1, 1), (3, 2)]
"""The solver takes up to a minute for each."""
MODELS = [("avx512", "ops"), ("avx512", "skylakex"), ("armv7_neon", "ops")]
CASES = [(*model, widths) for model in MODELS for widths in WIDTHS]


@cache
def solved(isa, model, act_bits, w_bits):
    spec = MatmulSpec(isa, MatmulOperand(act_bits, Encoding.UNSIGNED), MatmulOperand(w_bits, Encoding.BIPOLAR))
    return matmul.MatmulKernel(synthesize(spec, KernelOptions(method="popcount", model=model)).proved_entry, spec)


def check(kernel):
    """Random and greatest operands, tails of every size, against numpy."""
    rng = np.random.default_rng(3)
    act, wgt, shape = kernel.spec.act, kernel.spec.wgt, kernel.entry.kernel
    for length in (1, shape.k_step - 1, 2 * shape.k_step + 1, 4608):
        for last in (False, True):
            a = rng.integers(act.codes[-1] if last else 0, act.codes[-1] + 1, (shape.rows + 1, length))
            w = 2 * rng.integers(wgt.codes[-1] if last else 0, wgt.codes[-1] + 1, (length, shape.columns + 3))
            w -= wgt.codes[-1]
            assert (kernel.matmul(a, w) == a @ w).all()


def run(isa, model, widths):
    kernel = solved(isa, model, *widths)
    assert kernel.cost.minimal
    used = load(isa).requirements(kernel.entry.kernel.forms)
    if model in load(isa).table.cpu:
        assert model in kernel.cost.cycles
    for flag in used.macros:
        assert flag in kernel.source
    if load(isa).table.arch == features.arch() and features.lacking(used.host):
        pytest.skip("this processor lacks the features, and nothing emulates it")
    check(kernel)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_products_of_some_widths_are_exact(case):
    run(*case)


@pytest.mark.slow
def test_a_cpu_without_the_feature_has_no_cycles():
    kernel = solved("avx512", "ops", 1, 1)
    assert "skylakex" not in kernel.cost.cycles
    assert "__AVX512VPOPCNTDQ__" in kernel.source
    assert "vpopcntdq" in {load("avx512")[op].feature for op in kernel.entry.kernel.forms}
